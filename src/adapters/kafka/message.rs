//! A message of the client library as ours.
use std::sync::Arc;

use domain::Timestamp;
use ports::broker::{Position, Record};
use ports::source::Delivery;
use rdkafka::Message;
use rdkafka::message::BorrowedMessage;

use crate::headers;

/// What was delivered. Others may write to a topic too: a missing key is empty, a missing value (a tombstone) as well, and a key that is
/// no text is read as far as it is one.
pub(crate) fn delivery(message: &BorrowedMessage<'_>, topic: &Arc<str>) -> Delivery {
    let position = Position {
        topic: Arc::clone(topic),
        partition: message.partition().unsigned_abs(),
        offset: message.offset().unsigned_abs(),
    };
    let record = Record {
        topic: Arc::clone(topic),
        key: String::from_utf8_lossy(message.key().unwrap_or_default()).into(),
        headers: headers::decode(message.headers()),
        value: message.payload().unwrap_or_default().into(),
        timestamp: Timestamp::from_millis(message.timestamp().to_millis().unwrap_or_default()),
    };
    Delivery { position, record }
}
