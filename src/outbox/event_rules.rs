//! Which headers, types and topics an event may have. A writer refuses what breaks these rules; the relay parks it.
use std::fmt;

use crate::topics::WEBHOOK_HEADER;

/// Most headers that a writer may add to an event: 64, so that the headers of a record stay small compared with its value.
pub const HEADERS_MAX: usize = 64;
/// Most bytes of all names and values of the headers that a writer adds: 16 KiB.
pub const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Most bytes of a header's name: 128.
pub const HEADER_NAME_BYTES_MAX: usize = 128;
/// Most bytes of an event type: 1,024, because a type as Debezium documents it has up to 255 characters, 1,020 bytes.
pub const TYPE_BYTES_MAX: usize = 1_024;
/// Most bytes of a payload: 960 KiB, so that a record with its headers stays below the 1 MiB that brokers accept.
pub const PAYLOAD_BYTES_MAX: usize = 960 * 1024;
/// Most bytes of a topic's name, as in Kafka: 249.
pub const TOPIC_BYTES_MAX: usize = 249;

/// Headers that the relay or a consumer writes. A writer's header with such a name would replace a fact about the record.
const RESERVED: [&str; 14] = [
    "content-type",
    "id",
    "traceparent",
    "tracestate",
    "x-attempt",
    "x-detour-round",
    "x-failure-type",
    "x-hlc",
    "x-omitted-value-bytes",
    "x-redriven-by",
    "x-region",
    "x-request-id",
    "x-sequence",
    WEBHOOK_HEADER,
];
const RESERVED_PREFIXES: [&str; 3] = ["ce_", "kafka_", "retry_topic-"];

/// A rule that an event's headers, type, content type or topic break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventRuleError {
    /// The event has more than [`HEADERS_MAX`] headers.
    TooManyHeaders(usize),
    /// Names and values have more than [`HEADER_BYTES_MAX`] bytes.
    HeadersTooLarge(usize),
    /// The name is empty, too long, or has another character than visible ASCII.
    HeaderName(String),
    /// The name is one that the relay or a consumer writes.
    ReservedHeader(String),
    /// The type is empty, too long, or has a control character.
    EventType,
    /// Kafka does not accept the topic's name.
    Topic(String),
    /// The content type is empty, too long, or has another character than printable ASCII.
    ContentType,
}

impl fmt::Display for EventRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventRuleError::TooManyHeaders(count) => write!(f, "it has {count} headers, the limit is {HEADERS_MAX}"),
            EventRuleError::HeadersTooLarge(bytes) => {
                write!(f, "its headers have {bytes} bytes, the limit is {HEADER_BYTES_MAX}")
            }
            EventRuleError::HeaderName(name) => {
                write!(f, "{name:?} is not a valid header name: 1 to {HEADER_NAME_BYTES_MAX} visible ASCII characters")
            }
            EventRuleError::ReservedHeader(name) => write!(f, "the header {name:?} is written by the relay"),
            EventRuleError::EventType => {
                write!(f, "its type is not 1 to {TYPE_BYTES_MAX} bytes without control characters")
            }
            EventRuleError::Topic(name) => {
                write!(
                    f,
                    "{name:?} is not a valid topic name: 1 to {TOPIC_BYTES_MAX} of letters, digits, '.', '_' and '-'"
                )
            }
            EventRuleError::ContentType => f.write_str("its content type is not 1 to 256 printable ASCII characters"),
        }
    }
}

impl std::error::Error for EventRuleError {}

/// Checks the headers that a writer adds to an event.
///
/// # Errors
/// The first rule that they break.
pub fn check_headers<'a>(headers: impl IntoIterator<Item = (&'a str, usize)>) -> Result<(), EventRuleError> {
    let (mut count, mut bytes) = (0, 0);
    for (name, value_bytes) in headers {
        count += 1;
        bytes += name.len() + value_bytes;
        if name.is_empty() || name.len() > HEADER_NAME_BYTES_MAX || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(EventRuleError::HeaderName(name.chars().take(HEADER_NAME_BYTES_MAX).collect()));
        }
        if is_reserved(name) {
            return Err(EventRuleError::ReservedHeader(name.into()));
        }
    }
    if count > HEADERS_MAX {
        return Err(EventRuleError::TooManyHeaders(count));
    }
    if bytes > HEADER_BYTES_MAX {
        return Err(EventRuleError::HeadersTooLarge(bytes));
    }
    Ok(())
}

