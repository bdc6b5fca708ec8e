//! The span of a message, and the log events of messages that their handler did not accept. Never the value of a message: it may be confidential.
use std::sync::Arc;

use app::commands::request_id;
use app::consume::message_decision::MessageFailure;
use app::consume::spring_headers;
use app::policy::conflict::VersionStamp;
use domain::{EventType, Timestamp};
use outbox::topics::WEBHOOK_HEADER;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::{Position, Record};
use supervision::{SupervisionBus, WorkInProgress};

use crate::consumer_actor::decisions::DeadLettered;

/// Messages of a poll that the report of a panic names.
const MESSAGES_NAMED_MAX: usize = 5;

/// The span of one message. The key of an order's event is the order, by its type or because all keys of the topic are (`key_is_order`); the
/// request is the one that made the change.
pub fn span(message: &ConsumerRecord, key_is_order: bool) -> tracing::Span {
    let ConsumerRecord { position, record } = message;
    let (request_id, event_id) = (request_id::from_record(record), record.text("ce_id"));
    let has_order_type = || record.text("ce_type").is_some_and(|event_type| EventType::parse(event_type).is_some());
    let order_id = (key_is_order || has_order_type()).then_some(&*record.key);
    tracing::error_span!("message", request_id, order_id, key = &*record.key, event_id, topic = &*position.topic)
}

/// Names the messages of a poll in the report of a panic of the consumer.
pub fn in_progress(messages: &[ConsumerRecord]) -> WorkInProgress {
    let count = messages.len();
    let first: Vec<(Position, Arc<str>)> = messages
        .iter()
        .take(MESSAGES_NAMED_MAX)
        .map(|message| (message.position.clone(), Arc::clone(&message.record.key)))
        .collect();
    supervision::in_progress(move || {
        let named = first.iter().map(|(Position { topic, partition, offset }, key)| {
            format!("{topic}/{partition} offset {offset} of key {key}")
        });
        let more = count.saturating_sub(MESSAGES_NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("messages {}{more}", named.collect::<Vec<_>>().join(", "))
    })
}

/// A member has lost partitions while it processed their messages.
pub fn partitions_lost(group: &str) {
    tracing::warn!(
        event = "consumer_partitions_lost",
        group,
        "a consumer of {group} lost partitions while it processed their messages, which other consumers receive again"
    );
}

/// A message was moved to the dead-letter topic. The live stream has it too.
pub fn dead_lettered(dead_letter: &DeadLettered, record: &Record, bus: &SupervisionBus) {
    let DeadLettered { position: Position { topic, partition, offset }, reason, span } = dead_letter;
    let _entered = span.enter();
    let webhook = record.text(WEBHOOK_HEADER);
    tracing::error!(
        event = "message_dead_lettered",
        topic = &**topic,
        partition,
        offset,
        key = &*record.key,
        webhook,
        error = reason.as_str(),
        "message {offset} of {topic}/{partition} was moved to the dead-letter topic: {reason}"
    );
    let mut fields = vec![("topic", topic.to_string()), ("key", record.key.to_string()), ("error", reason.clone())];
    fields.extend(webhook.map(|id| ("webhook", id.to_owned())));
    fields.extend(request_id::from_record(record).map(|id| ("request_id", id.to_owned())));
    bus.publish_external("message_dead_lettered", fields);
}

/// The broker refused the forwarded record of a message, so its dead letter has no value.
pub fn dead_lettered_without_value(record: &Record, reason: &str) {
    let origin = original_position(record);
    tracing::error!(
        event = "message_value_omitted",
        origin,
        key = &*record.key,
        error = reason,
        "message {origin} was moved to the dead-letter topic without its value, which stays at that position: {reason}"
    );
}

/// The broker refused even the dead letter without a value: the message is in its own topic only.
pub fn not_dead_lettered(record: &Record, reason: &str) {
    let origin = original_position(record);
    tracing::error!(
        event = "message_not_dead_lettered",
        origin,
        error = reason,
        "message {origin} was not processed, and the broker refuses its dead letter: {reason}"
    );
}

/// The position of a forwarded message before its first failure.
fn original_position(record: &Record) -> String {
    let topic = spring_headers::original_topic(record).unwrap_or(&record.topic);
    let partition = spring_headers::original_partition(record).unwrap_or_default();
    let offset = spring_headers::original_offset(record).unwrap_or_default();
    format!("{topic}/{partition} offset {offset}")
}

/// The handler of a message failed, and a later attempt may succeed.
pub fn retried(message: &ConsumerRecord, attempt: u32, failure: &MessageFailure) {
    let Position { topic, partition, offset } = &message.position;
    tracing::warn!(
        event = "message_retried",
        topic = &**topic,
        partition,
        offset,
        key = &*message.record.key,
        attempt,
        error = failure.reason.as_str(),
        "attempt {attempt} of message {offset} of {topic}/{partition} failed and is repeated: {}",
        failure.reason
    );
}

/// The fallback accepted a message after its primary handler had given up.
pub fn handled_by_fallback(message: &ConsumerRecord, failure: &MessageFailure) {
    let Position { topic, partition, offset } = &message.position;
    tracing::warn!(
        event = "message_handled_by_fallback",
        topic = &**topic,
        partition,
        offset,
        key = &*message.record.key,
        error = failure.reason.as_str(),
        "the fallback handled message {offset} of {topic}/{partition}, which its handler did not accept: {}",
        failure.reason
    );
}

/// The region rule rejected an event of another region, because its stamp is later than the clock of this region and the bound of drift permit.
pub fn too_far_ahead(message: &ConsumerRecord, stamp: &VersionStamp, latest_accepted_time: Timestamp) {
    let Position { topic, partition, offset } = &message.position;
    let origin = stamp.region.as_str();
    let beyond_ms = stamp.hlc.millis.saturating_sub(latest_accepted_time.millis());
    tracing::warn!(
        event = "remote_event_too_far_ahead",
        topic = &**topic,
        partition,
        offset,
        key = &*message.record.key,
        origin,
        beyond_ms,
        "message {offset} of {topic}/{partition} was rejected: region {origin} stamped it {beyond_ms} ms further ahead of this region's clock than region.drift_max permits"
    );
}

/// A message keeps its key waiting until a handler accepts it.
pub fn blocks_key(message: &ConsumerRecord, failure: &MessageFailure) {
    let Position { topic, partition, offset } = &message.position;
    tracing::error!(
        event = "message_blocks_key",
        topic = &**topic,
        partition,
        offset,
        key = &*message.record.key,
        error = failure.reason.as_str(),
        "no handler accepts message {offset} of {topic}/{partition}; it is tried again, and the later messages of its key wait: {}",
        failure.reason
    );
}
