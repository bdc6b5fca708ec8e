//! Headers there and back. Kafka knows headers without a value; the port does not, so such a one comes back empty.
use std::sync::Arc;

use ports::broker;
use rdkafka::message::{BorrowedHeaders, Header, Headers, OwnedHeaders};

pub(crate) fn encode(headers: &[broker::Header]) -> OwnedHeaders {
    headers.iter().fold(OwnedHeaders::new_with_capacity(headers.len()), |all, (name, value)| {
        all.insert(Header { key: name, value: Some(&**value) })
    })
}

pub(crate) fn decode(headers: Option<&BorrowedHeaders>) -> Vec<broker::Header> {
    let Some(headers) = headers else { return Vec::new() };
    headers.iter().map(|header| (Arc::from(header.key), Arc::from(header.value.unwrap_or_default()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_in_order_with_repetitions_bytes_and_empty_values() {
        let headers: Vec<broker::Header> = vec![
            ("b".into(), b"2".as_slice().into()),
            ("a".into(), [0_u8, 255].as_slice().into()),
            ("b".into(), Arc::from([])),
        ];

        assert_eq!(decode(Some(encode(&headers).as_borrowed())), headers);
    }
}
