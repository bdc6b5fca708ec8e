//! Refusals: the records that the brokers do not accept, for a time.
use std::collections::BTreeSet;
use std::sync::Arc;

use kit::clock::SeededRng;
use parking_lot::Mutex;
use ports::Error;
use ports::broker::Record;
use ports::clock::Rng;

use crate::support::record_faults::header;

/// Limit of a record's value, in bytes. No event of a run reaches it.
pub const RECORD_BYTES_MAX: usize = 64 * 1024;

/// Which records are refused. Clones share it.
#[derive(Clone)]
pub struct Refusals(Arc<Shared>);

struct Shared {
    rng: SeededRng,
    state: Mutex<RefusalState>,
}

#[derive(Default)]
struct RefusalState {
    /// Probability that a record is refused with a transient error.
    transient: f64,
    /// Probability that a record is too large.
    too_large: f64,
    /// The records that were found to be too large, by event id: they are refused each time.
    large: BTreeSet<String>,
    parked_with_cause: BTreeSet<String>,
}

impl Refusals {
    /// Every record is accepted.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Shared { rng: SeededRng::new(seed), state: Mutex::default() }))
    }

    /// Refuses records with these probabilities from now on.
    pub fn set(&self, transient: f64, too_large: f64) {
        let mut state = self.0.state.lock();
        (state.transient, state.too_large) = (transient, too_large);
    }

    /// Accepts every record from now on.
    pub fn clear(&self) {
        self.set(0.0, 0.0);
        self.0.state.lock().large.clear();
    }

    /// Why the brokers refuse this record; `None` if they accept it.
    pub fn error_for(&self, record: &Record) -> Option<Error> {
        if record.value.len() > RECORD_BYTES_MAX {
            return Some(Error::Rejected("the record is too large".into()));
        }
        let mut state = self.0.state.lock();
        if state.transient + state.too_large == 0.0 && state.large.is_empty() {
            return None;
        }
        let (event, chance) = (header(record, "ce_id"), self.0.rng.fraction());
        if state.large.contains(&event) || chance < state.too_large {
            state.parked_with_cause.insert(event.clone());
            state.large.insert(event);
            return Some(Error::Rejected("the record is too large".into()));
        }
        (chance < state.too_large + state.transient)
            .then(|| Error::Unreachable("the broker does not accept the record now".into()))
    }

    /// Whether the brokers ever refused this event for good, so that its row may be parked.
    pub fn justifies_parking(&self, event: &str) -> bool {
        self.0.state.lock().parked_with_cause.contains(event)
    }
}
