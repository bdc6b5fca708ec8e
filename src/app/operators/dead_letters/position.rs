//! Where a letter stands, and where a walk through the letters goes on.
use std::fmt;

use domain::Timestamp;

/// A place among the dead letters, written `3/17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadLetterPosition {
    /// Which partition.
    pub partition: u32,
    /// Which offset in it.
    pub offset: u64,
}

impl DeadLetterPosition {
    /// Reads `3/17`.
    pub fn parse(text: &str) -> Option<Self> {
        let (partition, offset) = text.split_once('/')?;
        Some(Self { partition: number(partition)?, offset: number(offset)? })
    }
}

/// Behind which place to go on, and when the walk began, written `3/17@1763808278501`. Letters that were set aside later are not of this
/// walk: whoever sends letters back that die again at once would never come to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadLetterCursor {
    /// Strictly behind this place.
    pub after: DeadLetterPosition,
    /// When the walk began; unknown in a cursor made by hand, such as `3/17`.
    pub begun: Option<Timestamp>,
}

impl DeadLetterCursor {
    /// Reads `3/17@1763808278501` or `3/17`.
    pub fn parse(text: &str) -> Option<Self> {
        let Some((place, begun)) = text.split_once('@') else {
            return DeadLetterPosition::parse(text).map(|after| Self { after, begun: None });
        };
        Some(Self { after: DeadLetterPosition::parse(place)?, begun: Some(Timestamp::from_millis(number(begun)?)) })
    }
}

/// Digits and nothing else.
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
        self.begun.map_or(Ok(()), |begun| write!(f, "@{}", begun.millis()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_cursors_are_written_as_they_are_read() {
        for text in ["3/17", "0/18446744073709551615", "3/17@1763808278501"] {
            assert_eq!(DeadLetterCursor::parse(text).map(|cursor| cursor.to_string()).as_deref(), Some(text));
        }
        for bad in ["", "3", "/", "3/", "/17", "+3/17", "3/-17", "3/17@", "3/17@x", "3/17@-1", "x/17", "3/17/1"] {
            assert_eq!(DeadLetterCursor::parse(bad), None, "{bad}");
        }
        assert_eq!(DeadLetterPosition::parse("3/17@5"), None, "a place is no cursor");
    }
}
