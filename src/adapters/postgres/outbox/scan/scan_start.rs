//! Where a scan for ready rows begins. Rows at and below that id were sent, or wait in `outbox_waiting`. Without it a claim would walk
//! over all dead rows that a long transaction keeps, a little further each time.
//!
//! Ids are drawn before their transactions commit, so a row may appear below one that was claimed already. A row that the last scan did not
//! see, and this one sees, belongs to a transaction that has ended since: it was among the running ones of the last scan's snapshot, or
//! its xid is at least that snapshot's xmax. (xmax is one past the last transaction that had *ended*; younger ones may be
//! running.) Such a transaction has drawn only ids above [`IdSamples::id_below`] its xid. A transaction that is still running adds no
//! row to this scan, however long it runs, so it does not lower the start. The claim's own snapshot, within its statement, determines which of
//! them have ended.
//!
//! Example: the samples are (80, 5) and (100, 10), and the last scan took all ready rows. Its snapshot had xmax 110 and the running transactions
//! 90 and 105.
//!
//! - Transaction 110 and younger ones draw ids above `id_below(110)` = 10: the next scan starts at 10.
//! - If 105 has ended by then, its rows have ids above `id_below(105)` = 10: the scan still starts at 10.
//! - If 90 has ended by then, its rows have ids above `id_below(90)` = 5: the scan starts at 5. While 90 runs, the scan starts at 10.
use std::collections::HashMap;
use std::sync::Arc;

use outbox::{Counter, Epoch, LeaseFence};
use parking_lot::Mutex;

use crate::outbox::scan::id_samples::{IdSamples, SourcedId};
use crate::outbox::scan::scan_snapshot::{BaseSnapshot, ScanBounds, ScanSnapshot};

/// The scan's start in one partition, valid while no other statement has changed the partition's rows.
#[derive(Clone, Debug)]
pub(crate) struct ScanStart {
    epoch: Epoch,
    /// The counter after this process's latest statement. The statement of another process raises it and so invalidates this value.
    counter: Counter,
    /// Of the rows that the last scan saw, those at and below this id are not ready.
    scanned_to: i64,
    /// Whether the last scan took heads: once they are sent, rows at and below `scanned_to` may be ready.
    took_heads: bool,
    /// The snapshot of the last scan.
    base: Arc<BaseSnapshot>,
}

impl ScanStart {
    /// Whether the start is valid for a statement with this fence.
    pub(crate) fn is_valid_for(&self, fence: &LeaseFence) -> bool {
        (self.epoch, self.counter) == (fence.epoch, fence.counter)
    }

    /// Whether the start of the scan that took a batch is valid for a claim that follows its settlement in one transaction.
    pub(crate) fn is_valid_after_settlement(&self, claim: &LeaseFence) -> bool {
        !self.took_heads && (self.epoch, self.counter + 1) == (claim.epoch, claim.counter)
    }

    /// Keeps the start valid after a statement of this process that raised the counter and made no row ready.
    pub(crate) fn set_counter(&mut self, counter: Counter) {
        self.counter = counter;
    }

    /// Keeps the start valid after a trial, which raised the counter and took a head: once that is sent, rows below the start may be ready.
    pub(crate) fn record_taken_head(&mut self, counter: Counter) {
        (self.counter, self.took_heads) = (counter, true);
    }
}

/// One scan for ready rows.
pub(crate) struct ScanResult {
    /// The lease under which it ran, with the counter after it.
    pub(crate) epoch: Epoch,
    pub(crate) counter: Counter,
    /// The id above which it began.
    pub(crate) start: i64,
    /// The highest ready id that was taken.
    pub(crate) last: Option<i64>,
    /// Whether all ready rows were taken.
    pub(crate) complete: bool,
    /// Whether heads were taken.
    pub(crate) took_heads: bool,
}

/// The starts of all partitions, as this process knows them.
#[derive(Default)]
pub(crate) struct ScanStartCache(Mutex<ScanState>);

