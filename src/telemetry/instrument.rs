//! The instruments a catalogue line may name: counters, gauges, three histograms that take units instead of floats, and
//! the family of any of them by label values.

use std::time::Duration;

use prometheus::core::Collector;
pub use prometheus::{Gauge, IntCounter, IntGauge};
use prometheus::{GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use crate::entry::{Entry, Kind};

/// Durations in seconds.
#[derive(Debug, Clone)]
pub struct Timer(Histogram);

impl Timer {
    /// Adds one duration.
    pub fn record(&self, duration: Duration) {
        self.0.observe(duration.as_secs_f64());
    }
}

/// Durations as a distribution in parts of a second: `1` counts seconds, `1000` milliseconds. The unit stands in the
/// metric's name, so it stands in the type and no caller has to know it.
#[derive(Debug, Clone)]
pub struct Durations<const PER_SECOND: u32>(Histogram);

impl<const PER_SECOND: u32> Durations<PER_SECOND> {
    /// Adds one duration.
    pub fn record(&self, duration: Duration) {
        self.0.observe(duration.as_secs_f64() * f64::from(PER_SECOND));
    }
}

/// How many at once.
#[derive(Debug, Clone)]
pub struct Sizes(Histogram);

impl Sizes {
    /// Adds one size.
    pub fn record(&self, size: usize) {
        self.0.observe(size as f64);
    }
}

/// One instrument per combination of `N` label values. Each combination lives until it is removed, so values come from
/// small, closed sets.
#[derive(Debug, Clone)]
pub struct Family<M: Instrument, const N: usize>(M::Vec);

impl<M: Instrument, const N: usize> Family<M, N> {
    /// The instrument of these values, in the order of the catalogue's labels; made, at zero, when it is new. Costs a
    /// hash and a read lock: on a hot path ask once and keep the answer, all clones count together.
    pub fn with(&self, values: [&str; N]) -> M {
        M::child(&self.0, &values)
    }

    /// Forgets these values: they leave the next scrape. Clones still in use count into nothing. Safe to call twice.
    pub fn remove(&self, values: [&str; N]) {
        M::forget(&self.0, &values);
    }
}

/// What can stand in the catalogue, alone or in a [`Family`]. Implemented here for all there are.
pub trait Instrument: Clone {
    /// The shape on the wire.
    const KIND: Kind;
    /// The prometheus crate's collection of these.
    type Vec: Collector + Clone + 'static;
    /// An empty collection for the entry.
    fn collection(entry: &Entry) -> prometheus::Result<Self::Vec>;
    /// The member with these label values, made when it is new.
    fn child(collection: &Self::Vec, values: &[&str]) -> Self;
    /// Drops the member with these label values, if there is one.
    fn forget(collection: &Self::Vec, values: &[&str]);
}

/// A field of `Metrics`: an instrument or a family of them, built from its entry and registered.
pub(crate) trait Field: Sized {
    const KIND: Kind;
    fn register(entry: &Entry, registry: &Registry) -> prometheus::Result<Self>;
}

impl<M: Instrument> Field for M {
    const KIND: Kind = M::KIND;
    fn register(entry: &Entry, registry: &Registry) -> prometheus::Result<Self> {
        Family::<M, 0>::register(entry, registry).map(|family| family.with([]))
    }
}

impl<M: Instrument, const N: usize> Field for Family<M, N> {
    const KIND: Kind = M::KIND;
    fn register(entry: &Entry, registry: &Registry) -> prometheus::Result<Self> {
        assert_eq!(entry.labels.len(), N, "the table gives {} another number of labels than its type", entry.name);
        let collection = M::collection(entry)?;
        registry.register(Box::new(collection.clone()))?;
        Ok(Self(collection))
    }
}

/// `$child` wraps the prometheus crate's own metric into ours.
macro_rules! instrument {
    ($instrument:ty, $kind:ident, $vec:ty, $opts:ident, $child:expr) => {
        impl Instrument for $instrument {
            const KIND: Kind = Kind::$kind;
            type Vec = $vec;
            fn collection(entry: &Entry) -> prometheus::Result<$vec> {
                <$vec>::new($opts(entry), entry.labels)
            }
            fn child(collection: &$vec, values: &[&str]) -> Self {
                $child(collection.with_label_values(values))
            }
            fn forget(collection: &$vec, values: &[&str]) {
                // The only error is that there was none, and then there is nothing to forget.
                let _ = collection.remove_label_values(values);
            }
        }
    };
}

instrument!(IntCounter, Counter, IntCounterVec, opts, std::convert::identity);
instrument!(IntGauge, Gauge, IntGaugeVec, opts, std::convert::identity);
instrument!(Gauge, Gauge, GaugeVec, opts, std::convert::identity);
instrument!(Timer, Timer, HistogramVec, histogram_opts, Timer);
instrument!(Durations<1>, Distribution, HistogramVec, histogram_opts, Durations);
instrument!(Durations<1000>, Distribution, HistogramVec, histogram_opts, Durations);
instrument!(Sizes, Distribution, HistogramVec, histogram_opts, Sizes);

fn opts(entry: &Entry) -> Opts {
    Opts::new(entry.prometheus(), entry.help)
}

fn histogram_opts(entry: &Entry) -> HistogramOpts {
    HistogramOpts::new(entry.prometheus(), entry.help).buckets(entry.buckets.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metrics;

    #[test]
    fn durations_reach_the_histogram_in_the_unit_of_the_name() {
        let metrics = Metrics::new();

        metrics.redis_command_latency.record(Duration::from_millis(1500));
        metrics.outbox_lag.record(Duration::from_millis(1500));
        metrics.kafka_consumer_lag_ms.record(Duration::from_millis(1500));

        let text = metrics.render();
        assert!(text.contains("redis_command_latency_seconds_sum 1.5\n"));
        assert!(text.contains("outbox_lag_sum 1.5\n"));
        assert!(text.contains("kafka_consumer_lag_ms_sum 1500\n"));
    }

    #[test]
    fn a_kept_child_and_a_new_one_count_together_until_it_is_removed() {
        let metrics = Metrics::new();

        let kept = metrics.actor_messages_total.with(["/consumer-0"]);
        kept.inc();
        metrics.actor_messages_total.with(["/consumer-0"]).inc();

        assert_eq!(kept.get(), 2);
        metrics.actor_messages_total.remove(["/consumer-0"]);
        metrics.actor_messages_total.remove(["/consumer-0"]);
        assert!(!metrics.render().contains("/consumer-0"));
    }
}
