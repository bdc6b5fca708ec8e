//! Encoding of a record's headers: for each header a name and a value, each after its length (4 bytes, big endian).
use ports::broker::RecordHeaders;

/// Encodes the headers as one value.
pub(crate) fn encode(headers: &RecordHeaders) -> Vec<u8> {
    let size = headers.iter().map(|(name, value)| 8 + name.len() + value.len()).sum();
    let mut bytes = Vec::with_capacity(size);
    for (name, value) in headers {
        for part in [name.as_bytes(), value] {
            bytes.extend_from_slice(&(part.len() as u32).to_be_bytes());
            bytes.extend_from_slice(part);
        }
    }
    bytes
}

/// Decodes the headers; `None` if the bytes are not such an encoding.
pub(crate) fn decode(mut bytes: &[u8]) -> Option<RecordHeaders> {
    let mut headers = RecordHeaders::default();
    while !bytes.is_empty() {
        let (name, rest) = split_part(bytes)?;
        let (value, rest) = split_part(rest)?;
        headers.push(std::str::from_utf8(name).ok()?, value);
        bytes = rest;
    }
    Some(headers)
}

fn split_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_decoded_in_order_and_malformed_bytes_are_refused() {
        let headers: [(&str, &[u8]); 3] =
            [("ce_id", b"1"), ("kafka_original-offset", &[0, 0, 0, 0, 0, 0, 0, 9]), ("empty", &[])];
        let headers = headers.into_iter().collect();

        assert_eq!(decode(&encode(&headers)), Some(headers));
        assert_eq!(decode(&[]), Some(RecordHeaders::default()));
        assert_eq!(decode(&[0, 0, 0, 9, 1]), None);
    }
}