/// The scan starts for one source of ids.
#[derive(Default)]
struct ScanState {
    source: i64,
    /// The highest last value of the sequence that a statement read: no sample has a higher id. If a later statement reads a lower value, the
    /// sequence was set back by a restore, and later transactions draw ids below those of the samples.
    sequence_value: i64,
    /// The highest id of a claimed row.
    highest: Option<i64>,
    samples: IdSamples,
    starts: HashMap<u32, ScanStart>,
}

impl ScanStartCache {
    /// Removes a partition's start. Called before each statement: after a failure the start is unknown.
    pub(crate) fn take(&self, partition: u32) -> Option<ScanStart> {
        self.0.lock().starts.remove(&partition)
    }

    /// Stores a partition's start.
    pub(crate) fn put(&self, partition: u32, start: ScanStart) {
        self.0.lock().starts.insert(partition, start);
    }

    /// The parameters for scans from these starts, in their order; a scan without a start begins at the first row.
    pub(crate) fn bounds(&self, starts: &[Option<ScanStart>]) -> ScanBounds {
        let state = self.0.lock();
        let mut bounds =
            ScanBounds { source: state.source, sequence_value: state.sequence_value, ..ScanBounds::default() };
        let mut numbers: HashMap<*const BaseSnapshot, i32> = HashMap::new();
        for start in starts {
            let Some(start) = start.as_ref().filter(|start| start.base.source == state.source) else {
                bounds.starts.push(0);
                bounds.bases.push(0);
                continue;
            };
            let next = numbers.len() as i32 + 1;
            let number = *numbers.entry(Arc::as_ptr(&start.base)).or_insert(next);
            if number == next {
                for xid in &start.base.running {
                    bounds.base_numbers.push(number);
                    bounds.running.push(*xid);
                    bounds.ids_below.push(state.samples.id_below(*xid));
                }
            }
            bounds.starts.push(start.scanned_to.min(state.samples.id_below(start.base.xmax)));
            bounds.bases.push(number);
        }
        bounds
    }

    /// The highest id of a row that this process has claimed.
    pub(crate) fn highest(&self) -> Option<SourcedId> {
        let state = self.0.lock();
        state.highest.map(|id| SourcedId { source: state.source, id })
    }

    /// Records the snapshot of a scan.
    pub(crate) fn record_snapshot(&self, snapshot: &ScanSnapshot) {
        let mut state = self.0.lock();
        if state.source != snapshot.base.source || snapshot.was_rewound {
            *state = ScanState { source: snapshot.base.source, ..ScanState::default() };
        }
        state.sequence_value = state.sequence_value.max(snapshot.sequence_value.unwrap_or_default());
        state.highest = state.highest.max(snapshot.highest);
        if let Some(sample) = snapshot.sample {
            state.samples.add(sample);
        }
    }

    /// Stores where the next scan of a partition begins.
    pub(crate) fn record_scan(&self, partition: u32, snapshot: &ScanSnapshot, scan: &ScanResult) {
        let scanned_to = if scan.complete { i64::MAX } else { scan.last.unwrap_or(scan.start) };
        let (base, took_heads) = (Arc::clone(&snapshot.base), scan.took_heads);
        let start = ScanStart { epoch: scan.epoch, counter: scan.counter, scanned_to, took_heads, base };
        self.0.lock().starts.insert(partition, start);
    }
}

#[cfg(test)]
mod tests {
    use outbox::{InstanceId, PartitionNo};

    use super::*;
    use crate::outbox::scan::id_samples::{IdSample, IdSource};
    use crate::outbox::scan::scan_snapshot::{SampleId, SnapshotRow};

    const COMPLETE: ScanResult =
        ScanResult { epoch: 1, counter: 5, start: 0, last: None, complete: true, took_heads: false };

