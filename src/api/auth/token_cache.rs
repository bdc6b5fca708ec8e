//! Tokens whose signature was verified recently. Only the signature check is saved, which with RS256 and ES256 costs more than the
//! rest of a request; the validity period is checked on every use.
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use sha2::{Digest, Sha256};

use crate::auth::identity::Identity;

/// At this size the cache is cleared; active tokens return with their next request.
const TOKENS_MAX: usize = 10_000;

/// The SHA-256 hash of a token; the token itself is not kept.
pub(crate) type TokenHash = [u8; 32];

pub(crate) fn token_hash(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

#[derive(Default)]
pub(crate) struct TokenCache(RwLock<HashMap<TokenHash, (u64, Arc<Identity>)>>);

impl TokenCache {
    /// The caller of this token, if its signature was verified with this generation of the keys.
    pub(crate) fn get(&self, hash: &TokenHash, generation: u64) -> Option<Arc<Identity>> {
        let tokens = self.0.read();
        let (verified_with, identity) = tokens.get(hash)?;
        (*verified_with == generation).then(|| Arc::clone(identity))
    }

    pub(crate) fn put(&self, hash: TokenHash, generation: u64, identity: Arc<Identity>) {
        let mut tokens = self.0.write();
        if tokens.len() >= TOKENS_MAX {
            tokens.clear();
        }
        tokens.insert(hash, (generation, identity));
    }
}
