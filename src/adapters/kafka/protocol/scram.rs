//! The client's side of SCRAM (RFC 5802, RFC 7677), without channel binding, as Kafka's brokers speak it.
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256, Sha512};

/// Most iterations that a broker may ask for: more would stall the producer. Kafka's default is 4,096.
const ITERATIONS_MAX: u32 = 1_000_000;
/// The prefix of each message: no channel binding, no authorization identity.
const GS2_HEADER: &str = "n,,";

/// The hash function of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    fn digest(self, data: &[u8]) -> Vec<u8> {
        match self {
            Hash::Sha256 => Sha256::digest(data).to_vec(),
            Hash::Sha512 => Sha512::digest(data).to_vec(),
        }
    }

    fn hmac(self, key: &[u8], data: &[u8]) -> Vec<u8> {
        const ANY_LENGTH: &str = "a key of any length is legal";
        match self {
            Hash::Sha256 => Hmac::<Sha256>::new_from_slice(key)
                .expect(ANY_LENGTH)
                .chain_update(data)
                .finalize()
                .into_bytes()
                .to_vec(),
            Hash::Sha512 => Hmac::<Sha512>::new_from_slice(key)
                .expect(ANY_LENGTH)
                .chain_update(data)
                .finalize()
                .into_bytes()
                .to_vec(),
        }
    }

    /// `Hi` of RFC 5802, which is PBKDF2 with one block.
    fn salted_password(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        match self {
            Hash::Sha256 => pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(password, salt, iterations).to_vec(),
            Hash::Sha512 => pbkdf2::pbkdf2_hmac_array::<Sha512, 64>(password, salt, iterations).to_vec(),
        }
    }
}

/// One authentication; its nonce is never used again.
pub(crate) struct ScramClient<'a> {
    hash: Hash,
    username: String,
    password: &'a str,
    nonce: String,
}

/// The client's proof, and the signature that the broker must return.
pub(crate) struct Proof {
    pub(crate) message: String,
    server_signature: String,
}

impl<'a> ScramClient<'a> {
    pub(crate) fn new(hash: Hash, username: &str, password: &'a str, nonce: &str) -> Self {
        let username = username.replace('=', "=3D").replace(',', "=2C");
        Self { hash, username, password, nonce: nonce.to_owned() }
    }

    /// The message that begins the authentication.
    pub(crate) fn first_message(&self) -> String {
        format!("{GS2_HEADER}{}", self.first_message_bare())
    }

    fn first_message_bare(&self) -> String {
        format!("n={},r={}", self.username, self.nonce)
    }

    /// Answers the broker's challenge.
    ///
    /// # Errors
    /// The reason for which the challenge is invalid.
    pub(crate) fn prove(&self, challenge: &[u8]) -> Result<Proof, String> {
        let challenge = std::str::from_utf8(challenge).map_err(|_| "its challenge is not text".to_owned())?;
        let nonce = attribute(challenge, 'r')?;
        let salt =
            BASE64_STANDARD.decode(attribute(challenge, 's')?).map_err(|_| "its salt is not base64".to_owned())?;
        let iterations: u32 =
            attribute(challenge, 'i')?.parse().map_err(|_| "its iteration count is not a number".to_owned())?;
        if !nonce.starts_with(&self.nonce) || !(1..=ITERATIONS_MAX).contains(&iterations) {
            return Err("its challenge does not belong to this authentication".into());
        }
        let salted = self.hash.salted_password(self.password.as_bytes(), &salt, iterations);
        let client_key = self.hash.hmac(&salted, b"Client Key");
        let without_proof = format!("c={},r={nonce}", BASE64_STANDARD.encode(GS2_HEADER));
        let authenticated = format!("{},{challenge},{without_proof}", self.first_message_bare());
        let signature = self.hash.hmac(&self.hash.digest(&client_key), authenticated.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(key, sign)| key ^ sign).collect();
        let server_key = self.hash.hmac(&salted, b"Server Key");
        Ok(Proof {
            message: format!("{without_proof},p={}", BASE64_STANDARD.encode(proof)),
            server_signature: BASE64_STANDARD.encode(self.hash.hmac(&server_key, authenticated.as_bytes())),
        })
    }
}

impl Proof {
    /// Checks that the broker knows the password, too.
    ///
    /// # Errors
    /// The broker's reason, or that its signature is wrong.
    pub(crate) fn verify(&self, answer: &[u8]) -> Result<(), String> {
        let answer = std::str::from_utf8(answer).map_err(|_| "its answer is not text".to_owned())?;
        if let Ok(reason) = attribute(answer, 'e') {
            return Err(reason.to_owned());
        }
        if attribute(answer, 'v')? == self.server_signature {
            Ok(())
        } else {
            Err("its signature is wrong: it does not know the password".into())
        }
    }
}

/// A random nonce. The standard library seeds the hashers of a thread from the system's entropy, and no two of them are equal.
pub(crate) fn nonce() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

fn attribute(message: &str, name: char) -> Result<&str, String> {
    let found = message.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    found.ok_or_else(|| format!("its message has no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3.
    #[test]
    fn exchange_equals_the_example_of_the_rfc() {
        let client = ScramClient::new(Hash::Sha256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO");
        let challenge = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

        let proof = client.prove(challenge.as_bytes()).expect("a challenge");

        assert_eq!(client.first_message(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        assert_eq!(
            proof.message,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert_eq!(proof.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Ok(()));
        assert!(proof.verify(b"v=AAAA").is_err_and(|reason| reason.contains("does not know the password")));
        assert_eq!(proof.verify(b"e=invalid-proof"), Err("invalid-proof".into()));
    }

    #[test]
    fn foreign_and_malformed_challenges_are_refused() {
        let client = ScramClient::new(Hash::Sha512, "a,b=c", "secret", "nonce");

        assert_eq!(client.first_message(), "n,,n=a=2Cb=3Dc,r=nonce");
        for challenge in
            ["", "r=other,s=AA==,i=4096", "r=nonce1,s=AA==,i=0", "r=nonce1,s=AA==,i=9999999999", "r=nonce1,s=!,i=1"]
        {
            assert!(client.prove(challenge.as_bytes()).is_err(), "{challenge}");
        }
        assert!(client.prove(b"r=nonce1,s=AA==,i=1").is_ok());
    }
}
