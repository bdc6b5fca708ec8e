//! One dead letter: its headers as values, its filter, and the record that redrives it.
use std::sync::Arc;
use std::time::Duration;

use domain::{Timestamp, WebhookId};
use outbox::topics::{WEBHOOK_HEADER, dead_letter_topic};
use ports::FailureType;
use ports::broker::Record;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::operators::redrives::{DeadLetterId, RedriveRecord};

use super::position::{DeadLetterCursor, DeadLetterPosition};
use crate::consume::forward::{OMITTED_VALUE_BYTES, is_failure_header};
use crate::consume::spring_headers;

/// A dead letter with the record of its redrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The record and its position in the dead-letter topic.
    pub message: ConsumerRecord,
    /// Its entry in the redrive ledger, if it was reserved.
    pub redrive: Option<RedriveRecord>,
}

/// Position of a record before it failed, as far as its headers have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterOrigin {
    /// Full name of the topic.
    pub topic: String,
    /// Partition of the topic.
    pub partition: Option<i32>,
    /// Offset in the partition.
    pub offset: Option<i64>,
    /// Timestamp of the record there.
    pub timestamp: Option<Timestamp>,
}

impl DeadLetter {
    /// Event type, from its headers.
    pub fn event_type(&self) -> Option<&str> {
        self.text("ce_type")
    }

    /// Event id, from its headers.
    pub fn event_id(&self) -> Option<&str> {
        self.text("ce_id")
    }

    /// Class of its last failure.
    pub fn failure_type(&self) -> Option<FailureType> {
        self.text(spring_headers::FAILURE_TYPE).and_then(FailureType::parse)
    }

    /// Class name of the error, in the form of the Java consumers of this topic.
    pub fn exception(&self) -> Option<&str> {
        self.text(spring_headers::EXCEPTION_FQCN)
    }

    /// Message of its last failure.
    pub fn reason(&self) -> Option<&str> {
        self.text(spring_headers::EXCEPTION_MESSAGE)
    }

    /// Number of attempts before it was dead-lettered.
    pub fn attempts(&self) -> Option<u32> {
        spring_headers::attempts_made(&self.message.record)
    }

    /// Position of the record before its first failure.
    pub fn origin(&self) -> Option<DeadLetterOrigin> {
        let record = &self.message.record;
        let timestamp = || record.header(spring_headers::ORIGINAL_TIMESTAMP)?.try_into().ok().map(i64::from_be_bytes);
        Some(DeadLetterOrigin {
            topic: spring_headers::original_topic(record)?.to_owned(),
            partition: spring_headers::original_partition(record),
            offset: spring_headers::original_offset(record),
            timestamp: timestamp().map(Timestamp::from_millis),
        })
    }

    /// Its position in the dead-letter topic.
    pub fn position(&self) -> DeadLetterPosition {
        let position = &self.message.position;
        DeadLetterPosition { partition: position.partition, offset: position.offset }
    }

    /// The webhook whose endpoint did not accept it.
    pub fn webhook(&self) -> Option<WebhookId> {
        self.text(WEBHOOK_HEADER).and_then(WebhookId::parse)
    }

    /// Whether it was redriven to its topic.
    pub fn is_redriven(&self) -> bool {
        self.redrive.as_ref().is_some_and(|redrive| redrive.confirmed)
    }

    /// Whether the broker refused its value, so that there is nothing to redrive. A producer of another system may send the header with a value.
    pub fn lacks_value(&self) -> bool {
        let record = &self.message.record;
        record.value.is_empty() && record.header(OMITTED_VALUE_BYTES).is_some()
    }

    /// Its id in the redrive ledger.
    pub(super) fn id(&self) -> DeadLetterId {
        id(&self.message)
    }

    /// The record that redrives it: the original event without failure headers, so that its attempts count from zero, and the operator. In
    /// another topic than its own it keeps its origin, from which a webhook takes the id of a record that is no event.
    pub(super) fn redrive_record(&self, topic: &Arc<str>, operator: &str, now: Timestamp) -> Record {
        let Record { key, headers, value, .. } = &self.message.record;
        let added = |name: &str| is_failure_header(name) || name == REDRIVEN_BY;
        let moves = dead_letter_topic(topic) != *self.message.position.topic;
        let mut headers = headers.filtered(|name| !added(name) || moves && spring_headers::ORIGIN.contains(&name));
        headers.push(REDRIVEN_BY, operator.as_bytes());
        Record { topic: Arc::clone(topic), key: Arc::clone(key), headers, value: Arc::clone(value), timestamp: now }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.message.record.text(name)
    }
}

/// Header with the operator who redrove a record.
pub(crate) const REDRIVEN_BY: &str = "x-redriven-by";

