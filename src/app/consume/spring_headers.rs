//! Spring Kafka's headers of retried and dead-lettered records: their names, and their values as its retry topics write and read them.
use domain::Timestamp;
use ports::broker::Record;

pub(crate) const ORIGINAL_TOPIC: &str = "kafka_original-topic";
pub(crate) const ORIGINAL_PARTITION: &str = "kafka_original-partition";
pub(crate) const ORIGINAL_OFFSET: &str = "kafka_original-offset";
pub(crate) const ORIGINAL_TIMESTAMP: &str = "kafka_original-timestamp";
pub(crate) const ORIGINAL_TIMESTAMP_TYPE: &str = "kafka_original-timestamp-type";
pub(crate) const ORIGINAL_CONSUMER_GROUP: &str = "kafka_original-consumer-group";
pub(crate) const EXCEPTION_FQCN: &str = "kafka_exception-fqcn";
pub(crate) const EXCEPTION_MESSAGE: &str = "kafka_exception-message";
/// Number of the next attempt, from 1, as a 4-byte big-endian integer.
pub(crate) const ATTEMPTS: &str = "retry_topic-attempts";
/// When the next attempt is due, in milliseconds since 1970, as `BigInteger.toByteArray` writes it.
pub(crate) const BACKOFF_TIMESTAMP: &str = "retry_topic-backoff-timestamp";
/// Timestamp of the record before its first failure, in the same form.
pub(crate) const FIRST_TIMESTAMP: &str = "retry_topic-original-timestamp";
/// Not one of Spring's: the failure type by its name.
pub(crate) const FAILURE_TYPE: &str = "x-failure-type";

/// Headers of the record's position before its first failure. They stay unchanged while it is forwarded.
pub(crate) const ORIGIN: [&str; 6] = [
    ORIGINAL_TOPIC,
    ORIGINAL_PARTITION,
    ORIGINAL_OFFSET,
    ORIGINAL_TIMESTAMP,
    ORIGINAL_TIMESTAMP_TYPE,
    ORIGINAL_CONSUMER_GROUP,
];

/// Headers of the attempts and the last failure. Each time the record is forwarded they are written anew.
pub(crate) const ATTEMPT: [&str; 6] =
    [EXCEPTION_FQCN, EXCEPTION_MESSAGE, ATTEMPTS, BACKOFF_TIMESTAMP, FIRST_TIMESTAMP, FAILURE_TYPE];

/// Whether retries and dead-lettering add this header.
pub(crate) fn is_retry_header(name: &str) -> bool {
    ORIGIN.contains(&name) || ATTEMPT.contains(&name)
}

/// Largest attempt number that Spring accepts; it reads every other value as the first attempt.
const ATTEMPTS_MAX: i32 = i16::MAX as i32;

/// Number of attempts that were made before the one that this record stands for; `None` without a readable header. Spring reads a value
/// of one byte as a number of its former versions. Former versions of this service wrote the attempts made, in decimal digits.
pub fn attempts_made(record: &Record) -> Option<u32> {
    let next = match *last(record, ATTEMPTS)? {
        [digit @ b'0'..=b'9'] => i32::from(digit - b'0') + 1,
        [number] => i32::from(number),
        [a, b, c, d] => i32::from_be_bytes([a, b, c, d]),
        _ => return None,
    };
    if (1..=ATTEMPTS_MAX).contains(&next) { u32::try_from(next - 1).ok() } else { None }
}

/// The number of the attempt that this record stands for, from 1.
pub fn attempt(record: &Record) -> u32 {
    attempts_made(record).unwrap_or(0) + 1
}

/// The topic of a record before its first failure.
pub fn original_topic(record: &Record) -> Option<&str> {
    record.text(ORIGINAL_TOPIC)
}

/// The partition of a record before its first failure.
pub fn original_partition(record: &Record) -> Option<i32> {
    record.header(ORIGINAL_PARTITION)?.try_into().ok().map(i32::from_be_bytes)
}

/// The offset of a record before its first failure.
pub fn original_offset(record: &Record) -> Option<i64> {
    record.header(ORIGINAL_OFFSET)?.try_into().ok().map(i64::from_be_bytes)
}

