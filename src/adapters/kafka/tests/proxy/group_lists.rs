//! Requests for the groups of a broker, which the proxy can refuse.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Proxy;

/// Whether requests for groups are refused, and how many were.
#[derive(Default)]
pub struct GroupLists {
    are_refused: AtomicBool,
    refused: AtomicU64,
}

impl GroupLists {
    /// Whether the next request is refused.
    pub fn refuse(&self) -> bool {
        let is_refused = self.are_refused.load(Ordering::SeqCst);
        self.refused.fetch_add(u64::from(is_refused), Ordering::SeqCst);
        is_refused
    }
}

impl Proxy {
    /// From now on, cuts each connection at a request for groups.
    pub fn refuse_group_lists(&self) {
        self.state.group_lists.are_refused.store(true, Ordering::SeqCst);
    }

    /// How many requests for groups were refused.
    pub fn refused_group_lists(&self) -> u64 {
        self.state.group_lists.refused.load(Ordering::SeqCst)
    }
}
