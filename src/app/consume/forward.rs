//! The record of a message that was not processed, for a retry topic or the dead letters, with Spring Kafka's headers.
use std::sync::Arc;

use domain::Timestamp;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::{NULL_KEY, RAW_KEY, Record};

use crate::consume::message_decision::MessageFailure;
use crate::consume::spring_headers;

/// Header with the round of a message that enters the last retry topic again.
pub const RETRY_ROUND_HEADER: &str = "x-detour-round";

/// Whether consumers add this header when they forward a message to a retry topic or the dead letters.
pub(crate) fn is_failure_header(name: &str) -> bool {
    spring_headers::is_retry_header(name) || name == RETRY_ROUND_HEADER
}

/// The message as an event of its topic, without the headers of earlier failures.
pub fn without_earlier_failures(mut message: ConsumerRecord) -> ConsumerRecord {
    if message.record.headers.iter().any(|(name, _)| is_failure_header(name)) {
        message.record.headers = message.record.headers.filtered(|name| !is_failure_header(name));
    }
    message
}

/// The next topic of a message that was not processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward<'a> {
    /// Full name of the topic.
    pub target: String,
    /// Consumer group that could not process the message.
    pub group: &'a str,
    /// Why it was not processed.
    pub failure: &'a MessageFailure,
    /// Number of attempts so far.
    pub attempts_made: u32,
    /// Timestamp of the new record.
    pub now: Timestamp,
    /// When the next attempt is due; `now` for a dead letter, as Spring writes it.
    pub due: Timestamp,
}

/// The record for the next topic: the position before the first failure stays, the number of attempts and the last failure are rewritten.
pub fn forward_record(message: &ConsumerRecord, forward: Forward<'_>) -> Record {
    let ConsumerRecord { position, record } = message;
    let failed_before = record.header(spring_headers::ORIGINAL_TOPIC).is_some();
    let mut headers = record.headers.filtered(|name| !spring_headers::ATTEMPT.contains(&name));
    let mut put = |name: &'static str, value: &[u8]| headers.push(name, value);
    if !failed_before {
        put(spring_headers::ORIGINAL_TOPIC, position.topic.as_bytes());
        put(spring_headers::ORIGINAL_PARTITION, &i32::try_from(position.partition).unwrap_or(i32::MAX).to_be_bytes());
        put(spring_headers::ORIGINAL_OFFSET, &i64::try_from(position.offset).unwrap_or(i64::MAX).to_be_bytes());
        put(spring_headers::ORIGINAL_TIMESTAMP, &record.timestamp.millis().to_be_bytes());
        put(spring_headers::ORIGINAL_TIMESTAMP_TYPE, b"CreateTime");
        put(spring_headers::ORIGINAL_CONSUMER_GROUP, forward.group.as_bytes());
    }
    put(spring_headers::EXCEPTION_FQCN, forward.failure.class.as_bytes());
    put(spring_headers::EXCEPTION_MESSAGE, outbox::truncate_reason(&forward.failure.reason).as_bytes());
    put(spring_headers::FIRST_TIMESTAMP, &first_timestamp(record));
    put(spring_headers::ATTEMPTS, &spring_headers::next_attempt(forward.attempts_made));
    put(spring_headers::BACKOFF_TIMESTAMP, &spring_headers::big_integer(forward.due.millis()));
    put(spring_headers::FAILURE_TYPE, forward.failure.failure_type.as_str().as_bytes());
    Record {
        topic: Arc::from(forward.target),
        key: Arc::clone(&record.key),
        headers,
        value: Arc::clone(&record.value),
        timestamp: forward.now,
    }
}

/// Header of a dead letter that has no value because the broker refused it: the number of bytes that the value had.
pub const OMITTED_VALUE_BYTES: &str = "x-omitted-value-bytes";

/// Headers of an event that its dead letter keeps without the value.
const EVENT_HEADERS: [&str; 4] = ["ce_id", "ce_type", "ce_source", outbox::topics::WEBHOOK_HEADER];

/// Headers that stand for the key of the record.
const KEY_HEADERS: [&str; 2] = [RAW_KEY, NULL_KEY];

/// The dead letter for a forwarded record that the broker refused: its failure and original position without its value, and of its other headers
/// those that name the event.
pub fn without_value(record: &Record, target: String) -> Record {
    let kept = |name: &str| {
        spring_headers::is_retry_header(name) || EVENT_HEADERS.contains(&name) || KEY_HEADERS.contains(&name)
    };
    let mut headers = record.headers.filtered(kept);
    headers.push(OMITTED_VALUE_BYTES, record.value.len().to_string().as_bytes());
    Record {
        topic: Arc::from(target),
        key: Arc::clone(&record.key),
        headers,
        value: Arc::from([]),
        timestamp: record.timestamp,
    }
}

/// The timestamp before the first failure, from the header of an earlier retry, or else from the record.
fn first_timestamp(record: &Record) -> Vec<u8> {
    let earlier =
        spring_headers::last(record, spring_headers::FIRST_TIMESTAMP).and_then(spring_headers::parse_big_integer);
    let original = || {
        let bytes = spring_headers::last(record, spring_headers::ORIGINAL_TIMESTAMP)?;
        bytes.try_into().ok().map(i64::from_be_bytes)
    };
    spring_headers::big_integer(earlier.or_else(original).unwrap_or(record.timestamp.millis()))
}

#[cfg(test)]
mod tests {
    use ports::FailureType;
    use ports::broker::Position;

    use super::*;

