//! A record and its position in a topic.
use std::sync::Arc;

use domain::Timestamp;

use super::record_headers::RecordHeaders;

/// One message of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Full name of the topic.
    pub topic: Arc<str>,
    /// Selects the topic partition as Kafka's Java clients do (murmur2), so that a topic shared with them stays in order.
    pub key: Arc<str>,
    /// Its headers.
    pub headers: RecordHeaders,
    /// Encoded value of the message.
    pub value: Arc<[u8]>,
    /// Timestamp of the record; for an event, the time of the change.
    pub timestamp: Timestamp,
}

/// Header of a consumed record whose key is not UTF-8: the bytes of its key. [`Record::key`] then has replacement characters. Adapters add this
/// header and the next two when they read a record, and write the record without them: they stand for what the broker has.
pub const RAW_KEY: &str = "kafka_raw-key";
/// Header of a consumed record without a key.
pub const NULL_KEY: &str = "kafka_null-key";
/// Header of a consumed record without a value, which is a tombstone in a compacted topic.
pub const NULL_VALUE: &str = "kafka_null-value";

/// Whether the broker has no such header: it stands for the record's key or value.
pub fn is_virtual_header(name: &str) -> bool {
    [RAW_KEY, NULL_KEY, NULL_VALUE].contains(&name)
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
