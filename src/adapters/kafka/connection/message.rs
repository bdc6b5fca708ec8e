//! Records and headers between the port's types and librdkafka's.
use std::sync::Arc;

use domain::Timestamp;
use ports::broker::consumer_groups::Delivery;
use ports::broker::{self, NULL_KEY, NULL_VALUE, Position, RAW_KEY, Record, is_virtual_header};
use rdkafka::Message;
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Header, Headers, OwnedHeaders};

/// Headers as librdkafka sends them, in the same order.
pub(crate) fn encode_headers(headers: &[broker::Header]) -> OwnedHeaders {
    let sent = headers.iter().filter(|(name, _)| !is_virtual_header(name));
    sent.fold(OwnedHeaders::new_with_capacity(headers.len()), |all, (name, value)| {
        all.insert(Header { key: name, value: Some(&**value) })
    })
}

/// Headers as the port has them. Kafka allows a header without a value and the port does not: such a header gets an empty value.
fn decode_headers(headers: Option<&BorrowedHeaders>) -> Vec<broker::Header> {
    let Some(headers) = headers else { return Vec::new() };
    let read = headers.iter().filter(|header| !is_virtual_header(header.key));
    read.map(|header| (Arc::from(header.key), Arc::from(header.value.unwrap_or_default()))).collect()
}

/// The headers that stand for what the port's key and value cannot hold.
fn virtual_headers(key: Option<&[u8]>, value: Option<&[u8]>) -> impl Iterator<Item = broker::Header> {
    let raw_key = match key {
        Some(bytes) if std::str::from_utf8(bytes).is_ok() => None,
        Some(bytes) => Some((RAW_KEY.into(), bytes.into())),
        None => Some((NULL_KEY.into(), [].into())),
    };
    raw_key.into_iter().chain(value.is_none().then(|| (NULL_VALUE.into(), [].into())))
}

/// A consumed message. Other applications may write to the topic: a missing key and a missing value (a tombstone) become empty, and
/// invalid UTF-8 in a key is replaced. Headers keep the difference, so that the record is written as it was when it is forwarded or replayed.
pub(crate) fn delivery(message: &BorrowedMessage<'_>, topic: &Arc<str>) -> Delivery {
    let position = Position {
        topic: Arc::clone(topic),
        partition: message.partition().unsigned_abs(),
        offset: message.offset().unsigned_abs(),
    };
    let mut headers = decode_headers(message.headers());
    headers.extend(virtual_headers(message.key(), message.payload()));
    let record = Record {
        topic: Arc::clone(topic),
        key: String::from_utf8_lossy(message.key().unwrap_or_default()).into(),
        headers,
        value: message.payload().unwrap_or_default().into(),
        timestamp: Timestamp::from_millis(message.timestamp().to_millis().unwrap_or_default()),
    };
    Delivery { position, record }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_with_order_repetitions_bytes_and_empty_values() {
        let headers: Vec<broker::Header> = vec![
            ("b".into(), b"2".as_slice().into()),
            ("a".into(), [0_u8, 255].as_slice().into()),
            ("b".into(), Arc::from([])),
        ];

        assert_eq!(decode_headers(Some(encode_headers(&headers).as_borrowed())), headers);
    }
}