/// When the attempt that this record stands for is due; `None` without a readable header.
pub fn due(record: &Record) -> Option<Timestamp> {
    parse_big_integer(last(record, BACKOFF_TIMESTAMP)?).map(Timestamp::from_millis)
}

/// The value of [`ATTEMPTS`] after this many attempts.
pub(crate) fn next_attempt(attempts_made: u32) -> [u8; 4] {
    i32::try_from(attempts_made).unwrap_or(i32::MAX).saturating_add(1).min(ATTEMPTS_MAX).to_be_bytes()
}

/// A number as Java's `BigInteger.toByteArray` writes it: big endian, two's complement, in as few bytes as hold its sign.
pub(crate) fn big_integer(number: i64) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let fill = if number < 0 { 0xff } else { 0 };
    let redundant = bytes.windows(2).take_while(|pair| pair[0] == fill && (pair[1] ^ fill) & 0x80 == 0).count();
    bytes[redundant..].to_vec()
}

/// Reads [`big_integer`]'s form; `None` for no bytes, or more than a `long` has.
pub(crate) fn parse_big_integer(bytes: &[u8]) -> Option<i64> {
    let (first, rest) = bytes.split_first().filter(|_| bytes.len() <= 8)?;
    let sign_extended = i64::from(i8::from_be_bytes([*first]));
    Some(rest.iter().fold(sign_extended, |number, byte| number << 8 | i64::from(*byte)))
}

/// Of several headers with a name, Spring reads the last: by default it appends one at each retry.
pub(crate) fn last<'a>(record: &'a Record, name: &str) -> Option<&'a [u8]> {
    record.headers.last(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(headers: &[(&str, &[u8])]) -> Record {
        Record {
            topic: "order.events-retry-0".into(),
            key: "k".into(),
            headers: headers.iter().copied().collect(),
            value: [].into(),
            timestamp: Timestamp::from_millis(0),
        }
    }

    #[test]
    fn timestamps_have_the_bytes_of_javas_big_integer() {
        let cases: [(i64, &[u8]); 11] = [
            (0, &[0]),
            (1, &[1]),
            (127, &[0x7f]),
            (128, &[0, 0x80]),
            (256, &[1, 0]),
            (-1, &[0xff]),
            (-128, &[0x80]),
            (-129, &[0xff, 0x7f]),
            (1_556_890_294_484, &[0x01, 0x6a, 0x7d, 0xe4, 0x98, 0xd4]),
            (i64::MAX, &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            (i64::MIN, &[0x80, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (number, bytes) in cases {
            assert_eq!((&*big_integer(number), parse_big_integer(bytes)), (bytes, Some(number)), "{number}");
        }
        assert_eq!((parse_big_integer(&[]), parse_big_integer(&[0; 9])), (None, None));
    }

    #[test]
    fn attempts_are_read_as_spring_reads_them() {
        let cases: [(&[u8], Option<u32>); 9] = [
            (&[0, 0, 0, 1], Some(0)),
            (&[0, 0, 0, 5], Some(4)),
            (&[0, 0, 1, 0], Some(255)),
            (&[3], Some(2)),
            (b"4", Some(4)),
            (&[0, 0, 0, 0], None),
            (&[0xff, 0xff, 0xff, 0xff], None),
            (&[0, 1, 0, 0], None),
            (&[0, 5], None),
        ];
        for (value, made) in cases {
            assert_eq!(attempts_made(&record(&[(ATTEMPTS, value)])), made, "{value:?}");
        }
        assert_eq!(attempts_made(&record(&[])), None);
    }

    #[test]
    fn of_repeated_headers_the_last_counts() {
        let twice = record(&[
            (ATTEMPTS, &[0, 0, 0, 2]),
            (BACKOFF_TIMESTAMP, &[1]),
            (ATTEMPTS, &[0, 0, 0, 3]),
            (BACKOFF_TIMESTAMP, &[0, 0x80]),
        ]);
        assert_eq!((attempts_made(&twice), due(&twice)), (Some(2), Some(Timestamp::from_millis(128))));
    }
}
