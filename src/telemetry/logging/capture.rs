//! Captures the log of one test as the JSON lines that the service would write, and tests their format.

use serde_json::Value;
use tracing::subscriber::{DefaultGuard, set_default};
use tracing_subscriber::prelude::*;

use super::buffer::LogBuffer;
use super::json_format;

/// Captures every event of the calling thread, at every level, until it is dropped.
pub(crate) fn capture() -> LogCapture {
    let buffer = LogBuffer::default();
    let writer = buffer.clone();
    let layer = json_format::layer(move || writer.clone(), Some("eu".into()));
    LogCapture { buffer, _guard: set_default(tracing_subscriber::registry().with(layer)) }
}

/// The events captured so far; it grows without bound.
pub(crate) struct LogCapture {
    buffer: LogBuffer,
    _guard: DefaultGuard,
}

impl LogCapture {
    /// The lines as the service would write them.
    pub(crate) fn text(&self) -> String {
        self.buffer.text()
    }

    /// The captured lines, each parsed as JSON.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).expect("each line is one JSON object")).collect()
    }

    /// The parsed lines of one event name.
    pub(crate) fn events(&self, event: &str) -> Vec<Value> {
        self.lines().into_iter().filter(|line| line["event"] == event).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_members_of_the_top_level_and_keep_their_types() {
        let logs = capture();

        tracing::info!(
            event = "listening",
            address = %"127.0.0.1:8080",
            port = 8080_u64,
            offset = -3_i64,
            big = u128::MAX,
            small = 7_u128,
            share = 0.5,
            nothing = f64::NAN,
            ready = true,
            missing = None::<u64>,
            list = ?[1, 2],
            r#type = "ORDER_CREATED",
            "listening for requests"
        );

        let mut line = logs.lines().remove(0);
        let members = line.as_object_mut().expect("an object");
        let timestamp = members.remove("timestamp").expect("a time");
        assert_eq!(
            line,
            json!({
                "level": "INFO", "event": "listening", "message": "listening for requests",
                "target": "telemetry::logging::capture::tests", "region": "eu",
                "address": "127.0.0.1:8080", "port": 8080, "offset": -3, "big": u128::MAX.to_string(), "small": 7,
                "share": 0.5, "nothing": null, "ready": true, "list": "[1, 2]", "type": "ORDER_CREATED",
            })
        );
        let timestamp = timestamp.as_str().expect("a string");
        assert_eq!((timestamp.len(), &timestamp[19..20], &timestamp[23..]), (24, ".", "Z"), "{timestamp}");
    }

    #[test]
    fn fields_of_enclosing_spans_are_members_once_and_the_innermost_counts() {
        let logs = capture();
        let request =
            tracing::error_span!("request", request_id = "r-1", order_id = tracing::field::Empty, attempt = 1);
        let message = request.in_scope(|| tracing::error_span!("message", attempt = 2, level = "x"));

        request.in_scope(|| {
            tracing::info!(event = "before", "no order yet");
            request.record("order_id", "o-1");
            message.in_scope(|| tracing::info!(event = "inside", region = "us", request_id = "own", "an order"));
        });
        tracing::info!(event = "outside", "no request");

        let lines = logs.lines();
        let members = |line: &Value| ["request_id", "order_id", "attempt", "region"].map(|name| line[name].clone());
        assert_eq!(members(&lines[0]), [json!("r-1"), Value::Null, json!(1), json!("eu")]);
        assert_eq!(members(&lines[1]), [json!("own"), json!("o-1"), json!(2), json!("us")]);
        assert_eq!(members(&lines[2]), [Value::Null, Value::Null, Value::Null, json!("eu")]);
        assert_eq!((&lines[1]["level"], &lines[1]["level_"]), (&json!("INFO"), &json!("x")));
        for name in ["request_id", "order_id", "attempt", "region", "level"] {
            assert!(logs.text().lines().all(|line| line.matches(&format!("\"{name}\":")).count() <= 1), "{name}");
        }
    }

    #[test]
    fn standard_members_come_first() {
        let logs = capture();

        tracing::warn!(child = "/consumer-0", event = "child_exited", "a child exited");

        let line = logs.text();
        let positions: Vec<_> = ["timestamp", "level", "event", "message", "target", "child"]
            .iter()
            .map(|name| line.find(&format!("\"{name}\":")).expect("a member"))
            .collect();
        assert!(positions.is_sorted(), "{line}");
    }

    #[test]
    fn event_without_a_name_is_named_after_its_target() {
        let logs = capture();

        tracing::info!("bare");
        tracing::info!(target: "", "no target");
        tracing::info!(event = "child_restarted", generation = 2);

        let lines = logs.lines();
        assert_eq!(lines[0]["event"], "telemetry::logging::capture::tests");
        assert_eq!(lines[1]["event"], "log");
        assert_eq!(lines[2]["message"], "child_restarted");
    }

    #[test]
    fn field_named_like_a_standard_member_is_renamed_and_no_name_repeats() {
        let logs = capture();

        tracing::info!(level = "CRITICAL", target = 1, timestamp = 2, lag = 3, lag = 4, "pressure rose");

        let text = logs.text();
        let line = &logs.lines()[0];
        assert_eq!((&line["level"], &line["level_"]), (&json!("INFO"), &json!("CRITICAL")));
        assert_eq!((&line["target_"], &line["timestamp_"], &line["lag"]), (&json!(1), &json!(2), &json!(4)));
        assert_eq!(text.matches("\"lag\":").count(), 1);
    }

    #[test]
    fn line_breaks_in_values_do_not_break_the_line() {
        let logs = capture();

        tracing::error!(error = "first\nsecond \"quoted\" \u{1b}[31m \u{2028}", "went\r\nwrong");

        assert_eq!(logs.text().lines().count(), 1);
        assert_eq!(logs.lines()[0]["message"], "went\r\nwrong");
    }

    #[test]
    fn error_is_written_with_its_causes() {
        let logs = capture();
        let invalid = super::super::filter::filter::<tracing_subscriber::Registry>("posthaste=inof")
            .err()
            .expect("an invalid level");

        tracing::error!(error = &invalid as &(dyn std::error::Error + 'static), "could not start");

        let error = logs.lines()[0]["error"].as_str().expect("text").to_owned();
        let cause = std::error::Error::source(&invalid).expect("a cause").to_string();
        assert!(error.starts_with(&format!("{invalid}: {cause}")), "{error}");
    }
}
