//! The failures of each sweep: counted, and logged at WARN once a sweep has failed several times in a row.
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ports::Error;
use telemetry::Metrics;

/// Failures in a row before the warning: a lock that a reader holds, or an outage of the store, which has a warning of its own, often ends before.
/// A minute at the default interval.
const FAILURES_UNTIL_WARNING: u32 = 6;

/// The change that a result makes to the state of its sweep.
#[derive(Debug, PartialEq, Eq)]
enum SweepChange {
    /// It has failed for long enough to warn.
    BeganToFail,
    /// It succeeds after a warning.
    Recovered,
    /// No change that an operator must know.
    None,
}

/// Counts the failures in a row of each sweep. Shared by the pages, which run one at a time.
pub(super) struct SweepFailures {
    metrics: Arc<Metrics>,
    consecutive_failures: Mutex<BTreeMap<&'static str, u32>>,
}

impl SweepFailures {
    /// No sweep of these has failed yet. Each has its series at once: Prometheus does not count the first value of a series as an increase.
    pub(super) fn new(metrics: Arc<Metrics>, sweeps: &[&'static str]) -> Self {
        for sweep in sweeps {
            metrics.sweep_failures_total.with([sweep]);
        }
        Self { metrics, consecutive_failures: Mutex::default() }
    }

    /// Counts and logs the result of a page.
    pub(super) fn record<T>(&self, sweep: &'static str, result: &Result<T, Error>) {
        let change = change(self.consecutive_failures.lock().entry(sweep).or_default(), result.is_err());
        if let Err(error) = result {
            self.metrics.sweep_failures_total.with([sweep]).inc();
            tracing::debug!(event = "sweep_failed", what = sweep, error = %error, "a sweep failed and will be repeated");
            if change == SweepChange::BeganToFail {
                tracing::warn!(
                    event = "sweep_failing",
                    what = sweep,
                    failures = FAILURES_UNTIL_WARNING,
                    error = %error,
                    "the sweep of {sweep} failed {FAILURES_UNTIL_WARNING} times in a row and is repeated: expired data accumulates: {error}"
                );
            }
        } else if change == SweepChange::Recovered {
            tracing::info!(event = "sweep_recovered", what = sweep, "the sweep of {sweep} succeeds again");
        }
    }
}

/// Counts one result, and returns what it changes.
fn change(consecutive_failures: &mut u32, failed: bool) -> SweepChange {
    let before = *consecutive_failures;
    *consecutive_failures = if failed { before.saturating_add(1) } else { 0 };
    match (before, failed) {
        (before, true) if before.saturating_add(1) == FAILURES_UNTIL_WARNING => SweepChange::BeganToFail,
        (FAILURES_UNTIL_WARNING.., false) => SweepChange::Recovered,
        (_, _) => SweepChange::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_failures_is_reported_once_and_its_end_once() {
        let (mut consecutive_failures, long) = (0, FAILURES_UNTIL_WARNING as usize);
        let mut changes = |failed: bool, times: usize| -> Vec<SweepChange> {
            let all = (0..times).map(|_| change(&mut consecutive_failures, failed));
            all.filter(|change| *change != SweepChange::None).collect()
        };

        assert_eq!(changes(true, long - 1), []);
        assert_eq!(changes(false, 3), [], "a short run is not reported");
        assert_eq!(changes(true, 5 * long), [SweepChange::BeganToFail]);
        assert_eq!(changes(false, 3), [SweepChange::Recovered]);
        assert_eq!(changes(true, long), [SweepChange::BeganToFail]);
    }
}
