//! The throughput of the last 15 minutes, sampled in memory: rates of created, sent and consumed events, and the latency of the relay.
use std::collections::VecDeque;
use std::time::Duration;

use domain::Timestamp;
use parking_lot::Mutex;
use telemetry::Metrics;

use crate::console::charts::depth_history::{SAMPLES_MAX, TIME_RANGE};
use crate::console::charts::histogram::{Buckets, increase, percentile};

/// The window of the present rate: short enough to follow, long enough not to flicker.
pub(super) const RATE_WINDOW: Duration = Duration::from_secs(10);
/// The window of the latency's percentiles.
const LATENCY_WINDOW: Duration = Duration::from_secs(300);
/// Points of a sparkline.
const POINTS: usize = 60;

/// The counters at one moment, since the process started.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThroughputSample {
    pub(crate) at: Timestamp,
    /// Events since the process started, indexed by [`EventStage`].
    pub(crate) totals: [u64; 3],
    /// The time from commit to acknowledgement in seconds.
    pub(crate) latency: Buckets,
}

/// A stage of an event's path, as an index of [`ThroughputSample::totals`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventStage {
    /// Rows written to the outbox with their order.
    Created,
    /// Rows that the broker acknowledged.
    Sent,
    /// Records that the consumers processed.
    Consumed,
}

/// Samples, the oldest first.
#[derive(Default)]
pub(crate) struct ThroughputHistory(Mutex<VecDeque<ThroughputSample>>);

/// The samples of the last 15 minutes as rates and percentiles.
pub(crate) struct Throughput(Vec<ThroughputSample>);

impl ThroughputSample {
    pub(crate) fn new(metrics: &Metrics, at: Timestamp) -> Self {
        let totals = [
            metrics.outbox_entries_written.get(),
            metrics.outbox_publish_rate.get(),
            metrics.kafka_consumer_processed_count.get(),
        ];
        Self { at, totals, latency: metrics.outbox_commit_to_ack_seconds.cumulative() }
    }
}

impl ThroughputHistory {
    pub(crate) fn add(&self, sample: ThroughputSample) {
        let mut samples = self.0.lock();
        if samples.len() >= SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    pub(crate) fn recent(&self, now: Timestamp) -> Throughput {
        Throughput(self.0.lock().iter().filter(|sample| now.since(sample.at) <= TIME_RANGE).cloned().collect())
    }
}

impl Throughput {
    /// Events per second over the last ten seconds; none before there are two samples.
    pub(crate) fn rate(&self, stage: EventStage) -> Option<f64> {
        let last = self.0.last()?;
        let first = self.0.iter().find(|sample| last.at.since(sample.at) <= RATE_WINDOW)?;
        per_second(first, last, stage)
    }

    /// Events per second over the whole time, as the points of a sparkline.
    pub(crate) fn rates(&self, stage: EventStage) -> Vec<f64> {
        let step = self.0.len().div_ceil(POINTS).max(1);
        let kept: Vec<&ThroughputSample> = self.0.iter().step_by(step).collect();
        kept.windows(2).filter_map(|pair| per_second(pair[0], pair[1], stage)).collect()
    }

    /// The time from commit to acknowledgement that this share of the last minutes' events stayed below; none without events.
    pub(crate) fn latency(&self, share: f64) -> Option<Duration> {
        let last = self.0.last()?;
        let first = self.0.iter().find(|sample| last.at.since(sample.at) <= LATENCY_WINDOW)?;
        percentile(&increase(&last.latency, &first.latency), share).map(Duration::from_secs_f64)
    }
}

fn per_second(first: &ThroughputSample, last: &ThroughputSample, stage: EventStage) -> Option<f64> {
    let seconds = last.at.since(first.at).as_secs_f64();
    let events = last.totals[stage as usize].saturating_sub(first.totals[stage as usize]);
    (seconds > 0.0).then(|| events as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: i64, created: u64, below_a_second: u64) -> ThroughputSample {
        let at = Timestamp::from_millis(second * 1_000);
        let latency = vec![(1.0, below_a_second), (2.0, below_a_second), (f64::INFINITY, below_a_second)];
        ThroughputSample { at, totals: [created, 0, 0], latency }
    }

    #[test]
    fn the_rate_is_that_of_the_last_ten_seconds() {
        let history = ThroughputHistory::default();
        assert!(history.recent(Timestamp::from_millis(0)).rate(EventStage::Created).is_none());
        for second in 0..50 {
            history.add(sample(second, if second < 40 { 0 } else { (second as u64 - 39) * 3 }, 0));
        }
        let now = history.recent(Timestamp::from_millis(50_000));
        assert_eq!((now.rate(EventStage::Created), now.rate(EventStage::Sent)), (Some(3.0), Some(0.0)));
        assert_eq!(now.rates(EventStage::Created).last(), Some(&3.0));
    }

    #[test]
    fn percentiles_are_those_of_the_last_minutes() {
        let history = ThroughputHistory::default();
        history.add(sample(0, 0, 1_000));
        history.add(sample(400, 0, 1_000));
        assert_eq!(history.recent(Timestamp::from_millis(400_000)).latency(0.5), None, "nothing was sent since");
        history.add(sample(402, 0, 1_010));
        let p50 = history.recent(Timestamp::from_millis(402_000)).latency(0.5);
        assert_eq!(p50, Some(Duration::from_millis(500)));
    }

    #[test]
    fn a_percentile_is_interpolated_and_ends_at_the_last_bound() {
        let buckets = [(0.1, 50), (0.2, 90), (f64::INFINITY, 100)];
        let close = |share: f64, expected: f64| (percentile(&buckets, share).expect("events") - expected).abs() < 1e-9;
        assert!(close(0.5, 0.1) && close(0.7, 0.15) && close(0.99, 0.2));
        assert_eq!(percentile(&[(0.1, 0), (f64::INFINITY, 0)], 0.5), None);
    }
}
