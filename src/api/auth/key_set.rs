//! The keys of a JSON Web Key Set: those that verify tokens, and those that are refused with a reason.
use std::collections::HashMap;
use std::sync::Arc;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;

use crate::auth::rsa_modulus::modulus_bits;
use crate::auth::signing_key::{RSA_BITS_MIN, SigningKey};

/// A parsed key set.
pub(crate) struct KeySet {
    /// The keys that verify tokens. Keys of different types may have the same key id (RFC 7517, section 4.5).
    usable: HashMap<(String, Algorithm), Arc<SigningKey>>,
    /// Keys of a supported kind that must not verify tokens. Keys of other kinds are skipped.
    pub(crate) refused: Vec<RefusedKey>,
}

/// A key that must not verify tokens.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RefusedKey {
    pub(crate) key_id: String,
    pub(crate) reason: &'static str,
}

impl KeySet {
    /// The keys of a document; `None` when it is not a key set.
    pub(crate) fn parse(document: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(document).ok()?;
        let mut set = Self { usable: HashMap::new(), refused: Vec::new() };
        for jwk in document.get("keys")?.as_array()? {
            set.add(jwk);
        }
        Some(set)
    }

    /// The key that verifies tokens with this key id and algorithm.
    pub(crate) fn find(&self, key_id: &str, algorithm: Algorithm) -> Option<Arc<SigningKey>> {
        self.usable.get(&(key_id.to_owned(), algorithm)).cloned()
    }

    fn add(&mut self, jwk: &Value) {
        let Ok(jwk) = serde_json::from_value::<Jwk>(jwk.clone()) else { return };
        let Some(key) = supported_key(&jwk) else { return };
        let key_id = jwk.common.key_id.clone().unwrap_or_default();
        match refusal(&jwk, &key) {
            Some(reason) => self.refused.push(RefusedKey { key_id, reason }),
            None => drop(self.usable.insert((key_id, key.algorithm), Arc::new(key))),
        }
    }
}

/// The key, if it is of a kind that this service verifies with. Never `oct`: a public key set must not contain a shared secret.
fn supported_key(jwk: &Jwk) -> Option<SigningKey> {
    let (algorithm, binding) = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(parameters) if parameters.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        _ => return None,
    };
    // A key with another `use` is bound to an algorithm for that use: it is refused with this reason.
    let other_algorithm = jwk.common.key_algorithm.is_some_and(|named| named != binding);
    if other_algorithm && is_for_signatures(jwk) {
        return None;
    }
    Some(SigningKey { decoding: DecodingKey::from_jwk(jwk).ok()?, algorithm })
}

/// Why a key of a supported kind must not verify tokens.
fn refusal(jwk: &Jwk, key: &SigningKey) -> Option<&'static str> {
    let operations = jwk.common.key_operations.as_ref();
    if jwk.common.key_id.is_none() {
        Some("it has no key id (kid)")
    } else if !is_for_signatures(jwk) {
        Some("its use is not sig")
    } else if operations.is_some_and(|operations| !operations.contains(&KeyOperations::Verify)) {
        Some("its key_ops do not contain verify")
    } else if key.algorithm == Algorithm::RS256 && modulus_bits(&key.decoding).is_none_or(|bits| bits < RSA_BITS_MIN) {
        Some("its RSA modulus has fewer than 2048 bits")
    } else {
        None
    }
}

fn is_for_signatures(jwk: &Jwk) -> bool {
    jwk.common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EC: &str = "\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\",\
        \"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"";

    fn set(keys: &[String]) -> KeySet {
        KeySet::parse(format!("{{\"keys\":[{}]}}", keys.join(",")).as_bytes()).unwrap()
    }

    fn ec(more: &str) -> String {
        format!("{{{EC}{more}}}")
    }

    fn rsa(modulus_bytes: usize, more: &str) -> String {
        // In base64url, three bytes are four characters: a modulus of ones in its highest bits.
        format!("{{\"kty\":\"RSA\",\"e\":\"AQAB\",\"n\":\"{}\"{more}}}", "_".repeat(modulus_bytes.div_ceil(3) * 4))
    }

    fn usable(set: &KeySet) -> Vec<&str> {
        let mut usable: Vec<&str> = set.usable.keys().map(|(key_id, _)| &**key_id).collect();
        usable.sort();
        usable
    }

    #[test]
    fn keys_of_different_types_may_have_the_same_key_id() {
        let set = set(&[rsa(258, ",\"kid\":\"a\""), ec(",\"kid\":\"a\"")]);

        for algorithm in [Algorithm::RS256, Algorithm::ES256] {
            assert_eq!(set.find("a", algorithm).expect("a key").algorithm, algorithm);
        }
    }

    #[test]
    fn keys_of_other_kinds_and_algorithms_are_skipped() {
        let set = set(&[
            ec(",\"kid\":\"a\",\"alg\":\"ES256\",\"use\":\"sig\""),
            ec(",\"kid\":\"b\",\"alg\":\"RS256\""),
            "{\"kty\":\"oct\",\"kid\":\"d\",\"k\":\"c2VjcmV0\"}".to_owned(),
            "{\"kty\":\"??\"}".to_owned(),
            "7".to_owned(),
        ]);

        assert_eq!(usable(&set), ["a"]);
        assert_eq!(set.refused, []);
        assert!(KeySet::parse(b"[]").is_none());
    }

    #[test]
    fn keys_that_are_not_for_signatures_or_too_short_are_refused_with_their_reason() {
        let set = set(&[
            ec(",\"kid\":\"a\",\"key_ops\":[\"verify\"]"),
            rsa(258, ",\"kid\":\"b\""),
            ec(",\"kid\":\"c\",\"use\":\"enc\""),
            rsa(258, ",\"kid\":\"d\",\"use\":\"enc\",\"alg\":\"RSA-OAEP\""),
            ec(",\"kid\":\"e\",\"key_ops\":[\"sign\",\"deriveKey\"]"),
            ec(",\"kid\":\"f\",\"use\":\"sig\",\"key_ops\":[]"),
            rsa(128, ",\"kid\":\"g\""),
            ec(""),
        ]);

        assert_eq!(usable(&set), ["a", "b"]);
        let refused: Vec<(&str, &str)> = set.refused.iter().map(|key| (&*key.key_id, key.reason)).collect();
        let (no_use, no_verify) = ("its use is not sig", "its key_ops do not contain verify");
        let expected = [
            ("c", no_use),
            ("d", no_use),
            ("e", no_verify),
            ("f", no_verify),
            ("g", "its RSA modulus has fewer than 2048 bits"),
            ("", "it has no key id (kid)"),
        ];
        assert_eq!(refused, expected);
    }
}
