//! The configured source of verification keys.
use std::path::PathBuf;
use std::sync::Arc;

use jsonwebtoken::{Algorithm, DecodingKey};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use crate::auth::jwks::Jwks;
use crate::auth::signing_key::{KeyError, KeyLookup, SECRET_BYTES_MIN, SigningKey, from_pem, read_key_file};

/// Where the verification keys come from.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// A shared secret for HS256.
    Secret(SecretString),
    /// A PEM file with a public key: RS256 for an RSA key, ES256 for a P-256 key.
    PublicKeyFile(PathBuf),
    /// A key set at an https URL (http on loopback only): RS256 and ES256, selected by the key id.
    JwksUrl(String),
}

/// The verification keys of a [`KeySource`].
pub(crate) enum VerificationKeys {
    Fixed(Arc<SigningKey>),
    Set(Jwks),
}

impl VerificationKeys {
    /// Reads the key; fetches nothing yet. Also returns a hash that differs where the source, its secret or its file differs. The keys behind a URL
    /// do not count.
    pub(crate) fn open(source: &KeySource) -> Result<(Self, [u8; 32]), KeyError> {
        let hash = |kind: &str, value: &[u8]| Sha256::new().chain_update(kind).chain_update(value).finalize().into();
        Ok(match source {
            KeySource::Secret(secret) if secret.expose_secret().len() < SECRET_BYTES_MIN => {
                return Err(KeyError::ShortSecret);
            }
            KeySource::Secret(secret) => {
                let secret = secret.expose_secret().as_bytes();
                let key = SigningKey { decoding: DecodingKey::from_secret(secret), algorithm: Algorithm::HS256 };
                (VerificationKeys::Fixed(Arc::new(key)), hash("secret\0", secret))
            }
            KeySource::PublicKeyFile(path) => {
                let pem = read_key_file(path)?;
                (VerificationKeys::Fixed(Arc::new(from_pem(path, &pem)?)), hash("file\0", &pem))
            }
            KeySource::JwksUrl(url) => (VerificationKeys::Set(Jwks::at(url.clone())?), hash("url\0", url.as_bytes())),
        })
    }

    /// Fetches a key set that is fetched at all, so that its refused keys are reported at the start.
    pub(crate) async fn prefetch(&self) {
        if let VerificationKeys::Set(set) = self {
            set.prefetch().await;
        }
    }

    /// Changes whenever a previously valid key may have become invalid.
    pub(crate) fn generation(&self) -> u64 {
        match self {
            VerificationKeys::Fixed(_) => 0,
            VerificationKeys::Set(set) => set.generation(),
        }
    }

    /// Starts a fetch of a key set that is stale, so that the generation changes. Every use of a key calls it, that of a cached token too.
    pub(crate) fn refresh_if_stale(&self) {
        if let VerificationKeys::Set(set) = self {
            set.refresh_if_stale();
        }
    }

    pub(crate) async fn find(&self, key_id: Option<&str>, algorithm: Algorithm) -> KeyLookup {
        match (self, key_id) {
            (VerificationKeys::Fixed(key), _) if key.algorithm == algorithm => KeyLookup::Key(Arc::clone(key)),
            (VerificationKeys::Set(set), Some(key_id)) => set.find(key_id, algorithm).await,
            (VerificationKeys::Fixed(_), _) | (VerificationKeys::Set(_), None) => KeyLookup::Unknown,
        }
    }
}
