//! One logged fact, read out of a tracing event: who said it, what happened, and its fields as JSON values.

use std::error::Error;
use std::fmt::Debug;

use jiff::Timestamp;
use serde_json::{Number, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// What both formats print.
pub(crate) struct Fact {
    pub(crate) time: Timestamp,
    pub(crate) level: Level,
    /// The caller's `event` field, else the target's name.
    pub(crate) event: String,
    /// The caller's text, else the event once more.
    pub(crate) message: String,
    pub(crate) target: &'static str,
    /// In the caller's order; of two with one name the later one.
    pub(crate) fields: Vec<(&'static str, Value)>,
}

impl Fact {
    /// Reads the event. The clock is the system's, because a log is read beside other machines' logs.
    pub(crate) fn read(event: &Event<'_>) -> Self {
        let mut reader = Reader::default();
        event.record(&mut reader);
        let target = event.metadata().target();
        let name = reader.event.filter(|name| !name.is_empty()).unwrap_or_else(|| name_of(target));
        Self {
            time: Timestamp::now(),
            level: *event.metadata().level(),
            message: reader.message.unwrap_or_else(|| name.clone()),
            event: name,
            target,
            fields: reader.fields,
        }
    }
}

impl Fact {
    /// That so many lines found no room.
    pub(crate) fn lost(lines: u64) -> Self {
        Self {
            time: Timestamp::now(),
            level: Level::WARN,
            event: "log_lines_lost".to_owned(),
            message: "whoever reads this log had stopped reading, and the service went on".to_owned(),
            target: module_path!(),
            fields: vec![("lines", lines.into())],
        }
    }
}

fn name_of(target: &str) -> String {
    if target.is_empty() { "log".to_owned() } else { target.to_owned() }
}

#[derive(Default)]
struct Reader {
    event: Option<String>,
    message: Option<String>,
    fields: Vec<(&'static str, Value)>,
}

impl Reader {
    fn put(&mut self, field: &Field, value: Value) {
        match field.name() {
            "event" => self.event = Some(text(value)),
            "message" => self.message = Some(text(value)),
            // Ours stand at the same level, and one object cannot hold a name twice.
            "timestamp" => self.put_field("timestamp_", value),
            "level" => self.put_field("level_", value),
            "target" => self.put_field("target_", value),
            // Raw identifiers such as r#type arrive with their prefix.
            name => self.put_field(name.strip_prefix("r#").unwrap_or(name), value),
        }
    }

    fn put_field(&mut self, name: &'static str, value: Value) {
        self.fields.retain(|(known, _)| *known != name);
        self.fields.push((name, value));
    }
}

impl Visit for Reader {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        let number = Number::from_i128(value).map(Value::Number);
        self.put(field, number.unwrap_or_else(|| value.to_string().into()));
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        let number = Number::from_u128(value).map(Value::Number);
        self.put(field, number.unwrap_or_else(|| value.to_string().into()));
    }

    /// What JSON has no number for (NaN, infinities) becomes `null`.
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let chain: Vec<String> =
            std::iter::successors(Some(value), |&error| error.source()).map(|error| error.to_string()).collect();
        self.put(field, chain.join(": ").into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}").into());
    }
}

fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
