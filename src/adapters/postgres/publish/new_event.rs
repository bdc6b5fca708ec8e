//! An event that a caller publishes in its own transaction.
use std::fmt;

use outbox::event_rules::{
    EventRuleError, PAYLOAD_BYTES_MAX, check_content_type, check_headers, check_topic, check_type,
};
use outbox::{EventKey, EventKeyError};
use uuid::Uuid;

/// Headers that a caller may set although the relay writes them: the trace context and the request's id of the event.
const CONTEXT_HEADERS: [&str; 3] = ["traceparent", "tracestate", "x-request-id"];

/// An event that [`publish`](crate::publish) writes to the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent<'a> {
    pub(super) topic: &'a str,
    pub(super) key: &'a str,
    pub(super) event_type: &'a str,
    pub(super) payload: &'a [u8],
    pub(super) headers: Vec<(&'a str, &'a str)>,
    pub(super) content_type: &'a str,
    pub(super) event_id: Option<Uuid>,
}

impl<'a> NewEvent<'a> {
    /// An event with a JSON payload. `topic` is the full name of the topic; events of one `key` are sent in the order of their commits.
    pub fn new(topic: &'a str, key: &'a str, event_type: &'a str, payload: &'a [u8]) -> Self {
        let content_type = "application/json";
        Self { topic, key, event_type, payload, headers: Vec::new(), content_type, event_id: None }
    }

    /// Adds a header. `traceparent`, `tracestate` and `x-request-id` are the trace context and the request's id of the event.
    #[must_use]
    pub fn header(mut self, name: &'a str, value: &'a str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Sets the media type of the payload.
    #[must_use]
    pub fn content_type(mut self, content_type: &'a str) -> Self {
        self.content_type = content_type;
        self
    }

    /// Sets the id of the event: an id that was published before is published once.
    #[must_use]
    pub fn event_id(mut self, event_id: Uuid) -> Self {
        self.event_id = Some(event_id);
        self
    }

    /// Checks the rules that the server checks too: a refusal by the server would abort the caller's transaction.
    ///
    /// # Errors
    /// The first rule that the event breaks.
    pub fn check(&self) -> Result<(), EventRefusal> {
        check_topic(self.topic)?;
        EventKey::from_text(self.key).check()?;
        check_type(self.event_type)?;
        check_content_type(self.content_type)?;
        let own = self.headers.iter().filter(|(name, _)| !CONTEXT_HEADERS.contains(name));
        check_headers(own.map(|(name, value)| (*name, value.len())))?;
        if let Some((name, _)) = self.headers.iter().find(|(_, value)| value.contains('\0')) {
            return Err(EventRefusal::ZeroByte((*name).to_owned()));
        }
        if self.payload.len() > PAYLOAD_BYTES_MAX {
            return Err(EventRefusal::PayloadTooLarge(self.payload.len()));
        }
        Ok(())
    }

    /// The headers as a JSON object; of a repeated name the last value counts. `None` without headers.
    pub(super) fn headers_json(&self) -> Option<String> {
        let object = |(name, value): &(&str, &str)| ((*name).to_owned(), serde_json::Value::from(*value));
        let headers: serde_json::Map<_, _> = self.headers.iter().map(object).collect();
        (!headers.is_empty()).then(|| serde_json::Value::Object(headers).to_string())
    }
}

/// A rule that an event breaks. Nothing was sent to the server, so the transaction continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventRefusal {
    /// The key is empty, too long, or has a control character.
    Key(EventKeyError),
    /// The topic, the type, the content type or a header breaks a rule.
    Rule(EventRuleError),
    /// The payload has more than [`PAYLOAD_BYTES_MAX`] bytes: this many.
    PayloadTooLarge(usize),
    /// The value of this header has a zero byte, which PostgreSQL's texts cannot have.
    ZeroByte(String),
    /// Only the service writes this topic: a retry topic, a topic of dead letters, watermarks or webhooks.
    InternalTopic(String),
}

impl fmt::Display for EventRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventRefusal::Key(error) => error.fmt(f),
            EventRefusal::Rule(error) => error.fmt(f),
            EventRefusal::PayloadTooLarge(bytes) => {
                write!(f, "its payload has {bytes} bytes, the limit is {PAYLOAD_BYTES_MAX}")
            }
            EventRefusal::ZeroByte(name) => write!(f, "the value of the header {name:?} has a zero byte"),
            EventRefusal::InternalTopic(name) => write!(f, "only the service writes the topic {name:?}"),
        }
    }
}

impl std::error::Error for EventRefusal {}

impl From<EventKeyError> for EventRefusal {
    fn from(error: EventKeyError) -> Self {
        EventRefusal::Key(error)
    }
}

impl From<EventRuleError> for EventRefusal {
    fn from(error: EventRuleError) -> Self {
        EventRefusal::Rule(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_breaks_a_rule_is_refused_before_it_is_sent() {
        let event = |topic, key, event_type| NewEvent::new(topic, key, event_type, b"{}");
        let large = vec![0; PAYLOAD_BYTES_MAX + 1];
        let refused = [
            event("a/b", "k", "t"),
            event("a", "", "t"),
            event("a", "k\n", "t"),
            event("a", "k", ""),
            event("a", "k", "t").content_type(""),
            event("a", "k", "t").header("ce_id", "1"),
            event("a", "k", "t").header("tenant", "\0"),
            NewEvent::new("a", "k", "t", &large),
        ];

        for event in refused {
            assert!(event.check().is_err(), "{:?} {:?} {:?}", event.topic, event.key, event.headers);
        }
        let legal =
            event("a", "k", "t").header("tenant", "blue").header("traceparent", "any").content_type("text/plain");
        assert_eq!(legal.check(), Ok(()));
        assert_eq!(legal.headers_json().as_deref(), Some(r#"{"tenant":"blue","traceparent":"any"}"#));
    }
}
