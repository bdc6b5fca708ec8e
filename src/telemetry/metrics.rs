//! The live metrics: one typed field per line of the catalogue, in a registry of their own, and their text.

use std::collections::HashSet;
use std::sync::Arc;

use prometheus::proto::MetricFamily;
use prometheus::{Registry, TextEncoder};

use crate::catalogue::{CATALOGUE, every_metric, line};
use crate::instrument::*;

/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

macro_rules! metrics {
    ($($field:ident: $instrument:ty = $name:literal $labels:tt $unit:ident $buckets:ident $help:literal;)*) => {
        /// Every metric of one service. Several may live in a process: nothing is global.
        ///
        /// Fields are named as the catalogue names the metric, with underscores for dots. Counting takes no lock; only
        /// [`Family::with`] does, and its answer may be kept.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            $(#[doc = $help] pub $field: $instrument,)*
        }

        fn register(registry: Registry) -> prometheus::Result<Metrics> {
            Ok(Metrics {
                $($field: Field::register(&line::$field, &registry)?,)*
                registry,
            })
        }
    };
}
every_metric!(metrics);

impl Metrics {
    /// A fresh set, everything at zero, together with the process's own metrics where the system offers them.
    pub fn new() -> Arc<Self> {
        let metrics = register(Registry::new()).expect("the catalogue's names are legal and unique, as its tests say");
        #[cfg(target_os = "linux")]
        metrics
            .registry
            .register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))
            .expect("no name of the catalogue begins with process_");
        Arc::new(metrics)
    }

    /// The text exposition. Every name of the catalogue stands in it with its HELP and TYPE, whether measured or not:
    /// the crate leaves out families without members, and a dashboard cannot tell those from a misspelt name.
    pub fn render(&self) -> String {
        let families = self.gather();
        let mut text = String::with_capacity(32 * 1024);
        TextEncoder::new()
            .encode_utf8(&families, &mut text)
            .expect("gathered families have a name and members, all the encoder asks for");
        let present: HashSet<&str> = families.iter().map(MetricFamily::name).collect();
        for entry in CATALOGUE {
            let name = entry.prometheus();
            if !present.contains(name.as_str()) {
                text += &format!("# HELP {name} {}\n# TYPE {name} {}\n", entry.help, entry.type_word());
            }
        }
        text
    }

    /// The catalogue's names in the table's order: dotted for the seeds', Prometheus' own for ours. What
    /// [`find`](Self::find) answers to.
    pub fn names(&self) -> Vec<&'static str> {
        CATALOGUE.iter().map(|entry| entry.name).collect()
    }

    pub(crate) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_with_its_type_from_the_start_and_once() {
        let text = Metrics::new().render();

        for entry in CATALOGUE {
            let line = format!("# TYPE {} {}\n", entry.prometheus(), entry.type_word());
            assert_eq!(text.matches(&line).count(), 1, "{line}");
        }
    }

    #[test]
    fn every_name_stands_once_when_families_have_members_too() {
        let metrics = Metrics::new();
        metrics.actor_restarts_total.with(["/consumer-0", "panic"]).inc();
        metrics.kafka_consumer_lag.with(["order.events", "3"]).set(7);

        let text = metrics.render();

        assert!(text.contains("actor_restarts_total{actor=\"/consumer-0\",reason=\"panic\"} 1\n"));
        assert!(text.contains("kafka_consumer_lag{partition=\"3\",topic=\"order.events\"} 7\n"));
        assert_eq!(text.matches("# TYPE actor_restarts_total counter\n").count(), 1);
    }

    #[test]
    fn unlabelled_counters_and_gauges_begin_at_zero() {
        let text = Metrics::new().render();

        assert!(text.contains("\noutbox_pending_count 0\n"));
        assert!(text.contains("\nkafka_breaker_state 0\n"));
        assert!(text.contains("\napi_errors_unexpected_total 0\n"));
        assert!(text.contains("\noutbox_publish_latency_seconds_count 0\n"));
    }

    #[test]
    fn two_sets_share_nothing() {
        let (one, other) = (Metrics::new(), Metrics::new());

        one.orders_created_count.inc();

        assert_eq!(one.orders_created_count.get(), 1);
        assert_eq!(other.orders_created_count.get(), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_process_is_measured_as_well() {
        let text = Metrics::new().render();
        assert!(text.contains("process_resident_memory_bytes ") && text.contains("process_open_fds "));
    }
}
