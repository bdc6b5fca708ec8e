//! A key that verifies tokens, bound to its one algorithm.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jsonwebtoken::crypto::verify;
use jsonwebtoken::{Algorithm, DecodingKey};

use crate::auth::rsa_modulus::modulus_bits;

/// Bytes of an HS256 secret: the length of its hash.
pub(crate) const SECRET_BYTES_MIN: usize = 32;
/// Bits of an RSA key's modulus.
pub(crate) const RSA_BITS_MIN: usize = 2_048;

/// Why a key source cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A short secret can be guessed (RFC 7518, 3.2).
    #[error("the secret is shorter than {min} bytes and can be guessed; create one with: openssl rand -hex 32", min = SECRET_BYTES_MIN)]
    ShortSecret,
    /// The private key of a short key can be computed (RFC 7518, 3.3).
    #[error("{path} contains an RSA key of {bits} bits; RS256 needs at least {min}", min = RSA_BITS_MIN)]
    ShortRsaKey {
        /// The path from the configuration.
        path: PathBuf,
        /// The length of the modulus.
        bits: usize,
    },
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

/// Reads a key file as it is.
pub(crate) fn read_key_file(path: &Path) -> Result<Vec<u8>, KeyError> {
    std::fs::read(path).map_err(|source| KeyError::File { path: path.to_owned(), source })
}

/// The RSA or P-256 public key in the PEM file at `path`. An RSA key that is too short is refused.
pub(crate) fn from_pem(path: &Path, pem: &[u8]) -> Result<SigningKey, KeyError> {
    let no_key = || KeyError::NoPublicKey(path.to_owned());
    let Ok(decoding) = DecodingKey::from_rsa_pem(pem) else {
        let decoding = DecodingKey::from_ec_pem(pem).map_err(|_| no_key())?;
        // The library reads keys of every curve, and reports one of another curve only when it verifies a signature: here an empty one.
        verify("", &[], &decoding, Algorithm::ES256).map_err(|_| no_key())?;
        return Ok(SigningKey { decoding, algorithm: Algorithm::ES256 });
    };
    match modulus_bits(&decoding) {
        Some(RSA_BITS_MIN..) => Ok(SigningKey { decoding, algorithm: Algorithm::RS256 }),
        Some(bits) => Err(KeyError::ShortRsaKey { path: path.to_owned(), bits }),
        None => Err(no_key()),
    }
}
