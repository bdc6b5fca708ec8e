//! The position of a reader in a topic: the next offset of each partition. As a text: `0:17,3:4`.
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use ports::broker::Position;
use ports::broker::topic_log::NextOffset;
use ports::broker::topics::TopicView;

/// The next offset of each partition. Partitions that it does not name begin at their first record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicCursor(BTreeMap<u32, u64>);

/// Start position of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadStart {
    /// The first records that are kept.
    Beginning,
    /// After the last records.
    End,
    /// The next offsets that a cursor names.
    At(TopicCursor),
}

/// A text is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be beginning, end, or a cursor such as 0:17,3:4, each partition once")]
pub struct InvalidCursor;

/// Why a topic cannot be read from a cursor on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CursorError {
    /// The topic has no such partition.
    NoPartition {
        /// Partition that the cursor names.
        partition: u32,
        /// Number of partitions of the topic.
        partitions: u32,
    },
    /// The partition ends before the cursor's offset: the cursor belongs to another topic, or the log was rewound.
    BeyondEnd {
        /// Partition of the cursor.
        partition: u32,
        /// Its next offset to be written.
        end: u64,
    },
    /// Retention has deleted records at or after the cursor.
    Removed {
        /// First partition with deleted records.
        partition: u32,
        /// Number of deleted records in all partitions.
        records: u64,
        /// The same cursor, moved past the deleted records.
        next: TopicCursor,
    },
}

impl TopicCursor {
    /// The partitions with their next offsets, in partition order.
    pub fn offsets(&self) -> Vec<NextOffset> {
        self.0.iter().map(|(partition, offset)| (*partition, *offset)).collect()
    }

    /// Moves past a record that was read.
    pub fn advance(&mut self, position: &Position) {
        self.0.insert(position.partition, position.offset + 1);
    }

    /// A cursor at these offsets.
    pub fn from_offsets(offsets: impl IntoIterator<Item = NextOffset>) -> Self {
        Self(offsets.into_iter().collect())
    }
}

impl ReadStart {
    /// The cursor with an offset for each partition of `partitions`, or for all partitions of the topic if that is `None`.
    ///
    /// # Errors
    /// The topic cannot be read from there without a gap.
    pub fn cursor(&self, view: &TopicView, partitions: Option<&[u32]>) -> Result<TopicCursor, CursorError> {
        let count = view.partitions.len() as u32;
        let all: Vec<u32> = (0..count).collect();
        let selected = partitions.unwrap_or(&all);
        let given: &BTreeMap<u32, u64> = match self {
            Self::At(TopicCursor(given)) => given,
            Self::Beginning | Self::End => &BTreeMap::new(),
        };
        if let Some(partition) = given.keys().chain(selected).copied().find(|partition| *partition >= count) {
            return Err(CursorError::NoPartition { partition, partitions: count });
        }
        let (mut next, mut gap, mut records) = (TopicCursor::default(), None, 0);
        for partition in selected.iter().copied() {
            let kept = &view.partitions[partition as usize];
            let (first, end) = (kept.start, kept.end);
            let wanted = match self {
                Self::Beginning => first,
                Self::End => end,
                Self::At(_) => given.get(&partition).copied().unwrap_or(first),
            };
            if wanted > end {
                return Err(CursorError::BeyondEnd { partition, end });
            }
            if wanted < first {
                gap = gap.or(Some(partition));
                records += first - wanted;
            }
            next.0.insert(partition, wanted.max(first));
        }
        match gap {
            Some(partition) => Err(CursorError::Removed { partition, records, next }),
            None => Ok(next),
        }
    }
}

impl fmt::Display for TopicCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (partition, offset)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{partition}:{offset}")?;
        }
        Ok(())
    }
}

impl FromStr for TopicCursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let mut offsets = BTreeMap::new();
        for part in text.split(',') {
            let (partition, offset) = part.split_once(':').ok_or(InvalidCursor)?;
            if offsets.insert(number(partition)?, number(offset)?).is_some() {
                return Err(InvalidCursor);
            }
        }
        Ok(Self(offsets))
    }
}

impl FromStr for ReadStart {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        match text {
            "beginning" => Ok(Self::Beginning),
            "end" => Ok(Self::End),
            cursor => cursor.parse().map(Self::At),
        }
    }
}

/// A number of at most 18 digits, which fits into every store's integers.
fn number<T: FromStr>(text: &str) -> Result<T, InvalidCursor> {
    let digits = (1..=18).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().map_err(|_| InvalidCursor) } else { Err(InvalidCursor) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> TopicView {
        TopicView { name: "t".into(), partitions: vec![0..20, 5..5, 10..14] }
    }

    fn start(text: &str) -> Result<String, CursorError> {
        let start: ReadStart = text.parse().expect("a start");
        start.cursor(&view(), None).map(|cursor| cursor.to_string())
    }

    #[test]
    fn cursors_are_written_as_they_are_read() {
        for text in ["0:17,3:4", "7:0", "0:999999999999999999"] {
            assert_eq!(text.parse::<TopicCursor>().map(|cursor| cursor.to_string()), Ok(text.to_owned()));
        }
        let bad = ["", "0", "0:", ":1", "0:1,", "0:1,0:2", "-1:2", "0:-1", "0:1x", "4294967296:0", "0: 1", "+1:2"];
        for text in bad.into_iter().chain(["0:1000000000000000000", "0:1 ,1:1"]) {
            assert_eq!(text.parse::<TopicCursor>(), Err(InvalidCursor), "{text}");
        }
    }

    #[test]
    fn a_reader_begins_with_an_offset_for_every_partition() {
        assert_eq!(start("beginning"), Ok("0:0,1:5,2:10".to_owned()));
        assert_eq!(start("end"), Ok("0:20,1:5,2:14".to_owned()));
        assert_eq!(start("0:17"), Ok("0:17,1:5,2:10".to_owned()));
        let some = ReadStart::Beginning.cursor(&view(), Some(&[2, 0])).map(|cursor| cursor.to_string());
        assert_eq!(some, Ok("0:0,2:10".to_owned()));
    }

    #[test]
    fn cursors_outside_the_topic_are_refused() {
        assert_eq!(start("3:0"), Err(CursorError::NoPartition { partition: 3, partitions: 3 }));
        assert_eq!(start("0:21"), Err(CursorError::BeyondEnd { partition: 0, end: 20 }));
        let missing = ReadStart::End.cursor(&view(), Some(&[9]));
        assert_eq!(missing, Err(CursorError::NoPartition { partition: 9, partitions: 3 }));
    }

    #[test]
    fn removed_records_are_counted_and_the_cursor_behind_them_is_named() {
        let next = TopicCursor::from_offsets([(0, 17), (1, 5), (2, 10)]);
        assert_eq!(start("0:17,1:2,2:7"), Err(CursorError::Removed { partition: 1, records: 6, next }));
    }

    #[test]
    fn advancing_moves_one_partition_behind_the_record() {
        let mut cursor = TopicCursor::from_offsets([(0, 17), (1, 5)]);
        cursor.advance(&Position { topic: "t".into(), partition: 1, offset: 5 });
        assert_eq!(cursor.to_string(), "0:17,1:6");
        assert_eq!(cursor.offsets(), [(0, 17), (1, 6)]);
    }
}
