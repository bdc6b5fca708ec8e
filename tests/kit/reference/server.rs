//! Operations of the reference that are not part of a port and that a simulated server needs: transactions that draw ids before they commit,
//! scans that begin above a remembered id, and a state that is rewound.
use std::collections::BTreeMap;

use domain::EventId;
use ports::Error;
use ports::orders::{Commit, CommitOutcome};
use ports::outbox::events::{EventBatch, EventBatchOutcome};
use ports::outbox::{Claim, ClaimOutcome, RowId, RowStatus};
use ports::partitions::{PartitionNo, Token};

use crate::reference::state::{Reference, State};

/// All data of a reference at one moment.
pub struct ReferenceSnapshot(State);

impl Reference {
    /// Draws the ids of `rows` rows from the sequence and returns the first; `0` draws none and returns the next one.
    pub fn draw_row_ids(&self, rows: usize) -> RowId {
        let mut state = self.state.lock();
        let first = state.last_row + 1;
        state.last_row += rows as RowId;
        first
    }

    /// Commits a transaction that has drawn its rows' ids before, from `first_row` on.
    pub fn commit_with_ids(&self, commit: Commit, first_row: RowId) -> CommitOutcome {
        self.state.lock().commit(commit, first_row, self.now())
    }

    /// Publishes events of another service as the port does, in a transaction that has drawn its rows' ids before, from `first_row` on.
    ///
    /// # Errors
    /// [`Error::Rejected`] for a partition that does not exist.
    pub fn publish_with_ids(&self, batch: EventBatch, first_row: RowId) -> Result<EventBatchOutcome, Error> {
        self.state.lock().commit_batch(batch, first_row, self.now(), State::has_event)
    }

    /// As [`Reference::publish_with_ids`], without comparing the ids of the events: for a store with a flaw.
    ///
    /// # Errors
    /// [`Error::Rejected`] for a partition that does not exist.
    pub fn publish_repetitions_with_ids(
        &self,
        batch: EventBatch,
        first_row: RowId,
    ) -> Result<EventBatchOutcome, Error> {
        self.state.lock().commit_batch(batch, first_row, self.now(), |_, _| false)
    }

    /// Claims as the port does, by a scan that sees no PENDING row up to id `start`.
    pub fn claim_above(&self, claim: Claim, start: RowId) -> ClaimOutcome {
        self.state.lock().claim(claim, start, self.now())
    }

    /// The events of the partition's open batch, and whether one of its rows blocks its key.
    pub fn open_batch(&self, partition: PartitionNo) -> (Vec<EventId>, bool) {
        let mut state = self.state.lock();
        let Some(token) = state.lease(partition).open.as_ref().map(|open| open.token) else {
            return Default::default();
        };
        let mut has_head = false;
        let events = state.batch(partition, token).map(|row| {
            has_head |= row.blocks_key;
            row.event.event_id
        });
        (events.collect(), has_head)
    }

    /// Clears the flag of rows that block their keys: for a store with a flaw.
    pub fn unblock_keys_of(&self, rows: &[RowId]) {
        let mut state = self.state.lock();
        for row in rows {
            if let Some(row) = state.rows.get_mut(row) {
                row.blocks_key = false;
                row.status = RowStatus::Pending;
            }
        }
    }

    /// A copy of the present data.
    pub fn snapshot(&self) -> ReferenceSnapshot {
        ReferenceSnapshot(self.state.lock().clone())
    }

    /// Goes back to a snapshot, as a server that crashed before its last commits were on disk.
    pub fn restore(&self, snapshot: ReferenceSnapshot) {
        *self.state.lock() = snapshot.0;
    }

    /// Gives every lease a new epoch, so that no statement of an earlier session applies: the store noticed that its timeline has changed.
    pub fn raise_epochs(&self) {
        self.state.lock().leases.iter_mut().for_each(|lease| lease.epoch += 1);
    }

    /// Raises the counters to these watermarks. Returns how many partitions were behind.
    pub fn raise_counters(&self, watermarks: &BTreeMap<PartitionNo, Token>) -> u32 {
        let mut state = self.state.lock();
        let mut behind = 0;
        for (partition, token) in watermarks {
            let lease = state.lease(*partition);
            behind += u32::from(lease.counter < *token);
            lease.counter = lease.counter.max(*token);
        }
        behind
    }
}
