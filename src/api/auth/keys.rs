//! The key that tokens are checked with, and the one algorithm that goes with it.
use std::path::PathBuf;
use std::sync::Arc;

use jsonwebtoken::{Algorithm, DecodingKey};
use secrecy::{ExposeSecret, SecretString};

use super::jwks::Jwks;

/// Where the key comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A shared secret: HS256.
    Secret(SecretString),
    /// A PEM file with a public key: RS256 for an RSA key, ES256 for a P-256 key.
    PublicKeyFile(PathBuf),
    /// A key set at an https URL (http on loopback only): RS256 and ES256, by `kid`.
    JwksUrl(String),
}

/// Why there is no key to check tokens with.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// An empty secret would be everybody's.
    #[error("the secret is empty")]
    EmptySecret,
    /// The file cannot be read.
    #[error("cannot read the public key file {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file holds no key that we can use.
    #[error("{0} holds neither an RSA nor a P-256 public key in PEM form")]
    NoPublicKey(PathBuf),
    /// Keys must not travel in the clear.
    #[error("{0} is neither an https URL nor an http one on loopback")]
    JwksUrl(String),
}

/// A key with its algorithm.
pub(super) struct Key {
    pub(super) decoding: DecodingKey,
    pub(super) algorithm: Algorithm,
}

/// What a search for a token's key found.
pub(super) enum Found {
    Key(Arc<Key>),
    /// There is no such key, or the token names another algorithm than the key's.
    Unknown,
    /// The key set was never fetched and cannot be now.
    Away,
}

pub(super) enum Keys {
    Fixed(Arc<Key>),
    Set(Jwks),
}

impl Keys {
    pub(super) fn open(source: Source) -> Result<Self, KeyError> {
        Ok(match source {
            Source::Secret(secret) if secret.expose_secret().is_empty() => return Err(KeyError::EmptySecret),
            Source::Secret(secret) => {
                let decoding = DecodingKey::from_secret(secret.expose_secret().as_bytes());
                Keys::Fixed(Arc::new(Key { decoding, algorithm: Algorithm::HS256 }))
            }
            Source::PublicKeyFile(path) => Keys::Fixed(Arc::new(from_pem(path)?)),
            Source::JwksUrl(url) => Keys::Set(Jwks::at(url)?),
        })
    }

    /// Changes when a key that held before may not hold any more.
    pub(super) fn generation(&self) -> u64 {
        match self {
            Keys::Fixed(_) => 0,
            Keys::Set(set) => set.generation(),
        }
    }

    pub(super) async fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Found {
        let found = match (self, kid) {
            (Keys::Fixed(key), _) => Found::Key(Arc::clone(key)),
            (Keys::Set(set), Some(kid)) => set.find(kid).await,
            (Keys::Set(_), None) => Found::Unknown,
        };
        match found {
            Found::Key(key) if key.algorithm != algorithm => Found::Unknown,
            found => found,
        }
    }
}

fn from_pem(path: PathBuf) -> Result<Key, KeyError> {
    let pem = std::fs::read(&path).map_err(|source| KeyError::File { path: path.clone(), source })?;
    let rsa = DecodingKey::from_rsa_pem(&pem).map(|decoding| Key { decoding, algorithm: Algorithm::RS256 });
    let ec = || DecodingKey::from_ec_pem(&pem).map(|decoding| Key { decoding, algorithm: Algorithm::ES256 });
    rsa.or_else(|_| ec()).map_err(|_| KeyError::NoPublicKey(path))
}
