//! SpanData: a span as it is recorded, until the exporter encodes it.

use std::time::{Duration, SystemTime};

use super::context::SpanContext;

/// The role of a span, with the number that OTLP gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Work inside the process.
    Internal = 1,
    /// A request that a client sent.
    Server = 2,
    /// A call of another system.
    Client = 3,
    /// A message that is given to a broker.
    Producer = 4,
    /// A message that is taken from a broker.
    Consumer = 5,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    Text(String),
    Integer(i64),
    Double(f64),
    Flag(bool),
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for AttributeValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<u64> for AttributeValue {
    /// A number beyond OTLP's range becomes its largest one.
    fn from(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for AttributeValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// A time in milliseconds with three decimals.
impl From<Duration> for AttributeValue {
    fn from(duration: Duration) -> Self {
        Self::Double((duration.as_secs_f64() * 1e6).round() / 1e3)
    }
}

/// A span with all that its export needs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SpanData {
    pub(super) context: SpanContext,
    /// Span id of the parent; `None` at the root of a trace.
    pub(super) parent: Option<u64>,
    pub(super) kind: SpanKind,
    pub(super) name: String,
    pub(super) started_at: SystemTime,
    pub(super) duration: Duration,
    pub(super) attributes: Vec<(&'static str, AttributeValue)>,
    pub(super) is_error: bool,
}
