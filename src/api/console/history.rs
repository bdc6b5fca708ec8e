//! What waited over the last quarter of an hour, in memory: enough for a chart, and gone with the process.
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use app::port_types::Depth;
use domain::Timestamp;
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use crate::state::State;

/// Between two samples.
const PERIOD: Duration = Duration::from_secs(2);
/// Most samples: a quarter of an hour.
const SAMPLES_MAX: usize = 450;
/// How far back the chart shows.
pub(super) const SPAN: Duration = Duration::from_secs(2 * SAMPLES_MAX as u64);

/// The states in which rows wait, in the order of every sample.
pub(super) const WAITING: [&str; 4] = ["PENDING", "IN_FLIGHT", "FAILED", "PARKED"];

/// How many rows wait, by [`WAITING`].
pub(super) fn waiting(depth: &Depth) -> [u64; 4] {
    [depth.pending, depth.in_flight, depth.failed, depth.parked]
}

/// Samples, the oldest first.
#[derive(Default)]
pub(crate) struct History(Mutex<VecDeque<Sample>>);

/// How much waited at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(super) at: Timestamp,
    /// Rows, by [`WAITING`].
    pub(super) rows: [u64; 4],
    /// Restarts of all actors since the process began.
    pub(super) restarts: u64,
}

impl Sample {
    pub(crate) fn of(depth: &Depth, restarts: u64, at: Timestamp) -> Self {
        Self { at, rows: waiting(depth), restarts }
    }
}

impl History {
    pub(crate) fn add(&self, sample: Sample) {
        let mut samples = self.0.lock();
        if samples.len() >= SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// What lies within the span before `now`.
    pub(super) fn until(&self, now: Timestamp) -> Vec<Sample> {
        self.0.lock().iter().filter(|sample| now.since(sample.at) <= SPAN).copied().collect()
    }
}

/// Takes a sample now and then, until it is dropped.
pub(crate) async fn observe(state: Arc<State>) {
    let mut tick = interval(PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        state.observe();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_sample_leaves_first_and_what_is_too_old_is_not_shown() {
        let history = History::default();
        let at = |second: i64| Timestamp::from_millis(second * 1_000);
        for second in 0..1_000 {
            history.add(Sample { at: at(second), rows: [0; 4], restarts: 0 });
        }

        let all = history.until(at(1_000));
        assert_eq!((all.len(), all[0].at), (SAMPLES_MAX, at(550)));
        assert_eq!(history.until(at(1_800))[0].at, at(900));
        assert!(history.until(at(2_000)).is_empty());
    }
}