/// Whether only the relay and the consumers write a header of this name, in any case.
pub fn is_reserved(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    RESERVED.contains(&name.as_str()) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Checks the type of an event.
///
/// # Errors
/// [`EventRuleError::EventType`].
pub fn check_type(event_type: &str) -> Result<(), EventRuleError> {
    let legal =
        !event_type.is_empty() && event_type.len() <= TYPE_BYTES_MAX && !event_type.chars().any(char::is_control);
    if legal { Ok(()) } else { Err(EventRuleError::EventType) }
}

/// Checks the name of a topic against Kafka's rules.
///
/// # Errors
/// [`EventRuleError::Topic`].
pub fn check_topic(topic: &str) -> Result<(), EventRuleError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let named = !topic.is_empty() && topic.len() <= TOPIC_BYTES_MAX && topic != "." && topic != "..";
    if named && topic.bytes().all(legal) {
        return Ok(());
    }
    Err(EventRuleError::Topic(topic.chars().take(TOPIC_BYTES_MAX).collect()))
}

/// Checks a content type.
///
/// # Errors
/// [`EventRuleError::ContentType`].
pub fn check_content_type(content_type: &str) -> Result<(), EventRuleError> {
    let legal =
        (1..=256).contains(&content_type.len()) && content_type.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if legal { Ok(()) } else { Err(EventRuleError::ContentType) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_headers_are_refused_in_any_case() {
        const FORWARDING: [&str; 6] = [
            "kafka_original-offset",
            "Retry_Topic-Attempts",
            "retry_topic-backoff-timestamp",
            "X-Detour-Round",
            "X-Omitted-Value-Bytes",
            "x-redriven-by",
        ];
        let names = ["ce_id", "CE_Type", "Content-Type", "id", "x-sequence", "X-Webhook", "traceparent"];
        for name in names.into_iter().chain(FORWARDING) {
            assert_eq!(check_headers([(name, 1)]), Err(EventRuleError::ReservedHeader(name.into())));
        }
        assert_eq!(check_headers([("tenant", 1), ("x-id", 0), ("cetacean", 3)]), Ok(()));
    }

    #[test]
    fn headers_are_bounded_in_name_number_and_size() {
        let name = "n".repeat(HEADER_NAME_BYTES_MAX);
        assert_eq!(check_headers([(name.as_str(), HEADER_BYTES_MAX - HEADER_NAME_BYTES_MAX)]), Ok(()));
        let too_large = check_headers([(name.as_str(), HEADER_BYTES_MAX)]);
        assert!(matches!(too_large, Err(EventRuleError::HeadersTooLarge(_))), "{too_large:?}");
        for name in ["", "a b", "ä", "a\n", format!("{name}n").as_str()] {
            assert!(matches!(check_headers([(name, 0)]), Err(EventRuleError::HeaderName(_))), "{name:?}");
        }
        assert_eq!(check_headers(std::iter::repeat_n(("a", 0), HEADERS_MAX)), Ok(()));
        let too_many = check_headers(std::iter::repeat_n(("a", 0), HEADERS_MAX + 1));
        assert_eq!(too_many, Err(EventRuleError::TooManyHeaders(HEADERS_MAX + 1)));
    }

    #[test]
    fn topics_have_names_that_kafka_accepts() {
        let longest = "t".repeat(TOPIC_BYTES_MAX);
        for topic in ["orders", "outbox.event.Customer", "a_b-c.9", longest.as_str()] {
            assert_eq!(check_topic(topic), Ok(()), "{topic}");
        }
        for topic in ["", ".", "..", "a b", "ä", "a/b", format!("{longest}t").as_str()] {
            assert!(check_topic(topic).is_err(), "{topic}");
        }
    }

    #[test]
    fn types_and_content_types_are_bounded_and_printable() {
        for event_type in ["ORDER_CREATED", "com.example.customer/created v2", "é", "t".repeat(TYPE_BYTES_MAX).as_str()]
        {
            assert_eq!(check_type(event_type), Ok(()), "{event_type}");
        }
        for event_type in ["", "a\tb", "t".repeat(TYPE_BYTES_MAX + 1).as_str()] {
            assert_eq!(check_type(event_type), Err(EventRuleError::EventType), "{event_type}");
        }
        assert_eq!(check_content_type("application/json; charset=utf-8"), Ok(()));
        for content_type in ["", "ä", "a\r\nb", "a".repeat(257).as_str()] {
            assert_eq!(check_content_type(content_type), Err(EventRuleError::ContentType), "{content_type}");
        }
    }
}
