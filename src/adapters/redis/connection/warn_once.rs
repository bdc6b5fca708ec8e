//! Remembers which causes were already logged, so that a repeated cause is logged once.
use std::collections::BTreeSet;

use parking_lot::Mutex;

/// Most causes that are remembered, and so most warnings; later causes are not logged.
const CAUSES_MAX: usize = 64;

/// The causes that were already logged.
#[derive(Default)]
pub(crate) struct WarnOnce(Mutex<BTreeSet<String>>);

impl WarnOnce {
    /// Whether this cause is new and must be logged now.
    pub(crate) fn is_first(&self, cause: &str) -> bool {
        let mut logged = self.0.lock();
        logged.len() < CAUSES_MAX && logged.insert(cause.to_owned())
    }
}