pub(super) fn id(message: &ConsumerRecord) -> DeadLetterId {
    DeadLetterId { position: message.position.clone(), timestamp: message.record.timestamp }
}

/// Conditions that listed dead letters meet; `None` matches every one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// Record key of the dead letter.
    pub key: Option<String>,
    /// Event type by its name.
    pub event_type: Option<String>,
    /// Class of the last failure.
    pub failure_type: Option<FailureType>,
    /// Dead-lettered at least this long ago.
    pub older_than: Option<Duration>,
    /// Whether it was redriven.
    pub redriven: Option<bool>,
    /// The webhook whose endpoint did not accept it.
    pub webhook: Option<WebhookId>,
    /// Position after which the page begins.
    pub after: Option<DeadLetterCursor>,
}

impl DeadLetterFilter {
    pub(super) fn matches(&self, dead_letter: &DeadLetter, now: Timestamp) -> bool {
        let Self { key, event_type, failure_type, older_than, redriven, webhook, after: _ } = self;
        let record = &dead_letter.message.record;
        key.as_ref().is_none_or(|key| **key == *record.key)
            && event_type.as_ref().is_none_or(|event_type| Some(&**event_type) == dead_letter.event_type())
            && failure_type.is_none_or(|failure| Some(failure) == dead_letter.failure_type())
            && older_than.is_none_or(|age| now.since(record.timestamp) >= age)
            && redriven.is_none_or(|redriven| redriven == dead_letter.is_redriven())
            && webhook.is_none_or(|id| dead_letter.webhook() == Some(id))
    }
}

#[cfg(test)]
mod tests {
    use ports::broker::{NULL_VALUE, Position, RAW_KEY};

    use super::*;
    use crate::consume::webhooks::delivery::message_id;

    /// The dead letter of a record that was the seventh of partition 3 of its topic.
    fn dead_letter(dead_letter_topic: &str) -> DeadLetter {
        let headers: [(&str, &[u8]); 5] = [
            (spring_headers::ORIGINAL_TOPIC, b"customers"),
            (spring_headers::ORIGINAL_PARTITION, &3_i32.to_be_bytes()),
            (spring_headers::ORIGINAL_OFFSET, &7_i64.to_be_bytes()),
            (spring_headers::ATTEMPTS, &5_i32.to_be_bytes()),
            ("tenant", b"blue"),
        ];
        let headers = headers.into_iter().collect();
        let (topic, timestamp): (Arc<str>, _) = (dead_letter_topic.into(), Timestamp::from_millis(0));
        let record = Record { topic: Arc::clone(&topic), key: "k".into(), headers, value: [].into(), timestamp };
        DeadLetter {
            message: ConsumerRecord { position: Position { topic, partition: 0, offset: 1 }, record },
            redrive: None,
        }
    }

    fn redriven(dead_letter_topic: &str, topic: &str) -> ConsumerRecord {
        let record = dead_letter(dead_letter_topic).redrive_record(&topic.into(), "olga", Timestamp::from_millis(1));
        ConsumerRecord { position: Position { topic: topic.into(), partition: 0, offset: 9 }, record }
    }

    #[test]
    fn dead_letter_with_a_value_can_be_redriven_whatever_its_headers() {
        let mut dead_letter = dead_letter("customers-dlt");
        dead_letter.message.record.headers.push(OMITTED_VALUE_BYTES, b"9");
        assert!(dead_letter.lacks_value());

        dead_letter.message.record.value = b"{}".as_slice().into();

        assert!(!dead_letter.lacks_value());
    }

    #[test]
    fn dead_letter_of_a_webhook_keeps_the_id_of_its_message_when_it_is_redriven() {
        let message = redriven("webhooks-dlt", "webhooks-retry-0");

        assert_eq!(message_id(&message), "customers/3/7");
        assert_eq!(spring_headers::attempts_made(&message.record), None, "its attempts count from zero");
    }

    #[test]
    fn redriven_record_has_the_key_and_the_value_that_the_broker_had() {
        let mut dead_letter = dead_letter("customers-dlt");
        let marks: [(&str, &[u8]); 2] = [(RAW_KEY, &[0, 200]), (NULL_VALUE, &[])];
        dead_letter.message.record.headers.extend(marks);

        let record = dead_letter.redrive_record(&"customers".into(), "olga", Timestamp::from_millis(1));

        assert_eq!((record.key_bytes(), record.value_bytes()), (Some([0, 200].as_slice()), None));
    }

    #[test]
    fn dead_letter_that_returns_to_its_topic_has_the_headers_of_its_event() {
        let ConsumerRecord { record, .. } = redriven("customers-dlt", "customers");

        let names: Vec<&str> = record.headers.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["tenant", REDRIVEN_BY]);
    }
}
