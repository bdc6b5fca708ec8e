//! Renders the catalogues as the Markdown files `docs/metrics.md` and `docs/log-events.md`.

use std::fmt::Write;

use crate::log_events::{LOG_EVENTS, LogEvent, LogEventGroup};
use crate::metrics::{CATALOGUE, LABELS, MetricDefinition};

const GENERATED: &str =
    "<!-- Generated from src/telemetry. To update: POSTHASTE_WRITE_DOCS=1 cargo test --test tidy -->\n";

/// The content of `docs/metrics.md`: one table row for each metric of the catalogue.
pub fn metrics_markdown() -> String {
    let mut text = format!("# Metrics\n\n{GENERATED}\n{METRICS_INTRODUCTION}\n");
    text += "| name | Prometheus name | type | unit | labels | meaning |\n|---|---|---|---|---|---|\n";
    for definition in CATALOGUE {
        text += &metric_row(definition);
    }
    text += LABELS_INTRODUCTION;
    for (label, values) in LABELS {
        writeln!(text, "| `{label}` | {values} |").expect("writing to a String cannot fail");
    }
    text
}

const LABELS_INTRODUCTION: &str = "
## Labels

The values of each label come from a closed set, so that no event, order or name of another service creates a series. Names that other \
services choose have a series only where the configuration names them; the rest counts as `other`.

| label | values |
|---|---|
";

const METRICS_INTRODUCTION: &str = "\
`/metrics` and `/actuator/prometheus` expose every metric under its Prometheus name. A metric without labels has a value \
from the start of the process; a metric with labels has a series from its first value at the latest. The series of \
`actor_restarts_total` are there, at 0, when the first actor of a kind starts, and those of \
`region_health_dependency_failure_count_total` when the probes begin, so that `increase()` sees the first failure too. \
`/actuator/metrics/{name}` returns one metric as JSON, under its name in the first column. A histogram has the series \
`_bucket`, `_sum` and `_count`. On Linux the metrics of the process (`process_resident_memory_bytes`, \
`process_open_fds` and others) are exposed too.
";

fn metric_row(definition: &MetricDefinition) -> String {
    format!(
        "| `{}` | `{}` | {} | {} | {} | {} |\n",
        definition.name,
        definition.prometheus(),
        definition.prometheus_type(),
        definition.unit.name().unwrap_or("–"),
        codes(definition.labels),
        definition.help,
    )
}

/// The content of `docs/log-events.md`: one table for each group of events.
pub fn log_events_markdown() -> String {
    let mut text = format!("# Log events\n\n{GENERATED}\n{LOG_EVENTS_INTRODUCTION}");
    LOG_EVENTS.iter().for_each(|group| push_group(&mut text, group));
    text
}

const LOG_EVENTS_INTRODUCTION: &str = "\
The service logs to standard output. With `log.format = json` a line is one JSON object with `timestamp`, `level`, \
`event`, `message`, `target` and the fields of the event at the top level; an event contains those of its fields that \
apply. `event` values and field names are stable; messages are not. An *error* needs a person, a *warn* was handled by \
the service and should be watched, *info* is the life cycle, *debug* single steps.

Every JSON line has `region`, the region of the process, unless the event has a region of its own. A line that a request \
causes also has its `request_id` and, as soon as the order is known, its `order_id`; actors and adapters write both, \
because the message to an actor carries them. The event of the change carries them on, in its outbox row and as the header \
`x-request-id` of its record: the lines that it causes in the relay and in consumers, also in retry topics and among the dead \
letters, have `event_id`, `order_id` and the `request_id` of the request that made the change. A request's own line joins `request_id` and `order_id`. \
Other lines of an actor have `actor`, its path. Work for many orders at once, such as a commit or a batch, names none.
";

fn push_group(text: &mut String, group: &LogEventGroup) {
    let heading = format!("\n## {}\n\n{}\n", group.title, group.description);
    let common = match group.common_fields {
        [] => String::new(),
        fields => format!("Every event has the fields {}.\n", codes(fields)),
    };
    let table = "\n| event | level | fields | meaning | what to do |\n|---|---|---|---|---|\n";
    let rows: String = group.events.iter().map(event_row).collect();
    write!(text, "{heading}{common}{table}{rows}").expect("a String accepts every write");
}

fn event_row(event: &LogEvent) -> String {
    let levels: Vec<String> = event.levels.iter().map(|level| level.as_str().to_lowercase()).collect();
    let levels = if levels.is_empty() { "live event stream only".to_owned() } else { levels.join(", ") };
    format!("| `{}` | {levels} | {} | {} | {} |\n", event.name, codes(event.fields), event.meaning, event.action)
}

fn codes(names: &[&str]) -> String {
    match names {
        [] => "–".to_owned(),
        names => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_row_has_all_columns_of_the_catalogue() {
        let text = metrics_markdown();

        let row = "| `http.server.requests` | `http_server_requests_seconds` | histogram | seconds | \
                   `method`, `uri`, `status` | Time of one HTTP request, by method, route template and status. |\n";
        assert!(text.contains(row), "{text}");
        assert_eq!(text.matches("\n| `").count(), CATALOGUE.len() + LABELS.len());
    }

    #[test]
    fn log_event_row_has_levels_fields_meaning_and_action() {
        let text = log_events_markdown();

        assert!(text.contains("| `pressure_changed` | info, warn | `from`, `to`, "), "{text}");
        assert!(text.contains("| `breaker` | live event stream only | "), "{text}");
        let events: usize = LOG_EVENTS.iter().map(|group| group.events.len()).sum();
        assert_eq!(text.matches("\n| `").count(), events);
    }
}
