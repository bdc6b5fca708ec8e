//! Tokens whose signature was checked a moment ago. Their times are checked each time; only the arithmetic of the key is saved,
//! which with RS256 and ES256 costs more than all the rest of a request.
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use sha2::{Digest, Sha256};

use super::Identity;

/// Most tokens remembered; beyond it the memory starts anew. A token comes back in its next request.
const REMEMBERED_MAX: usize = 10_000;

/// A token's hash: the token itself is not kept.
pub(super) type Name = [u8; 32];

pub(super) fn name(token: &str) -> Name {
    Sha256::digest(token.as_bytes()).into()
}

#[derive(Default)]
pub(super) struct Remembered(RwLock<HashMap<Name, (u64, Arc<Identity>)>>);

impl Remembered {
    /// The caller of this token, if it was checked against the keys of this generation.
    pub(super) fn get(&self, name: &Name, generation: u64) -> Option<Arc<Identity>> {
        let remembered = self.0.read();
        let (checked_with, identity) = remembered.get(name)?;
        (*checked_with == generation).then(|| Arc::clone(identity))
    }

    pub(super) fn put(&self, name: Name, generation: u64, identity: Arc<Identity>) {
        let mut remembered = self.0.write();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(name, (generation, identity));
    }
}
