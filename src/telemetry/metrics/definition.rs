//! One metric's declaration, and the rule that derives its Prometheus name.

/// The instrument class of a metric; it decides the Prometheus type and name suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only increases; Prometheus appends `_total`.
    Counter,
    /// A value that increases and decreases.
    Gauge,
    /// A histogram of durations in seconds; Prometheus appends `_seconds`.
    Timer,
    /// A histogram in the metric's own unit.
    Distribution,
}

/// The unit of one count; `baseUnit` in the reply of `/actuator/metrics/{name}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricUnit {
    Rows,
    Batches,
    Records,
    Calls,
    Requests,
    Orders,
    Events,
    Messages,
    Partitions,
    Actors,
    Webhooks,
    Restarts,
    Lines,
    Spans,
    Seconds,
    Milliseconds,
    Percent,
    /// A dimensionless number, such as a state code; the help text lists its values.
    Level,
}

/// One line of the catalogue.
#[derive(Debug, Clone, Copy)]
pub struct MetricDefinition {
    /// Unique name: dotted for Micrometer's metrics, in Prometheus spelling for the others.
    pub name: &'static str,
    /// The instrument class of the metric.
    pub kind: MetricKind,
    /// The unit that is counted or measured.
    pub unit: MetricUnit,
    /// Label names, in the order in which [`Family::with`](crate::Family::with) takes their values.
    pub labels: &'static [&'static str],
    /// Upper bucket bounds; empty unless the kind is a timer or a distribution.
    pub buckets: &'static [f64],
    /// One sentence that says what the metric measures.
    pub help: &'static str,
}

impl MetricDefinition {
    /// The name as Micrometer exports it to Prometheus: dots become underscores, counters end in `_total` and timers in
    /// `_seconds`, without repeating a suffix that is already there.
    pub fn prometheus(&self) -> String {
        let name = self.name.replace('.', "_");
        match self.kind {
            MetricKind::Counter => with_suffix(name, "_total"),
            MetricKind::Timer => with_suffix(name, "_seconds"),
            MetricKind::Gauge | MetricKind::Distribution => name,
        }
    }

    /// The Prometheus type, as the `# TYPE` line names it.
    pub fn prometheus_type(&self) -> &'static str {
        match self.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Timer | MetricKind::Distribution => "histogram",
        }
    }
}

impl MetricUnit {
    /// The unit's name in lower case; `None` for a dimensionless number.
    pub fn name(self) -> Option<&'static str> {
        match self {
            MetricUnit::Rows => Some("rows"),
            MetricUnit::Batches => Some("batches"),
            MetricUnit::Records => Some("records"),
            MetricUnit::Calls => Some("calls"),
            MetricUnit::Requests => Some("requests"),
            MetricUnit::Orders => Some("orders"),
            MetricUnit::Events => Some("events"),
            MetricUnit::Messages => Some("messages"),
            MetricUnit::Partitions => Some("partitions"),
            MetricUnit::Actors => Some("actors"),
            MetricUnit::Webhooks => Some("webhooks"),
            MetricUnit::Restarts => Some("restarts"),
            MetricUnit::Lines => Some("lines"),
            MetricUnit::Spans => Some("spans"),
            MetricUnit::Seconds => Some("seconds"),
            MetricUnit::Milliseconds => Some("milliseconds"),
            MetricUnit::Percent => Some("percent"),
            MetricUnit::Level => None,
        }
    }
}

fn with_suffix(name: String, suffix: &str) -> String {
    if name.ends_with(suffix) { name } else { name + suffix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_as_micrometer_maps_them() {
        let cases = [
            ("outbox.retry.count", MetricKind::Counter, "outbox_retry_count_total"),
            ("rate_limit.rejections.by.policy", MetricKind::Counter, "rate_limit_rejections_by_policy_total"),
            ("outbox_fenced_total", MetricKind::Counter, "outbox_fenced_total"),
            ("http.server.requests", MetricKind::Timer, "http_server_requests_seconds"),
            ("actor_message_duration_seconds", MetricKind::Timer, "actor_message_duration_seconds"),
            ("kafka.consumer.lag.ms", MetricKind::Distribution, "kafka_consumer_lag_ms"),
            ("outbox.lag", MetricKind::Distribution, "outbox_lag"),
            ("outbox.pending.count", MetricKind::Gauge, "outbox_pending_count"),
        ];

        for (name, kind, expected) in cases {
            let definition =
                MetricDefinition { name, kind, unit: MetricUnit::Rows, labels: &[], buckets: &[], help: "" };
            assert_eq!(definition.prometheus(), expected);
        }
    }
}