    fn failure(reason: &str) -> MessageFailure {
        MessageFailure {
            failure_type: FailureType::Timeout,
            class: "posthaste.HandlerFault",
            reason: reason.to_owned(),
        }
    }

    fn forwarded(message: &ConsumerRecord, attempts_made: u32, millis: (i64, i64)) -> Record {
        let (now, due) = (Timestamp::from_millis(millis.0), Timestamp::from_millis(millis.1));
        let target = format!("order.events-retry-{attempts_made}");
        let forward =
            Forward { target, group: "order-processing-group", failure: &failure("no reply"), attempts_made, now, due };
        forward_record(message, forward)
    }

    /// The values as hexadecimal digits, or as text where Spring writes text. A name with two values fails.
    fn values(record: &Record) -> Vec<(String, String)> {
        let shown = |value: &[u8]| match std::str::from_utf8(value) {
            Ok(text) if text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') => text.to_owned(),
            _ => value.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}")),
        };
        let mut values: Vec<_> = record.headers.iter().map(|(name, value)| (name.to_string(), shown(value))).collect();
        values.sort();
        assert!(values.windows(2).all(|pair| pair[0].0 != pair[1].0), "{values:?}");
        values
    }

    fn consumer_record(record: Record, offset: u64) -> ConsumerRecord {
        ConsumerRecord { position: Position { topic: Arc::clone(&record.topic), partition: 3, offset }, record }
    }

    fn first() -> ConsumerRecord {
        let (topic, value) = ("order.events".into(), b"{}".as_slice().into());
        let timestamp = Timestamp::from_millis(1_556_890_294_484);
        let headers = [("ce_type", "ORDER_CREATED")].into_iter().collect();
        consumer_record(Record { topic, key: "k".into(), headers, value, timestamp }, 258)
    }

    /// The bytes that Spring Kafka's `DeadLetterPublishingRecovererFactory` writes for this record: `ByteBuffer.putInt` and `putLong`,
    /// `BigInteger.toByteArray`, UTF-8.
    #[test]
    fn first_retry_has_the_headers_that_spring_writes() {
        let retried = forwarded(&first(), 1, (1_556_890_295_000, 1_556_890_296_000));

        let expected = [
            ("ce_type", "ORDER_CREATED"),
            ("kafka_exception-fqcn", "posthaste.HandlerFault"),
            ("kafka_exception-message", "no reply"),
            ("kafka_original-consumer-group", "order-processing-group"),
            ("kafka_original-offset", "0x0000000000000102"),
            ("kafka_original-partition", "0x00000003"),
            ("kafka_original-timestamp", "0x0000016a7de498d4"),
            ("kafka_original-timestamp-type", "CreateTime"),
            ("kafka_original-topic", "order.events"),
            ("retry_topic-attempts", "0x00000002"),
            ("retry_topic-backoff-timestamp", "0x016a7de49ec0"),
            ("retry_topic-original-timestamp", "0x016a7de498d4"),
            ("x-failure-type", "TIMEOUT"),
        ];
        assert_eq!(values(&retried), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn later_retries_keep_the_original_position_and_count_on() {
        let once = forwarded(&first(), 1, (1_556_890_295_000, 1_556_890_296_000));
        let twice = forwarded(&consumer_record(once.clone(), 7), 2, (1_556_890_297_000, 1_556_890_299_000));

        let changed = ["retry_topic-attempts", "retry_topic-backoff-timestamp"];
        let kept = |record: &Record| -> Vec<_> {
            values(record).into_iter().filter(|(name, _)| !changed.contains(&&**name)).collect()
        };
        assert_eq!(kept(&twice), kept(&once));
        assert_eq!((spring_headers::attempts_made(&once), spring_headers::attempts_made(&twice)), (Some(1), Some(2)));
        assert_eq!(spring_headers::due(&twice), Some(Timestamp::from_millis(1_556_890_299_000)));
    }

    #[test]
    fn forwarded_record_keeps_a_key_that_is_no_text_also_without_its_value() {
        let mut first = first();
        first.record.headers.push(RAW_KEY, &[0, 200]);

        let retried = forwarded(&first, 1, (1_556_890_295_000, 1_556_890_296_000));

        assert_eq!(retried.key_bytes(), Some([0, 200].as_slice()));
        assert_eq!(without_value(&retried, "order.events-dlt".into()).key_bytes(), Some([0, 200].as_slice()));
    }

    #[test]
    fn record_that_spring_retried_is_forwarded_with_one_value_of_each_header() {
        let mut by_spring = forwarded(&first(), 1, (1_556_890_295_000, 1_556_890_296_000));
        by_spring.headers.push(spring_headers::FIRST_TIMESTAMP, &[0x01, 0x6a, 0x7d, 0xe4, 0x98, 0xd4]);
        by_spring.headers.push(spring_headers::ATTEMPTS, &[0, 0, 0, 3]);
        by_spring.headers.push(spring_headers::BACKOFF_TIMESTAMP, &[0x01, 0x6a, 0x7d, 0xe4, 0xa2, 0xa8]);
        let made = spring_headers::attempts_made(&by_spring).expect("readable");

        let ours = forwarded(&consumer_record(by_spring, 7), made + 1, (1_556_890_299_000, 1_556_890_303_000));

        let value = |name: &str| values(&ours).into_iter().find(|(other, _)| other == name).map(|(_, value)| value);
        assert_eq!(value(spring_headers::ATTEMPTS).as_deref(), Some("0x00000004"));
        assert_eq!(value(spring_headers::FIRST_TIMESTAMP).as_deref(), Some("0x016a7de498d4"));
    }
}
