//! The end of a partition as its former leader reported it: above the one that the present leader has.
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Proxy;

/// Raises one end in the responses to requests for offsets.
#[derive(Default)]
pub struct RaisedEnd {
    /// The end in the broker's responses, and the one that replaces it.
    ends: Mutex<Option<(i64, i64)>>,
    raised: AtomicU64,
}

impl RaisedEnd {
    /// Replaces the end in a response: a timestamp (8, -1 for an end) precedes the offset (8).
    pub fn change(&self, response: &mut [u8]) {
        let Some((end, raised)) = *self.ends.lock() else { return };
        let pattern = [(-1_i64).to_be_bytes(), end.to_be_bytes()].concat();
        let Some(at) = response.windows(pattern.len()).position(|window| window == pattern) else { return };
        response[at + 8..at + 16].copy_from_slice(&raised.to_be_bytes());
        self.raised.fetch_add(1, Ordering::SeqCst);
    }
}

impl Proxy {
    /// From now on, a partition that ends at `end` has this end in responses to requests for offsets.
    pub fn raise_end(&self, end: i64, raised: i64) {
        *self.state.raised_end.ends.lock() = Some((end, raised));
    }

    /// How many responses had a raised end.
    pub fn raised_ends(&self) -> u64 {
        self.state.raised_end.raised.load(Ordering::SeqCst)
    }
}
