//! The id of the request that made a change: which texts are one, and the header that carries it with the change's event.
use ports::broker::Record;

/// The header's name, in HTTP and in records.
pub const HEADER: &str = "x-request-id";
/// Most characters of an id: 128, as in the published contract.
const CHARACTERS_MAX: usize = 128;

/// Whether a text is a request's id: 1 to 128 of letters, digits, `.`, `_` and `-`.
pub fn is_request_id(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=CHARACTERS_MAX).contains(&text.len()) && text.bytes().all(legal)
}

/// The id that a record carries. Any program may have written the record, so a text that is not an id is ignored.
pub fn from_record(record: &Record) -> Option<&str> {
    record.text(HEADER).filter(|text| is_request_id(text))
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;

    use super::*;

    #[test]
    fn record_with_a_text_that_is_no_id_has_none() {
        let longest = "a".repeat(CHARACTERS_MAX);
        let too_long = "a".repeat(CHARACTERS_MAX + 1);
        let cases =
            [("A.b_c-1", true), (&longest, true), ("", false), (&too_long, false), ("a b", false), ("\u{fc}", false)];

        for (text, legal) in cases {
            let record = Record {
                topic: "order.events".into(),
                key: "k".into(),
                headers: [(HEADER, text)].into_iter().collect(),
                value: b"{}".as_slice().into(),
                timestamp: Timestamp::from_millis(0),
            };
            assert_eq!(from_record(&record), legal.then_some(text), "{text:?}");
        }
    }
}
