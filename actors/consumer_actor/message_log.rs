//! Log events of messages that their handler did not accept. Never the value of a message: it may be confidential.
use app::consume::intake::IntakeFailure;
use ports::broker::Position;
use ports::broker::consumer_groups::Delivery;

/// A message was moved to the dead-letter topic.
pub fn dead_lettered(delivery: &Delivery, failure: &IntakeFailure) {
    let Position { topic, partition, offset } = &delivery.position;
    tracing::error!(
        event = "message_dead_lettered",
        topic = &**topic,
        partition,
        offset,
        key = &*delivery.record.key,
        error = failure.reason.as_str(),
        "a message was moved to the dead-letter topic"
    );
}

/// The fallback accepted a message after its primary handler had given up.
pub fn handled_by_fallback(delivery: &Delivery, failure: &IntakeFailure) {
    let Position { topic, partition, offset } = &delivery.position;
    tracing::warn!(
        event = "message_handled_by_fallback",
        topic = &**topic,
        partition,
        offset,
        key = &*delivery.record.key,
        error = failure.reason.as_str(),
        "the fallback handled a message that its handler did not accept"
    );
}

/// A message keeps its key waiting until a handler accepts it.
pub fn blocks_key(delivery: &Delivery, failure: &IntakeFailure) {
    let Position { topic, partition, offset } = &delivery.position;
    tracing::error!(
        event = "message_blocks_key",
        topic = &**topic,
        partition,
        offset,
        key = &*delivery.record.key,
        error = failure.reason.as_str(),
        "no handler accepts a message; it is tried again, and the later messages of its key wait"
    );
}
