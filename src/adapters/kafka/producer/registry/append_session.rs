//! The session that appends (retry topics, dead letters), and its slots. It uses them in turn: the broker refuses a transactional id until it has
//! completed the abort of its last transaction, which it cannot while a partition accepts no transaction marker.
use std::time::Instant;

use ports::Error;
use ports::partitions::ProducerSessionId;

use crate::connection::shared_failure::SharedFailure;

/// The slots of the session that appends. It writes no watermarks, so its transactional ids are not registered.
pub(crate) const APPEND_SLOTS: [&str; 3] = ["append", "append2", "append3"];

/// The last session that appended, and the slot of the next one.
#[derive(Default)]
pub(crate) struct AppendSession {
    session: Option<ProducerSessionId>,
    slot: usize,
    failure: SharedFailure,
}

impl AppendSession {
    /// The last session. It may have ended.
    pub(crate) fn session(&self) -> Option<&ProducerSessionId> {
        self.session.as_ref()
    }

    /// # Errors
    /// The failure to open a session after this moment.
    pub(crate) fn failure_since(&self, requested: Instant) -> Result<(), Error> {
        self.failure.since(requested)
    }

    pub(crate) fn slot(&self) -> &'static str {
        APPEND_SLOTS[self.slot]
    }

    pub(crate) fn use_next_slot(&mut self) {
        self.slot = (self.slot + 1) % APPEND_SLOTS.len();
    }

    /// Removes the last session: it has ended.
    pub(crate) fn take_session(&mut self) -> Option<ProducerSessionId> {
        self.session.take()
    }

    pub(crate) fn record_opening(&mut self, result: &Result<ProducerSessionId, Error>) {
        match result {
            Ok(session) => self.session = Some(session.clone()),
            Err(error) => self.failure.record(error),
        }
    }
}
