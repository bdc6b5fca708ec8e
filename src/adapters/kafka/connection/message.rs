//! Records and headers between the port's types and librdkafka's.
use std::sync::Arc;

use domain::Timestamp;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::{NULL_KEY, NULL_VALUE, Position, RAW_KEY, Record, RecordHeaders, is_virtual_header};
use rdkafka::Message;
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Header, Headers, OwnedHeaders};

/// Headers as librdkafka sends them, in the same order.
pub(crate) fn encode_headers(headers: &RecordHeaders) -> OwnedHeaders {
    let written = headers.written();
    written.iter().fold(OwnedHeaders::new_with_capacity(written.len()), |all, (name, value)| {
        all.insert(Header { key: name, value: Some(value) })
    })
}

/// Headers as the port has them. Kafka allows a header without a value and the port does not: such a header gets an empty value.
fn decode_headers(headers: Option<&BorrowedHeaders>) -> RecordHeaders {
    let read = headers.into_iter().flat_map(BorrowedHeaders::iter).filter(|header| !is_virtual_header(header.key));
    read.map(|header| (header.key, header.value.unwrap_or_default())).collect()
}

/// The headers that stand for what the port's key and value cannot hold.
fn virtual_headers<'a>(key: Option<&'a [u8]>, value: Option<&[u8]>) -> impl Iterator<Item = (&'static str, &'a [u8])> {
    let raw_key = match key {
        Some(bytes) if std::str::from_utf8(bytes).is_ok() => None,
        Some(bytes) => Some((RAW_KEY, bytes)),
        None => Some((NULL_KEY, [].as_slice())),
    };
    raw_key.into_iter().chain(value.is_none().then_some((NULL_VALUE, [].as_slice())))
}

/// A consumed message. Other applications may write to the topic: a missing key and a missing value (a tombstone) become empty, and
/// invalid UTF-8 in a key is replaced. Headers keep the difference, so that the record is written as it was when it is forwarded or redriven.
pub(crate) fn consumer_record(message: &BorrowedMessage<'_>, topic: &Arc<str>) -> ConsumerRecord {
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
    ConsumerRecord { position, record }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_with_order_repetitions_bytes_and_empty_values() {
        let headers: [(&str, &[u8]); 3] = [("b", b"2"), ("a", &[0, 255]), ("b", &[])];
        let headers = headers.into_iter().collect();

        assert_eq!(decode_headers(Some(encode_headers(&headers).as_borrowed())), headers);
    }
}
