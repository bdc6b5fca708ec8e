//! Where a claim's scan begins: as in the PostgreSQL adapter, above the rows that earlier scans of the instance have passed, but below the
//! rows that transactions that have ended since may have committed.
use std::collections::BTreeMap;

use parking_lot::Mutex;
use ports::outbox::RowId;
use ports::partitions::{Counter, Epoch, LeaseFence, PartitionNo};

/// The number of a transaction that writes rows.
pub type TransactionNo = u64;

/// The ids and the running transactions in a statement's snapshot.
#[derive(Clone, Debug, Default)]
pub struct IdSnapshot {
    /// How often the server has started before.
    pub restarts: u32,
    /// The highest id drawn so far.
    pub last_id: RowId,
    /// The running transactions, each with its lowest id.
    pub running: BTreeMap<TransactionNo, RowId>,
}

/// The start in one partition, valid at one counter.
#[derive(Clone, Debug)]
pub struct ScanStart {
    epoch: Epoch,
    counter: Counter,
    passed: RowId,
    base: IdSnapshot,
}

impl ScanStart {
    /// The start after a scan: `last` is the highest id taken, `None` if all ready rows were taken.
    pub fn after_scan(epoch: Epoch, counter: Counter, last: Option<RowId>, base: IdSnapshot) -> Self {
        Self { epoch, counter, passed: last.unwrap_or(RowId::MAX), base }
    }

    /// The id above which a scan begins that sees `now`.
    pub fn id(&self, now: &IdSnapshot) -> RowId {
        let ended = self.base.running.iter().filter(|(number, _)| !now.running.contains_key(number));
        let below_ended = ended.map(|(_, first)| first - 1).min().unwrap_or(RowId::MAX);
        self.id_without_late_commits(now).min(below_ended)
    }

    /// As [`ScanStart::id`], if no transaction could commit rows below those that were seen.
    pub fn id_without_late_commits(&self, now: &IdSnapshot) -> RowId {
        if self.base.restarts == now.restarts { self.passed.min(self.base.last_id) } else { 0 }
    }

    /// The start after a settlement that unblocked no key and raised the counter to this value; `None` if another statement came between.
    pub fn after_settlement(self, counter: Counter) -> Option<Self> {
        (self.counter + 1 == counter).then_some(Self { counter, ..self })
    }

    fn is_valid_for(&self, fence: &LeaseFence) -> bool {
        (self.epoch, self.counter) == (fence.epoch, fence.counter)
    }
}

/// The scan starts that an instance remembers, by partition.
#[derive(Default)]
pub struct ScanStarts(Mutex<BTreeMap<PartitionNo, ScanStart>>);

impl ScanStarts {
    /// Removes the start of a partition and returns it if it is valid for this fence. Called before each statement.
    pub fn take(&self, fence: &LeaseFence) -> Option<ScanStart> {
        self.0.lock().remove(&fence.partition).filter(|start| start.is_valid_for(fence))
    }

    /// Remembers the start of a partition.
    pub fn put(&self, partition: PartitionNo, start: ScanStart) {
        self.0.lock().insert(partition, start);
    }

    /// Keeps a start valid after a settlement that unblocked no key and raised the counter to this value.
    pub fn keep(&self, partition: PartitionNo, start: Option<ScanStart>, counter: Counter) {
        if let Some(start) = start.and_then(|start| start.after_settlement(counter)) {
            self.put(partition, start);
        }
    }
}
