//! An event on the console's stream: its data with the time, the severity and the sentence that the page shows.
use app::contract::rfc3339;
use app::dispatch::LiveEvent;
use domain::Timestamp;
use serde_json::{Value, json};

use super::sentence::describe;

/// The event with its data as one line of JSON.
pub(super) fn stream_line(event: &LiveEvent, now: Timestamp) -> LiveEvent {
    let (severity, sentence) = describe(&event.event, &event.data);
    let at = rfc3339(Timestamp::from_millis(now.millis() - event.age.as_millis() as i64));
    let data: Value = serde_json::from_str(&event.data).unwrap_or_else(|_| Value::String(event.data.clone()));
    let line = json!({"at": at, "severity": severity.as_str(), "sentence": sentence, "data": data});
    LiveEvent { data: line.to_string(), ..event.clone() }
}
