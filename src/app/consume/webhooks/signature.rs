//! Secrets and signatures as Standard Webhooks defines them (specification 1.0): `whsec_` and base64; HMAC-SHA256 of id, time and body.
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;

const PREFIX: &str = "whsec_";
/// Bytes of a key: 24 to 64, by the specification.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A new secret of these random bytes.
pub fn encode_secret(bytes: [u8; 32]) -> String {
    format!("{PREFIX}{}", STANDARD.encode(bytes))
}

/// Whether a text is a secret: the prefix and 24 to 64 bytes in base64.
pub fn is_secret(text: &str) -> bool {
    key(text).is_some_and(|key| KEY_BYTES.contains(&key.len()))
}

fn key(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text.strip_prefix(PREFIX)?).ok()
}

/// The value of `webhook-signature`: one signature for each secret, separated by spaces. `timestamp` is in seconds since 1970.
pub fn signatures<'a>(
    secrets: impl IntoIterator<Item = &'a str>,
    message_id: &str,
    timestamp: i64,
    body: &[u8],
) -> String {
    let signature = |secret: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(&key(secret)?).ok()?;
        mac.update(format!("{message_id}.{timestamp}.").as_bytes());
        mac.update(body);
        Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
    };
    secrets.into_iter().filter_map(signature).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    /// The published example of the specification's libraries.
    #[test]
    fn signature_equals_that_of_other_implementations() {
        let signed = signatures([SECRET], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);

        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn every_valid_secret_signs() {
        let other = encode_secret([7; 32]);

        let both = signatures([other.as_str(), SECRET], "m", 1, b"x");

        let single = |secret: &str| signatures([secret], "m", 1, b"x");
        assert_eq!(both, format!("{} {}", single(&other), single(SECRET)));
    }

    #[test]
    fn secret_has_the_prefix_and_24_to_64_bytes() {
        let of_bytes = |count: usize| format!("{PREFIX}{}", STANDARD.encode(vec![1; count]));

        for legal in [SECRET.to_owned(), encode_secret([0; 32]), of_bytes(24), of_bytes(64)] {
            assert!(is_secret(&legal), "{legal}");
        }
        for illegal in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!", &of_bytes(23), &of_bytes(65)] {
            assert!(!is_secret(illegal), "{illegal}");
        }
    }
}
