//! Position of a dead letter, and the cursor from which a scan continues.
use std::fmt;

use domain::Timestamp;

/// Position in the dead-letter topic, written `3/17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadLetterPosition {
    /// Partition of the topic.
    pub partition: u32,
    /// Offset in the partition.
    pub offset: u64,
}

impl DeadLetterPosition {
    /// Parses the form `3/17`.
    pub fn parse(text: &str) -> Option<Self> {
        let (partition, offset) = text.split_once('/')?;
        Some(Self { partition: number(partition)?, offset: number(offset)? })
    }
}

/// Position after which a scan continues and the time at which it began, written `3/17@1763808278501`. Dead letters that were added later
/// are not part of the scan: a redrive of records that fail again at once would never end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadLetterCursor {
    /// The scan continues after this position.
    pub after: DeadLetterPosition,
    /// Time at which the scan started; `None` in a cursor without it, such as `3/17`.
    pub scan_started_at: Option<Timestamp>,
}

impl DeadLetterCursor {
    /// Parses the form `3/17@1763808278501` or `3/17`.
    pub fn parse(text: &str) -> Option<Self> {
        let Some((position, started_at)) = text.split_once('@') else {
            return DeadLetterPosition::parse(text).map(|after| Self { after, scan_started_at: None });
        };
        let scan_started_at = Some(Timestamp::from_millis(number(started_at)?));
        Some(Self { after: DeadLetterPosition::parse(position)?, scan_started_at })
    }
}

/// Parses a number of digits only, without a sign.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for DeadLetterPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.partition, self.offset)
    }
}

impl fmt::Display for DeadLetterCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.after)?;
        self.scan_started_at.map_or(Ok(()), |started_at| write!(f, "@{}", started_at.millis()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_cursors_have_the_text_they_are_parsed_from() {
        for text in ["3/17", "0/18446744073709551615", "3/17@1763808278501"] {
            assert_eq!(DeadLetterCursor::parse(text).map(|cursor| cursor.to_string()).as_deref(), Some(text));
        }
        for bad in ["", "3", "/", "3/", "/17", "+3/17", "3/-17", "3/17@", "3/17@x", "3/17@-1", "x/17", "3/17/1"] {
            assert_eq!(DeadLetterCursor::parse(bad), None, "{bad}");
        }
        assert_eq!(DeadLetterPosition::parse("3/17@5"), None, "a position has no time");
    }
}
