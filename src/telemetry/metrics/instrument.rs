//! Instrument types of the catalogue: counters, gauges, histograms that take typed values, and families by label values.

use std::time::Duration;

use prometheus::core::{Collector, Metric};
pub use prometheus::{Gauge, IntCounter, IntGauge};
use prometheus::{GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::definition::{MetricDefinition, MetricKind};

/// A histogram of durations in seconds.
#[derive(Debug, Clone)]
pub struct Timer(Histogram);

impl Timer {
    /// Adds one duration to the histogram.
    pub fn record(&self, duration: Duration) {
        self.0.observe(duration.as_secs_f64());
    }

    /// For each bucket its upper bound in seconds and the number of durations up to it, ascending, the last one without a bound.
    pub fn cumulative(&self) -> Vec<(f64, u64)> {
        let metric = self.0.metric();
        let histogram = metric.get_histogram();
        let bounded = histogram.get_bucket().iter().map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
        bounded.chain([(f64::INFINITY, histogram.get_sample_count())]).collect()
    }
}

/// A histogram of durations whose metric name fixes the unit: `PER_SECOND` is 1 for seconds, 1000 for milliseconds. The
/// conversion is part of the type, so no caller repeats it.
#[derive(Debug, Clone)]
pub struct DurationDistribution<const PER_SECOND: u32>(Histogram);

impl<const PER_SECOND: u32> DurationDistribution<PER_SECOND> {
    /// Adds one duration, converted to the unit of the metric.
    pub fn record(&self, duration: Duration) {
        self.0.observe(duration.as_secs_f64() * f64::from(PER_SECOND));
    }
}

/// A histogram of sizes, such as rows in a batch.
#[derive(Debug, Clone)]
pub struct SizeDistribution(Histogram);

impl SizeDistribution {
    /// Adds one size to the histogram.
    pub fn record(&self, size: usize) {
        self.0.observe(size as f64);
    }
}

/// An instrument for each combination of `N` label values. A combination uses memory until it is removed, so label values
/// must come from small, closed sets.
#[derive(Debug, Clone)]
pub struct Family<M: Instrument, const N: usize>(M::Vec);

impl<M: Instrument, const N: usize> Family<M, N> {
    /// The instrument with these label values, in the order of the catalogue's labels; created at zero on first use.
    /// Costs a hash and a read lock: on a hot path call it once and keep the instrument. Clones share their value.
    pub fn with(&self, values: [&str; N]) -> M {
        M::member(&self.0, &values)
    }

    /// Every member with its label values, sorted by them. Costs as much as a scrape of this metric.
    pub fn members(&self) -> Vec<([String; N], M)> {
        let names: Vec<String> = self.0.desc().first().map(|desc| desc.variable_labels.clone()).unwrap_or_default();
        let families = self.0.collect();
        let series = families.iter().flat_map(|family| family.get_metric());
        let values_of = |series: &prometheus::proto::Metric| -> Option<[String; N]> {
            let value = |name: &String| {
                series.get_label().iter().find(|pair| pair.name() == name).map(|pair| pair.value().to_owned())
            };
            names.iter().map(value).collect::<Option<Vec<String>>>()?.try_into().ok()
        };
        let mut labels: Vec<[String; N]> = series.filter_map(values_of).collect();
        labels.sort();
        let member = |values: [String; N]| {
            let member = M::member(&self.0, &values.each_ref().map(String::as_str));
            (values, member)
        };
        labels.into_iter().map(member).collect()
    }

    /// Removes the series with these label values from later scrapes. Clones that are still in use no longer reach a
    /// scrape. Idempotent.
    pub fn remove(&self, values: [&str; N]) {
        M::remove_member(&self.0, &values);
    }
}

/// A type that a catalogue line may name, alone or in a [`Family`]. Not meant to be implemented outside this file.
pub trait Instrument: Clone {
    /// The kind that the catalogue records.
    const KIND: MetricKind;
    /// The prometheus crate's vector of this instrument.
    type Vec: Collector + Clone + 'static;
    /// An empty vector for the definition.
    fn new_vec(definition: &MetricDefinition) -> prometheus::Result<Self::Vec>;
    /// The member with these label values, created on first use.
    fn member(vec: &Self::Vec, values: &[&str]) -> Self;
    /// Removes the member with these label values, if it exists.
    fn remove_member(vec: &Self::Vec, values: &[&str]);
}

/// A field of `Metrics`: an instrument or a family, created from its definition and registered.
pub(crate) trait MetricField: Sized {
    const KIND: MetricKind;
    fn register(definition: &MetricDefinition, registry: &Registry) -> prometheus::Result<Self>;
}

impl<M: Instrument> MetricField for M {
    const KIND: MetricKind = M::KIND;
    fn register(definition: &MetricDefinition, registry: &Registry) -> prometheus::Result<Self> {
        Family::<M, 0>::register(definition, registry).map(|family| family.with([]))
    }
}

impl<M: Instrument, const N: usize> MetricField for Family<M, N> {
    const KIND: MetricKind = M::KIND;
    fn register(definition: &MetricDefinition, registry: &Registry) -> prometheus::Result<Self> {
        assert_eq!(
            definition.labels.len(),
            N,
            "the catalogue gives {} a number of labels that differs from its type",
            definition.name
        );
        let vec = M::new_vec(definition)?;
        registry.register(Box::new(vec.clone()))?;
        Ok(Self(vec))
    }
}

/// Implements `Instrument`; `$wrap` converts the prometheus crate's metric into the type here.
macro_rules! instrument {
    ($instrument:ty, $kind:ident, $vec:ty, $opts:ident, $wrap:expr) => {
        impl Instrument for $instrument {
            const KIND: MetricKind = MetricKind::$kind;
            type Vec = $vec;
            fn new_vec(definition: &MetricDefinition) -> prometheus::Result<$vec> {
                <$vec>::new($opts(definition), definition.labels)
            }
            fn member(vec: &$vec, values: &[&str]) -> Self {
                $wrap(vec.with_label_values(values))
            }
            fn remove_member(vec: &$vec, values: &[&str]) {
                // The only error is that no such member exists.
                let _ = vec.remove_label_values(values);
            }
        }
    };
}

instrument!(IntCounter, Counter, IntCounterVec, opts, std::convert::identity);
instrument!(IntGauge, Gauge, IntGaugeVec, opts, std::convert::identity);
instrument!(Gauge, Gauge, GaugeVec, opts, std::convert::identity);
instrument!(Timer, Timer, HistogramVec, histogram_opts, Timer);
instrument!(DurationDistribution<1>, Distribution, HistogramVec, histogram_opts, DurationDistribution);
instrument!(DurationDistribution<1000>, Distribution, HistogramVec, histogram_opts, DurationDistribution);
instrument!(SizeDistribution, Distribution, HistogramVec, histogram_opts, SizeDistribution);

fn opts(definition: &MetricDefinition) -> Opts {
    Opts::new(definition.prometheus(), definition.help)
}

fn histogram_opts(definition: &MetricDefinition) -> HistogramOpts {
    HistogramOpts::new(definition.prometheus(), definition.help).buckets(definition.buckets.to_vec())
}
