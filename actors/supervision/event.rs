//! One fact about the tree, as it stands on the live stream and in the log.

use std::sync::Arc;

use tokio::time::Instant;
use tracing::Level;

/// One fact. What only some events carry stands in `fields`.
#[derive(Clone, Debug)]
pub struct Event {
    /// Position on the stream, from 1, without gaps.
    pub seq: u64,
    /// When it happened. Wall-clock time is "now minus `at.elapsed()`", for whoever needs it.
    pub at: Instant,
    /// What happened: a word of the vocabulary such as `child_exited`, or the name of a foreign note.
    pub event: &'static str,
    /// Weight: ERROR = a human must act, WARN = we coped, INFO = life cycle.
    pub level: Level,
    /// Path (or, where it stands in no path, name) of the supervisor. Empty where none is concerned.
    pub supervisor: Arc<str>,
    /// Path of the child the fact is about; the supervisor's own where the fact is about itself. Empty where none is concerned.
    pub child: Arc<str>,
    /// `worker`, `supervisor`, or empty.
    pub child_type: &'static str,
    /// The actor's kind, such as `PartitionWorker`; empty for supervisors.
    pub kind: &'static str,
    /// Which incarnation, from 1; 0 where none is concerned.
    pub generation: u64,
    /// A word of the closed set of [`Reason::word`](crate::Reason::word), or a dead letter's reason.
    pub reason: Option<&'static str>,
    /// Everything else, flat, in the order of the vocabulary.
    pub fields: Vec<(&'static str, Value)>,
}

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Free or closed text.
    Text(String),
    /// A count, or a time in the unit that ends the field's name.
    Number(u64),
}

impl Event {
    pub(crate) fn new(event: &'static str, level: Level) -> Event {
        Event {
            seq: 0,
            at: Instant::now(),
            event,
            level,
            supervisor: "".into(),
            child: "".into(),
            child_type: "",
            kind: "",
            generation: 0,
            reason: None,
            fields: Vec::new(),
        }
    }

    pub(crate) fn text(mut self, name: &'static str, value: impl Into<String>) -> Event {
        self.fields.push((name, Value::Text(value.into())));
        self
    }

    pub(crate) fn number(mut self, name: &'static str, value: u64) -> Event {
        self.fields.push((name, Value::Number(value)));
        self
    }

    pub(crate) fn millis(self, name: &'static str, value: std::time::Duration) -> Event {
        self.number(name, u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    /// Puts a reason's word, detail, location and message into their fields.
    pub(crate) fn because(mut self, reason: &crate::Reason) -> Event {
        self.reason = Some(reason.word());
        if let Some(detail) = reason.detail() {
            self = self.text("detail", detail);
        }
        if let crate::Reason::Panic { location, message, .. } = reason {
            self = self.text("location", location.as_str());
            if let Some(message) = message {
                self = self.text("message", *message);
            }
        }
        self
    }

    /// The text field of that name, if the event carries it.
    pub fn get_text(&self, name: &str) -> Option<&str> {
        self.fields.iter().find_map(|(n, value)| match value {
            Value::Text(text) if *n == name => Some(text.as_str()),
            Value::Text(_) | Value::Number(_) => None,
        })
    }

    /// The number field of that name, if the event carries it.
    pub fn get_number(&self, name: &str) -> Option<u64> {
        self.fields.iter().find_map(|(n, value)| match value {
            Value::Number(number) if *n == name => Some(*number),
            Value::Text(_) | Value::Number(_) => None,
        })
    }
}
