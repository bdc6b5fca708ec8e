//! One log event as data: time, level, event name, message and the fields as JSON values.

use std::error::Error;
use std::fmt::Debug;

use jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Number, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// The content of one JSON log line.
pub(crate) struct LogLine {
    time: Timestamp,
    level: Level,
    /// The value of the `event` field, otherwise the event's target.
    event: String,
    /// The formatted message, otherwise the event name.
    message: String,
    target: &'static str,
    /// In the order of the call; when a name occurs twice, the later value.
    fields: Vec<(&'static str, Value)>,
}

impl LogLine {
    /// Adds fields of the event's surroundings. Those that the line has already stay: the innermost value of a name counts.
    pub(crate) fn add_span_fields<'a>(&mut self, fields: impl IntoIterator<Item = &'a (&'static str, Value)>) {
        for (name, value) in fields {
            if !self.fields.iter().any(|(existing, _)| existing == name) {
                self.fields.push((name, value.clone()));
            }
        }
    }

    /// Reads the tracing event. The time is the system clock's, because logs of several machines are compared.
    pub(crate) fn read(event: &Event<'_>) -> Self {
        let mut visitor = FieldVisitor::default();
        event.record(&mut visitor);
        let target = event.metadata().target();
        let default_name = if target.is_empty() { "log" } else { target };
        let name = visitor.event.filter(|name| !name.is_empty()).unwrap_or_else(|| default_name.to_owned());
        Self {
            time: Timestamp::now(),
            level: *event.metadata().level(),
            message: visitor.message.unwrap_or_else(|| name.clone()),
            event: name,
            target,
            fields: visitor.fields,
        }
    }
}

impl Serialize for LogLine {
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

/// Collects the fields of an event or a span.
#[derive(Default)]
pub(crate) struct FieldVisitor {
    event: Option<String>,
    message: Option<String>,
    fields: Vec<(&'static str, Value)>,
}

impl FieldVisitor {
    /// The collected fields, except the name and the message of an event.
    pub(crate) fn into_fields(self) -> Vec<(&'static str, Value)> {
        self.fields
    }

    fn add(&mut self, field: &Field, value: Value) {
        match field.name() {
            "event" => self.event = Some(text(value)),
            "message" => self.message = Some(text(value)),
            // These names are members of every line, and a JSON object must not repeat a name.
            "timestamp" => self.add_field("timestamp_", value),
            "level" => self.add_field("level_", value),
            "target" => self.add_field("target_", value),
            // Raw identifiers such as r#type keep their prefix in the field name.
            name => self.add_field(name.strip_prefix("r#").unwrap_or(name), value),
        }
    }

    fn add_field(&mut self, name: &'static str, value: Value) {
        self.fields.retain(|(existing, _)| *existing != name);
        self.fields.push((name, value));
    }
}

impl Visit for FieldVisitor {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        let number = Number::from_i128(value).map(Value::Number);
        self.add(field, number.unwrap_or_else(|| value.to_string().into()));
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        let number = Number::from_u128(value).map(Value::Number);
        self.add(field, number.unwrap_or_else(|| value.to_string().into()));
    }

    /// NaN and infinities become `null`, because JSON has no number for them.
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let chain: Vec<String> =
            std::iter::successors(Some(value), |&error| error.source()).map(|error| error.to_string()).collect();
        self.add(field, chain.join(": ").into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, format!("{value:?}").into());
    }
}

fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
