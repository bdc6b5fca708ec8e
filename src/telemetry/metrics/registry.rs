//! The live metrics: one typed field per catalogue line in a private Prometheus registry, and the text exposition.

use std::collections::HashSet;
use std::sync::Arc;

use prometheus::proto::MetricFamily;
use prometheus::{Registry, TextEncoder};

use super::catalogue::{CATALOGUE, definition_of, every_metric};
use super::instrument::*;

/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

macro_rules! metrics {
    ($($field:ident: $instrument:ty = $name:literal $labels:tt $unit:ident $buckets:ident $help:literal;)*) => {
        /// All metrics of one service instance. A process may hold several: nothing is global.
        ///
        /// A field has the metric's name with underscores for dots. Recording takes no lock; [`Family::with`] takes a read
        /// lock, and its result may be kept.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            $(#[doc = $help] pub $field: $instrument,)*
        }

        fn register(registry: Registry) -> prometheus::Result<Metrics> {
            Ok(Metrics {
                $($field: MetricField::register(&definition_of::$field, &registry)?,)*
                registry,
            })
        }
    };
}
every_metric!(metrics);

impl Metrics {
    /// A new set with every value at zero, plus the process metrics (memory, descriptors, CPU) on Linux.
    pub fn new() -> Arc<Self> {
        let metrics =
            register(Registry::new()).expect("the catalogue's tests check that its names are valid and unique");
        #[cfg(target_os = "linux")]
        metrics
            .registry
            .register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))
            .expect("no catalogue name begins with process_");
        Arc::new(metrics)
    }

    /// The Prometheus text exposition. It contains HELP and TYPE of every catalogue name from the start: the prometheus
    /// crate omits families without members, and a dashboard cannot distinguish those from a misspelt name.
    pub fn render(&self) -> String {
        let families = self.gather();
        let mut text = String::with_capacity(32 * 1024);
        TextEncoder::new()
            .encode_utf8(&families, &mut text)
            .expect("every gathered family has a name and members, which is all that the encoder requires");
        let present: HashSet<&str> = families.iter().map(MetricFamily::name).collect();
        for definition in CATALOGUE {
            let name = definition.prometheus();
            if !present.contains(name.as_str()) {
                text += &format!("# HELP {name} {}\n# TYPE {name} {}\n", definition.help, definition.prometheus_type());
            }
        }
        text
    }

    /// The catalogue names in the table's order, as `find` accepts them.
    pub fn names(&self) -> Vec<&'static str> {
        CATALOGUE.iter().map(|definition| definition.name).collect()
    }

    pub(crate) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_catalogue_name_is_exposed_once_before_any_measurement() {
        let text = Metrics::new().render();

        for definition in CATALOGUE {
            let line = format!("# TYPE {} {}\n", definition.prometheus(), definition.prometheus_type());
            assert_eq!(text.matches(&line).count(), 1, "{line}");
        }
    }

    #[test]
    fn families_with_members_are_exposed_once_with_their_labels() {
        let metrics = Metrics::new();
        metrics.actor_restarts_total.with(["/consumer-0", "panic"]).inc();
        metrics.kafka_consumer_lag.with(["order.events", "3"]).set(7);

        let text = metrics.render();

        assert!(text.contains("actor_restarts_total{actor=\"/consumer-0\",reason=\"panic\"} 1\n"));
        assert!(text.contains("kafka_consumer_lag{partition=\"3\",topic=\"order.events\"} 7\n"));
        assert_eq!(text.matches("# TYPE actor_restarts_total counter\n").count(), 1);
    }

    #[test]
    fn metrics_without_labels_start_at_zero() {
        let text = Metrics::new().render();

        assert!(text.contains("\noutbox_pending_count 0\n"));
        assert!(text.contains("\nkafka_breaker_state 0\n"));
        assert!(text.contains("\napi_errors_unexpected_total 0\n"));
        assert!(text.contains("\noutbox_publish_latency_seconds_count 0\n"));
    }

    #[test]
    fn two_metric_sets_are_independent() {
        let (one, other) = (Metrics::new(), Metrics::new());

        one.orders_created_count.inc();

        assert_eq!(one.orders_created_count.get(), 1);
        assert_eq!(other.orders_created_count.get(), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn process_memory_and_descriptors_are_exposed() {
        let text = Metrics::new().render();
        assert!(text.contains("process_resident_memory_bytes ") && text.contains("process_open_fds "));
    }

    #[test]
    fn durations_are_recorded_in_the_unit_of_the_metric_name() {
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
    fn clones_of_a_labelled_instrument_share_their_value_until_it_is_removed() {
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
