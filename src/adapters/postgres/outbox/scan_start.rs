//! Where a scan for ready rows begins. Rows at and below that id were sent, or wait in `outbox_waiting`. Without it a claim would walk
//! over all dead rows that a long transaction keeps, a little further each time.
//!
//! Ids are drawn before their transactions commit, so a row may appear below one that was claimed already. The start may pass an id only
//! when every transaction that was running when the id was read has ended, and a scan from the old start came after that. The number of
//! the claim's own transaction decides which ones those are: it is assigned after the claim's snapshot was taken, and writers have theirs
//! before they draw an id. A snapshot's xmax does not decide it: it is one past the last transaction that had *ended*, and younger
//! ones may be running.
use std::collections::VecDeque;

use outbox::{Counter, Epoch, Fence};

/// Most claims remembered per partition. Beyond 64 the youngest one is replaced, which only delays the start.
const CLAIMS_MAX: usize = 64;

/// The scan's start in one partition, valid while no other statement has changed the partition's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScanStart {
    epoch: Epoch,
    /// The counter after this process's latest statement. The statement of another process raises it and so invalidates this value.
    counter: Counter,
    id: i64,
    /// Claims that the start has not passed yet: the highest id taken, and the number of the claim's transaction.
    claims: VecDeque<(i64, i64)>,
}

/// The result of one scan for ready rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanResult {
    /// The highest ready id that was taken, and the number of the claim's transaction.
    pub(crate) last: Option<(i64, i64)>,
    /// Whether all ready rows were taken.
    pub(crate) complete: bool,
    /// The oldest transaction that was running.
    pub(crate) xmin: i64,
}

impl ScanStart {
    /// A start at the first row.
    pub(crate) fn new(fence: &Fence) -> Self {
        Self { epoch: fence.epoch, counter: fence.counter, id: 0, claims: VecDeque::new() }
    }

    /// Whether the start is valid for a statement with this fence.
    pub(crate) fn is_valid_for(&self, fence: &Fence) -> bool {
        (self.epoch, self.counter) == (fence.epoch, fence.counter)
    }

    /// The id above which a scan begins; no row at or below it is ready.
    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// Keeps the start valid after a statement of this process that raised the counter and made no row ready.
    pub(crate) fn set_counter(&mut self, counter: Counter) {
        self.counter = counter;
    }

    /// Records a scan that began above [`ScanStart::id`], and advances the start as far as it proves.
    pub(crate) fn record(&mut self, scan: ScanResult) {
        if let Some(claim) = scan.last {
            if self.claims.len() >= CLAIMS_MAX {
                self.claims.pop_back();
            }
            self.claims.push_back(claim);
        }
        // The transactions that ran during such a claim have ended, and this scan has seen their rows.
        while let Some((id, _)) = self.claims.front().copied().filter(|(_, xid)| *xid <= scan.xmin) {
            let passed = if scan.complete { id } else { scan.last.map_or(self.id, |(last, _)| id.min(last)) };
            self.id = self.id.max(passed);
            if passed < id {
                break;
            }
            self.claims.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use outbox::{InstanceId, PartitionNo};

    use super::*;

    fn fence() -> Fence {
        Fence { partition: PartitionNo(0), owner: InstanceId("a".into()), epoch: 1, counter: 5 }
    }

    fn scan(last: Option<(i64, i64)>, complete: bool, xmin: i64) -> ScanResult {
        ScanResult { last, complete, xmin }
    }

    #[test]
    fn start_passes_a_claim_at_once_when_no_transaction_was_running() {
        let mut start = ScanStart::new(&fence());
        start.record(scan(Some((10, 100)), false, 100));
        assert_eq!(start.id(), 10, "the claim is the oldest transaction: every later one draws a larger id");
    }

    #[test]
    fn start_waits_for_running_transactions_and_for_a_scan_after_them() {
        let mut start = ScanStart::new(&fence());
        start.record(scan(Some((10, 100)), true, 90));
        start.record(scan(Some((20, 110)), true, 90));
        assert_eq!(start.id(), 0, "transaction 90 may still commit a row below");
        start.record(scan(None, true, 100));
        assert_eq!(start.id(), 10);
        start.record(scan(None, true, 120));
        assert_eq!(start.id(), 20);
    }

    #[test]
    fn start_waits_for_transactions_younger_than_the_last_that_had_ended() {
        let mut start = ScanStart::new(&fence());
        start.record(scan(Some((10, 105)), true, 100));
        start.record(scan(None, true, 100));
        assert_eq!(start.id(), 0, "100 to 104 were running, and no later one had ended");
        start.record(scan(None, true, 105));
        assert_eq!(start.id(), 10);
    }

    #[test]
    fn start_does_not_pass_a_late_row_that_was_not_taken() {
        let mut start = ScanStart::new(&fence());
        start.record(scan(Some((10, 100)), true, 90));
        start.record(scan(Some((4, 130)), false, 120));
        assert_eq!(start.id(), 4, "the limit ended the scan at 4: 5 may be ready");
        start.record(scan(Some((8, 131)), false, 131));
        assert_eq!(start.id(), 8);
        start.record(scan(None, true, 140));
        assert_eq!(start.id(), 10);
    }

    #[test]
    fn remembered_claims_are_bounded_and_another_counter_invalidates_the_start() {
        let mut start = ScanStart::new(&fence());
        for id in 0..1_000 {
            start.record(scan(Some((id, 100 + id)), true, 1));
        }
        assert!(start.claims.len() <= CLAIMS_MAX && start.id() == 0);
        start.record(scan(None, true, 5_000));
        assert_eq!(start.id(), 999);
        assert!(start.is_valid_for(&fence()) && !start.is_valid_for(&Fence { counter: 6, ..fence() }));
        start.set_counter(6);
        assert!(!start.is_valid_for(&fence()));
    }
}
