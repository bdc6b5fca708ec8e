//! A key that verifies tokens, bound to its one algorithm.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jsonwebtoken::{Algorithm, DecodingKey};

/// Why a key source cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Everybody could sign with an empty secret.
    #[error("the secret is empty")]
    EmptySecret,
    /// The key file cannot be read.
    #[error("cannot read the public key file {path}")]
    File {
        /// The path from the configuration.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The key file contains no supported key.
    #[error("{0} contains neither an RSA nor a P-256 public key in PEM form")]
    NoPublicKey(PathBuf),
    /// The URL would transfer keys unencrypted.
    #[error("{0} is neither an https URL nor an http URL on loopback")]
    JwksUrl(String),
}

/// A key with the algorithm that it is used with.
pub(crate) struct SigningKey {
    pub(crate) decoding: DecodingKey,
    pub(crate) algorithm: Algorithm,
}

/// The result of looking up the key of a token.
pub(crate) enum KeyLookup {
    Key(Arc<SigningKey>),
    /// No such key, or the token names another algorithm than the key's.
    Unknown,
    /// No key set has been fetched so far, and none can be fetched now.
    Unavailable,
}

/// Reads an RSA or P-256 public key from a PEM file.
pub(crate) fn from_pem(path: &Path) -> Result<SigningKey, KeyError> {
    let pem = std::fs::read(path).map_err(|source| KeyError::File { path: path.to_owned(), source })?;
    let rsa = DecodingKey::from_rsa_pem(&pem).map(|decoding| SigningKey { decoding, algorithm: Algorithm::RS256 });
    let ec = || DecodingKey::from_ec_pem(&pem).map(|decoding| SigningKey { decoding, algorithm: Algorithm::ES256 });
    rsa.or_else(|_| ec()).map_err(|_| KeyError::NoPublicKey(path.to_owned()))
}
