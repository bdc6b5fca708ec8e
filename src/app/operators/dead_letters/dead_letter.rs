//! One dead letter: what its headers tell of its journey, and the record that goes back.
use std::sync::Arc;
use std::time::Duration;

use domain::Timestamp;
use ports::FailureType;
use ports::broker::{Header, Record};
use ports::redrives::{DeadLetterId, RedriveRecord};
use ports::source::Delivery;

use super::position::DeadLetterCursor;

/// What the way into the dead letters wrote; a record that goes back begins its journey anew.
const JOURNEY: [&str; 9] = [
    "kafka_original-topic",
    "kafka_original-partition",
    "kafka_original-offset",
    "kafka_original-timestamp",
    "kafka_exception-fqcn",
    "kafka_exception-message",
    "retry_topic-attempts",
    "x-failure-type",
    "x-detour-round",
];

/// A dead letter, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The record and its place among the dead letters.
    pub delivery: Delivery,
    /// Who sent it back, if anybody did.
    pub redrive: Option<RedriveRecord>,
}

/// Where a letter stood before it failed: as much of it as its headers tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterOrigin {
    /// Which topic.
    pub topic: String,
    /// Which of its partitions.
    pub partition: Option<i32>,
    /// Which place.
    pub offset: Option<i64>,
    /// The record's time there.
    pub timestamp: Option<Timestamp>,
}

impl DeadLetter {
    /// Its event's type.
    pub fn kind(&self) -> Option<&str> {
        self.text("ce_type")
    }

    /// Its event's name.
    pub fn event_id(&self) -> Option<&str> {
        self.text("ce_id")
    }

    /// Where its last failure came from.
    pub fn failure_type(&self) -> Option<FailureType> {
        self.text("x-failure-type").and_then(FailureType::parse)
    }

    /// What kind of error set it aside, as other consumers of this topic name it.
    pub fn exception(&self) -> Option<&str> {
        self.text("kafka_exception-fqcn")
    }

    /// Why it was set aside.
    pub fn reason(&self) -> Option<&str> {
        self.text("kafka_exception-message")
    }

    /// Attempts before it was set aside.
    pub fn attempts(&self) -> Option<u32> {
        self.text("retry_topic-attempts")?.parse().ok()
    }

    /// Where it stood before it failed.
    pub fn origin(&self) -> Option<DeadLetterOrigin> {
        let topic = self.text("kafka_original-topic")?.to_owned();
        let record = &self.delivery.record;
        let long = |name| record.header(name)?.try_into().ok().map(i64::from_be_bytes);
        let partition = || record.header("kafka_original-partition")?.try_into().ok().map(i32::from_be_bytes);
        Some(DeadLetterOrigin {
            topic,
            partition: partition(),
            offset: long("kafka_original-offset"),
            timestamp: long("kafka_original-timestamp").map(Timestamp::from_millis),
        })
    }

    /// Whether it stands in its topic again.
    pub fn is_redriven(&self) -> bool {
        self.redrive.as_ref().is_some_and(|redrive| redrive.confirmed)
    }

    /// Its name in the store's memory.
    pub(super) fn name(&self) -> DeadLetterId {
        name(&self.delivery)
    }

    /// The record that goes back: the event as it was, without its journey, and who sent it.
    pub(super) fn back(&self, topic: &Arc<str>, who: &str, now: Timestamp) -> Record {
        let Record { key, headers, value, .. } = &self.delivery.record;
        let ours = |(name, _): &&Header| !JOURNEY.contains(&&**name) && &**name != REDRIVEN_BY;
        let mut headers: Vec<Header> = headers.iter().filter(ours).cloned().collect();
        headers.push((REDRIVEN_BY.into(), who.as_bytes().into()));
        Record { topic: Arc::clone(topic), key: Arc::clone(key), headers, value: Arc::clone(value), timestamp: now }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.delivery.record.text(name)
    }
}

/// Names whoever sent a record back.
const REDRIVEN_BY: &str = "x-redriven-by";

pub(super) fn name(delivery: &Delivery) -> DeadLetterId {
    DeadLetterId { position: delivery.position.clone(), timestamp: delivery.record.timestamp }
}

/// Which letters are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// Of this key.
    pub key: Option<String>,
    /// Of this event type.
    pub kind: Option<String>,
    /// Failed this way.
    pub failure_type: Option<FailureType>,
    /// Set aside at least so long ago.
    pub older_than: Option<Duration>,
    /// ReplayReport back or not.
    pub redriven: Option<bool>,
    /// Strictly behind this.
    pub after: Option<DeadLetterCursor>,
}

impl DeadLetterFilter {
    pub(super) fn lets(&self, letter: &DeadLetter, now: Timestamp) -> bool {
        let Self { key, kind, failure_type, older_than, redriven, after: _ } = self;
        let record = &letter.delivery.record;
        key.as_ref().is_none_or(|key| **key == *record.key)
            && kind.as_ref().is_none_or(|kind| Some(&**kind) == letter.kind())
            && failure_type.is_none_or(|failure| Some(failure) == letter.failure_type())
            && older_than.is_none_or(|age| now.since(record.timestamp) >= age)
            && redriven.is_none_or(|redriven| redriven == letter.is_redriven())
    }
}