    /// A snapshot that showed an id and was taken before the number of its transaction.
    fn snapshot(text: &str, sample: Option<(i64, i64)>) -> ScanSnapshot {
        let (highest, xid) = sample.unzip();
        let row = SnapshotRow { source: IdSource { source: 1, sequence_value: highest }, text, highest, xid };
        ScanSnapshot::parse(row, &ScanBounds::default(), SampleId::FromSnapshot).unwrap()
    }

    fn bounds_after(cache: &ScanStartCache, snapshot: &ScanSnapshot, scan: &ScanResult) -> ScanBounds {
        cache.record_snapshot(snapshot);
        cache.record_scan(0, snapshot, scan);
        cache.bounds(&[cache.take(0)])
    }

    #[test]
    fn start_lies_below_the_ids_that_later_transactions_may_draw() {
        let cache = ScanStartCache::default();
        let bounds = bounds_after(&cache, &snapshot("100:100:", Some((10, 100))), &COMPLETE);
        assert_eq!(bounds.starts, [0], "the sample's own transaction is not below the snapshot's xmax");
        let bounds = bounds_after(&cache, &snapshot("101:101:", None), &COMPLETE);
        assert_eq!(bounds.starts, [10], "every later transaction draws a larger id");
    }

    #[test]
    fn running_transactions_do_not_lower_the_start_but_have_bounds() {
        let cache = ScanStartCache::default();
        cache.record_snapshot(&snapshot("80:80:", Some((5, 80))));
        let bounds = bounds_after(&cache, &snapshot("90:110:90,105", Some((10, 100))), &COMPLETE);
        assert_eq!((bounds.starts, bounds.running, bounds.ids_below), (vec![10], vec![90, 105], vec![5, 10]));
    }

    #[test]
    fn next_scan_begins_after_the_rows_that_an_incomplete_scan_took() {
        let cache = ScanStartCache::default();
        cache.record_snapshot(&snapshot("100:100:", Some((50, 100))));
        let scan = |start, last| ScanResult { start, last, complete: false, ..COMPLETE };
        assert_eq!(bounds_after(&cache, &snapshot("120:120:", None), &scan(3, Some(7))).starts, [7]);
        assert_eq!(bounds_after(&cache, &snapshot("120:120:", None), &scan(3, None)).starts, [3]);
        assert_eq!(bounds_after(&cache, &snapshot("120:120:", None), &scan(3, Some(60))).starts, [50]);
    }

    #[test]
    fn partitions_that_were_scanned_together_share_their_bounds() {
        let cache = ScanStartCache::default();
        let (first, second) = (snapshot("90:110:90", Some((10, 100))), snapshot("90:120:90,112", None));
        cache.record_snapshot(&first);
        for (partition, snapshot) in [(0, &first), (1, &first), (2, &second)] {
            cache.record_scan(partition, snapshot, &COMPLETE);
        }
        let bounds = cache.bounds(&[cache.take(0), None, cache.take(1), cache.take(2)]);
        assert_eq!((bounds.starts, bounds.bases), (vec![10, 0, 10, 10], vec![1, 0, 1, 2]));
        assert_eq!((bounds.base_numbers, bounds.running), (vec![1, 2, 2], vec![90, 90, 112]));
    }

    #[test]
    fn xid_that_a_settlement_assigned_is_paired_with_an_id_from_before_it() {
        let cache = ScanStartCache::default();
        cache.record_snapshot(&snapshot("100:100:", Some((10, 100))));
        let before = SampleId::BeforeTransaction(cache.highest());

        let source = IdSource { source: 1, sequence_value: Some(30) };
        let row = SnapshotRow { source, text: "100:120:", highest: Some(30), xid: Some(115) };
        let after = ScanSnapshot::parse(row, &cache.bounds(&[]), before).unwrap();

        assert_eq!(
            after.sample,
            Some(IdSample { xid: 115, id: 10 }),
            "id 30 may have been drawn by a transaction above 115"
        );
        cache.record_snapshot(&after);
        assert_eq!(cache.highest(), Some(SourcedId { source: 1, id: 30 }));
    }

