//! A record and its position in a topic.
use std::sync::Arc;

use domain::Timestamp;

use super::record_headers::{NULL_KEY, NULL_VALUE, RAW_KEY, RecordHeaders};

/// One message of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Full name of the topic.
    pub topic: Arc<str>,
    /// Selects the topic partition as Kafka's Java clients do (murmur2), so that a topic shared with them stays in order.
    pub key: Arc<str>,
    /// Names and values in the order in which they are written.
    pub headers: RecordHeaders,
    /// Encoded value of the message.
    pub value: Arc<[u8]>,
    /// Timestamp of the record; for an event, the time of the change.
    pub timestamp: Timestamp,
}

impl Record {
    /// The bytes of the key on the broker; `None` without a key.
    pub fn key_bytes(&self) -> Option<&[u8]> {
        if !self.headers.has_virtual() {
            return Some(self.key.as_bytes());
        }
        if self.header(NULL_KEY).is_some() {
            return None;
        }
        Some(self.header(RAW_KEY).unwrap_or(self.key.as_bytes()))
    }

    /// The bytes of the value on the broker; `None` for a tombstone.
    pub fn value_bytes(&self) -> Option<&[u8]> {
        if self.value.is_empty() && self.header(NULL_VALUE).is_some() { None } else { Some(&self.value) }
    }

    /// The value of the first header with this name.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.first(name)
    }

    /// The value of the first header with this name, if it is UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.header(name)?).ok()
    }
}

/// Position of a record in a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Full name of the topic.
    pub topic: Arc<str>,
    /// Partition of the topic.
    pub partition: u32,
    /// Offset in the partition.
    pub offset: u64,
}
