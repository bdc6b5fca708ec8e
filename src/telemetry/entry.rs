//! One line of the catalogue, and the rule that turns its name into Prometheus' name.

/// What a metric counts, and so which shape it takes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only ever grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations in seconds, as a histogram.
    Timer,
    /// Any other histogram, in the entry's own unit.
    Distribution,
}

/// What one of it is. Stands as `baseUnit` in the actuator's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
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
    Restarts,
    Lines,
    Seconds,
    Milliseconds,
    Percent,
    /// A number that stands for a word; the help text says which.
    Level,
}

/// One metric: everything that is known of it before anything was measured.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The dotted name for the seeds' metrics, Prometheus' own for ours. Unique.
    pub name: &'static str,
    /// Counter, gauge, timer or distribution.
    pub kind: Kind,
    /// What is counted or measured.
    pub unit: Unit,
    /// Label names in the order in which [`Family::with`](crate::Family::with) takes their values.
    pub labels: &'static [&'static str],
    /// Upper bounds; empty unless the kind is a timer or a distribution.
    pub buckets: &'static [f64],
    /// One sentence for people.
    pub help: &'static str,
}

impl Entry {
    /// The name as Micrometer would give it to Prometheus: dots become underscores, counters end in `_total` and
    /// timers in `_seconds`, once.
    pub fn prometheus(&self) -> String {
        let name = self.name.replace('.', "_");
        match self.kind {
            Kind::Counter => with_suffix(name, "_total"),
            Kind::Timer => with_suffix(name, "_seconds"),
            Kind::Gauge | Kind::Distribution => name,
        }
    }

    /// The word of the `# TYPE` line.
    pub fn type_word(&self) -> &'static str {
        match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Timer | Kind::Distribution => "histogram",
        }
    }
}

impl Unit {
    /// The unit's name in small letters; `None` for a level, which has none.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Unit::Rows => Some("rows"),
            Unit::Batches => Some("batches"),
            Unit::Records => Some("records"),
            Unit::Calls => Some("calls"),
            Unit::Requests => Some("requests"),
            Unit::Orders => Some("orders"),
            Unit::Events => Some("events"),
            Unit::Messages => Some("messages"),
            Unit::Partitions => Some("partitions"),
            Unit::Actors => Some("actors"),
            Unit::Restarts => Some("restarts"),
            Unit::Lines => Some("lines"),
            Unit::Seconds => Some("seconds"),
            Unit::Milliseconds => Some("milliseconds"),
            Unit::Percent => Some("percent"),
            Unit::Level => None,
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
            ("outbox.retry.count", Kind::Counter, "outbox_retry_count_total"),
            ("rate_limit.rejections.by.policy", Kind::Counter, "rate_limit_rejections_by_policy_total"),
            ("outbox_fenced_total", Kind::Counter, "outbox_fenced_total"),
            ("http.server.requests", Kind::Timer, "http_server_requests_seconds"),
            ("actor_message_duration_seconds", Kind::Timer, "actor_message_duration_seconds"),
            ("kafka.consumer.lag.ms", Kind::Distribution, "kafka_consumer_lag_ms"),
            ("outbox.lag", Kind::Distribution, "outbox_lag"),
            ("outbox.pending.count", Kind::Gauge, "outbox_pending_count"),
        ];

        for (name, kind, expected) in cases {
            let entry = Entry { name, kind, unit: Unit::Rows, labels: &[], buckets: &[], help: "" };
            assert_eq!(entry.prometheus(), expected);
        }
    }
}