    #[test]
    fn start_is_valid_after_a_settlement_that_sent_no_head() {
        let cache = ScanStartCache::default();
        let claim =
            |epoch, counter| LeaseFence { partition: PartitionNo(0), owner: InstanceId("a".into()), epoch, counter };
        let valid = |took_heads, fence| {
            let scanned = snapshot("100:110:", Some((10, 100)));
            cache.record_scan(0, &scanned, &ScanResult { took_heads, ..COMPLETE });
            cache.take(0).unwrap().is_valid_after_settlement(&fence)
        };
        assert!(valid(false, claim(1, 6)));
        assert!(!valid(true, claim(1, 6)), "rows behind a head that was sent are ready now");
        assert!(!valid(false, claim(1, 7)), "another statement may have made rows ready");
        assert!(!valid(false, claim(2, 6)));
    }

    #[test]
    fn another_source_invalidates_everything() {
        let cache = ScanStartCache::default();
        let first = snapshot("100:110:", Some((10, 100)));
        assert_eq!(bounds_after(&cache, &first, &COMPLETE).starts, [10]);
        cache.record_scan(1, &first, &COMPLETE);
        let late = cache.take(1);
        let other = |xid| {
            let source = IdSource { source: 2, sequence_value: Some(10) };
            let row = SnapshotRow { source, text: "100:110:", highest: Some(10), xid };
            let sample = SampleId::BeforeTransaction(cache.highest());
            ScanSnapshot::parse(row, &cache.bounds(&[]), sample).unwrap()
        };
        let restarted = other(Some(105));
        assert_eq!(restarted.sample, None, "the other source's ids say nothing");
        assert_eq!(bounds_after(&cache, &restarted, &COMPLETE).starts, [0], "its samples are unknown");
        assert_eq!(bounds_after(&cache, &other(Some(108)), &COMPLETE).starts, [10], "its own ids do");
        assert_eq!(cache.bounds(&[late]).starts, [0], "the start belongs to the other source");
    }

    #[test]
    fn sequence_that_went_back_invalidates_samples_and_starts() {
        let cache = ScanStartCache::default();
        let claim = |value, highest, xid, sample| {
            let source = IdSource { source: 1, sequence_value: Some(value) };
            let row = SnapshotRow { source, text: "200:200:", highest: Some(highest), xid: Some(xid) };
            ScanSnapshot::parse(row, &cache.bounds(&[]), sample).unwrap()
        };
        assert_eq!(bounds_after(&cache, &claim(100, 100, 150, SampleId::FromSnapshot), &COMPLETE).starts, [100]);
        cache.record_scan(1, &claim(100, 100, 150, SampleId::FromSnapshot), &COMPLETE);
        let late = cache.take(1);

        let rewound = claim(20, 15, 160, SampleId::BeforeTransaction(cache.highest()));

        assert_eq!(rewound.sample, None, "id 100 was drawn before the sequence went back");
        assert_eq!(bounds_after(&cache, &rewound, &COMPLETE).starts, [0]);
        assert_eq!(cache.bounds(&[late]).starts, [0]);
        assert_eq!(bounds_after(&cache, &claim(21, 15, 170, SampleId::FromSnapshot), &COMPLETE).starts, [15]);
    }

    #[test]
    fn id_that_a_writer_chose_above_the_sequence_raises_no_start() {
        let cache = ScanStartCache::default();
        let source = IdSource { source: 1, sequence_value: Some(20) };
        let row = SnapshotRow { source, text: "101:101:", highest: Some(1_000), xid: Some(100) };

        let chosen = ScanSnapshot::parse(row, &cache.bounds(&[]), SampleId::FromSnapshot);

        assert_eq!(bounds_after(&cache, &chosen.unwrap(), &COMPLETE).starts, [20]);
    }
}
