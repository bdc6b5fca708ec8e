//! The outbox depth of the last 15 minutes, sampled in memory for the chart.
use std::collections::VecDeque;
use std::time::Duration;

use app::port_types::RowCounts;
use domain::Timestamp;
use parking_lot::Mutex;

/// Time between two samples.
pub(crate) const PERIOD: Duration = Duration::from_secs(2);
/// Samples of 15 minutes; older ones are dropped.
pub(super) const SAMPLES_MAX: usize = 450;
/// The time range of the chart.
pub(crate) const TIME_RANGE: Duration = Duration::from_secs(PERIOD.as_secs() * SAMPLES_MAX as u64);

/// The statuses of unsent rows, in the order of [`DepthSample::rows`].
pub(crate) const UNSENT_STATUSES: [&str; 4] = ["PENDING", "IN_FLIGHT", "FAILED", "PARKED"];

/// The number of unsent rows by [`UNSENT_STATUSES`].
pub(crate) fn unsent_rows(depth: &RowCounts) -> [u64; 4] {
    [depth.pending, depth.in_flight, depth.failed, depth.parked]
}

/// Samples, the oldest first.
#[derive(Default)]
pub(crate) struct DepthHistory(Mutex<VecDeque<DepthSample>>);

/// The outbox depth at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DepthSample {
    pub(crate) at: Timestamp,
    /// The number of rows by [`UNSENT_STATUSES`].
    pub(crate) rows: [u64; 4],
    /// Restarts of all actors since the process started.
    pub(crate) restarts: u64,
}

impl DepthSample {
    pub(crate) fn new(depth: &RowCounts, restarts: u64, at: Timestamp) -> Self {
        Self { at, rows: unsent_rows(depth), restarts }
    }
}

impl DepthHistory {
    pub(crate) fn add(&self, sample: DepthSample) {
        let mut samples = self.0.lock();
        if samples.len() >= SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// The samples of the last [`TIME_RANGE`].
    pub(crate) fn recent(&self, now: Timestamp) -> Vec<DepthSample> {
        self.0.lock().iter().filter(|sample| now.since(sample.at) <= TIME_RANGE).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_drops_the_oldest_sample_and_hides_expired_ones() {
        let history = DepthHistory::default();
        let at = |second: i64| Timestamp::from_millis(second * 1_000);
        for second in 0..1_000 {
            history.add(DepthSample { at: at(second), rows: [0; 4], restarts: 0 });
        }

        let all = history.recent(at(1_000));
        assert_eq!((all.len(), all[0].at), (SAMPLES_MAX, at(550)));
        assert_eq!(history.recent(at(1_800))[0].at, at(900));
        assert!(history.recent(at(2_000)).is_empty());
    }
}
