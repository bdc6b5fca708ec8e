//! The format for machines: one flat JSON object a line.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::fact::Fact;

/// The fact as one line, its end included.
pub(crate) fn json_line(fact: &Fact) -> String {
    let mut line = serde_json::to_string(fact).expect("a map of strings to plain values always has a JSON form");
    line.push('\n');
    line
}

impl Serialize for Fact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(5 + self.fields.len()))?;
        map.serialize_entry("timestamp", &format_args!("{:.3}", self.time))?;
        map.serialize_entry("level", self.level.as_str())?;
        map.serialize_entry("event", &self.event)?;
        map.serialize_entry("message", &self.message)?;
        map.serialize_entry("target", self.target)?;
        for (name, value) in &self.fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::logging::capture;

    #[test]
    fn fields_stand_flat_beside_ours_and_keep_their_types() {
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
                "target": "telemetry::json_line::tests",
                "address": "127.0.0.1:8080", "port": 8080, "offset": -3, "big": u128::MAX.to_string(), "small": 7,
                "share": 0.5, "nothing": null, "ready": true, "list": "[1, 2]", "type": "ORDER_CREATED",
            })
        );
        let timestamp = timestamp.as_str().expect("a string");
        assert_eq!((timestamp.len(), &timestamp[19..20], &timestamp[23..]), (24, ".", "Z"), "{timestamp}");
    }

    #[test]
    fn our_members_come_first() {
        let logs = capture();

        tracing::warn!(child = "/consumer-0", event = "child_exited", "a child exited");

        let line = logs.text();
        let places: Vec<_> = ["timestamp", "level", "event", "message", "target", "child"]
            .iter()
            .map(|name| line.find(&format!("\"{name}\":")).expect("a member"))
            .collect();
        assert!(places.is_sorted(), "{line}");
    }

    #[test]
    fn an_event_without_a_name_takes_its_targets() {
        let logs = capture();

        tracing::info!("bare");
        tracing::info!(target: "", "nobody");
        tracing::info!(event = "child_restarted", generation = 2);

        let lines = logs.lines();
        assert_eq!(lines[0]["event"], "telemetry::json_line::tests");
        assert_eq!(lines[1]["event"], "log");
        assert_eq!(lines[2]["message"], "child_restarted");
    }

    #[test]
    fn a_field_named_as_one_of_ours_steps_aside_and_no_name_stands_twice() {
        let logs = capture();

        tracing::info!(level = "CRITICAL", target = 1, timestamp = 2, lag = 3, lag = 4, "pressure rose");

        let text = logs.text();
        let line = &logs.lines()[0];
        assert_eq!((&line["level"], &line["level_"]), (&json!("INFO"), &json!("CRITICAL")));
        assert_eq!((&line["target_"], &line["timestamp_"], &line["lag"]), (&json!(1), &json!(2), &json!(4)));
        assert_eq!(text.matches("\"lag\":").count(), 1);
    }

    #[test]
    fn a_line_stays_one_line_whatever_it_carries() {
        let logs = capture();

        tracing::error!(error = "first\nsecond \"quoted\" \u{1b}[31m \u{2028}", "went\r\nwrong");

        assert_eq!(logs.text().lines().count(), 1);
        assert_eq!(logs.lines()[0]["message"], "went\r\nwrong");
    }

    #[test]
    fn an_error_is_written_with_its_causes() {
        let logs = capture();
        let broken = crate::logging::check_level("posthaste=inof").expect_err("no level");

        tracing::error!(error = &broken as &(dyn std::error::Error + 'static), "could not start");

        let error = logs.lines()[0]["error"].as_str().expect("text").to_owned();
        let cause = std::error::Error::source(&broken).expect("a cause").to_string();
        assert!(error.starts_with(&format!("{broken}: {cause}")), "{error}");
    }
}
