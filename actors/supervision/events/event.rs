//! One supervision event: a fact about the tree, as the event stream and the log carry it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use crate::child::exit::ExitReason;

/// One fact about the tree. Fields that only some events have are in `fields`.
#[derive(Clone, Debug)]
pub struct SupervisionEvent {
    /// Position on the stream, from [`Options::first_event_seq`](crate::Options::first_event_seq), without gaps.
    pub seq: u64,
    /// The instant of the fact. Its wall-clock time is "now minus `at.elapsed()`".
    pub at: Instant,
    /// The event's name: one of this crate's catalogue, such as `child_exited`, or one given to
    /// [`SupervisionBus::publish_external`](crate::SupervisionBus::publish_external).
    pub event: &'static str,
    /// ERROR: a human must act; WARN: the tree recovered; INFO: normal life cycle.
    pub level: Level,
    /// Path of the supervisor, or its name if it has no path. Empty for events without a supervisor.
    pub supervisor: Arc<str>,
    /// Path of the child; the supervisor's own when the event is about the supervisor. Empty for events without a child.
    pub child: Arc<str>,
    /// `worker` for an actor, `supervisor`, or empty.
    pub child_type: &'static str,
    /// The actor's kind, such as `PartitionWorker`; empty for supervisors.
    pub kind: &'static str,
    /// The incarnation's number, from 1; 0 for events without a child.
    pub generation: u64,
    /// An exit reason as [`ExitReason::as_str`] returns it, or the reason of `message_unhandled`.
    pub reason: Option<&'static str>,
    /// All other fields, in the order in which the event's producer added them.
    pub fields: Vec<(&'static str, FieldValue)>,
}

/// The value of an event's field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// Free text or one of a closed set of words.
    Text(String),
    /// A count, or a time in the unit that ends the field's name.
    Number(u64),
}

impl SupervisionEvent {
    pub(crate) fn new(event: &'static str, level: Level) -> SupervisionEvent {
        SupervisionEvent {
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

    pub(crate) fn with_text(mut self, name: &'static str, value: impl Into<String>) -> SupervisionEvent {
        self.fields.push((name, FieldValue::Text(value.into())));
        self
    }

    pub(crate) fn with_number(mut self, name: &'static str, value: u64) -> SupervisionEvent {
        self.fields.push((name, FieldValue::Number(value)));
        self
    }

    pub(crate) fn with_millis(self, name: &'static str, value: Duration) -> SupervisionEvent {
        self.with_number(name, u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    /// Sets `reason` and adds the reason's `detail`, and for a panic its `location` and `message`.
    pub(crate) fn with_reason(mut self, reason: &ExitReason) -> SupervisionEvent {
        self.reason = Some(reason.as_str());
        if let Some(detail) = reason.detail() {
            self = self.with_text("detail", detail);
        }
        if let ExitReason::Panic { location, message, .. } = reason {
            self = self.with_text("location", location.as_str());
            if let Some(message) = message {
                self = self.with_text("message", *message);
            }
        }
        self
    }

    /// The text field of that name, if the event has one.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.fields.iter().find_map(|(field, value)| match value {
            FieldValue::Text(text) if *field == name => Some(text.as_str()),
            FieldValue::Text(_) | FieldValue::Number(_) => None,
        })
    }

    /// The number field of that name, if the event has one.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.fields.iter().find_map(|(field, value)| match value {
            FieldValue::Number(number) if *field == name => Some(*number),
            FieldValue::Text(_) | FieldValue::Number(_) => None,
        })
    }
}
