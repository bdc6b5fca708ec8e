//! What the actors of each kind do: messages a second and the time of one message, from samples of the last minute in memory.
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use domain::Timestamp;
use parking_lot::Mutex;
use telemetry::Metrics;

use super::histogram::{Buckets, increase, percentile};
use super::throughput::RATE_WINDOW;

/// Samples of a minute, one every two seconds, and the one before them; older ones are dropped.
const SAMPLES_MAX: usize = 31;

/// The time of one message in seconds, by kind of actor.
type MessageTimes = BTreeMap<String, Buckets>;

/// Samples, the oldest first.
#[derive(Default)]
pub(crate) struct ActorLoadHistory(Mutex<VecDeque<(Timestamp, MessageTimes)>>);

/// What the actors of one kind do together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ActorLoad {
    /// Messages handled per second over the last ten seconds.
    pub(crate) per_second: f64,
    /// Time that 95 % of the last minute's messages stayed below; none without messages.
    pub(crate) p95: Option<Duration>,
}

impl ActorLoadHistory {
    /// Adds the present totals. Costs as much as a scrape of the metric.
    pub(crate) fn add(&self, metrics: &Metrics, at: Timestamp) {
        let members = metrics.actor_message_duration_seconds.members().into_iter();
        let times = members.map(|([kind], timer)| (kind, timer.cumulative())).collect();
        let mut samples = self.0.lock();
        if samples.len() >= SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back((at, times));
    }

    /// The load by kind of actor; empty before there are two samples.
    pub(crate) fn by_kind(&self) -> BTreeMap<String, ActorLoad> {
        let samples = self.0.lock();
        let Some(((last_at, last), (_, first))) = samples.back().zip(samples.front()) else { return BTreeMap::new() };
        let recent = samples.iter().find(|(at, _)| last_at.since(*at) <= RATE_WINDOW);
        let Some((recent_at, recent)) = recent.filter(|(at, _)| at < last_at) else { return BTreeMap::new() };
        let seconds = last_at.since(*recent_at).as_secs_f64();
        let load = |(kind, times): (&String, &Buckets)| {
            // A kind that an earlier sample lacks had handled no message by then.
            let since = |before: &MessageTimes| increase(times, before.get(kind).map_or(&[], Vec::as_slice));
            let load = ActorLoad {
                per_second: since(recent).last().map_or(0, |bucket| bucket.1) as f64 / seconds,
                p95: percentile(&since(first), 0.95).map(Duration::from_secs_f64),
            };
            (kind.clone(), load)
        };
        last.iter().map(load).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(metrics: &Metrics, messages: u64, millis: u64) {
        let times = metrics.actor_message_duration_seconds.with(["PartitionWorker"]);
        (0..messages).for_each(|_| times.record(Duration::from_millis(millis)));
    }

    #[test]
    fn the_load_is_that_of_the_last_seconds_and_not_since_the_start() {
        let (metrics, history) = (Metrics::new(), ActorLoadHistory::default());
        let at = |second: i64| Timestamp::from_millis(second * 1_000);
        handle(&metrics, 1_000, 4_000);
        history.add(&metrics, at(0));
        assert!(history.by_kind().is_empty(), "one sample is no rate");
        (1..40).for_each(|second| history.add(&metrics, at(second * 2)));
        handle(&metrics, 50, 2);
        history.add(&metrics, at(80));

        let load = history.by_kind()["PartitionWorker"];

        assert_eq!(load.per_second, 5.0);
        let p95 = load.p95.expect("messages were handled");
        assert!(p95 > Duration::from_millis(1) && p95 <= Duration::from_micros(2_500), "within its bucket: {p95:?}");
    }

    #[test]
    fn a_kind_without_messages_has_a_rate_of_zero_and_no_time() {
        let (metrics, history) = (Metrics::new(), ActorLoadHistory::default());
        handle(&metrics, 3, 1);
        (0..2).for_each(|second| history.add(&metrics, Timestamp::from_millis(second * 1_000)));

        assert_eq!(history.by_kind()["PartitionWorker"], ActorLoad { per_second: 0.0, p95: None });
    }
}
