//! A record and its position in a topic.
use std::sync::Arc;

use domain::Timestamp;

/// One message of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Full name of the topic.
    pub topic: Arc<str>,
    /// Selects the topic partition as Kafka's Java clients do (murmur2), so that a topic shared with them stays in order.
    pub key: Arc<str>,
    /// Header names and values in order; a name may repeat.
    pub headers: Vec<Header>,
    /// Encoded value of the message.
    pub value: Arc<[u8]>,
    /// Timestamp of the record; for an event, the time of the change.
    pub timestamp: Timestamp,
}

impl Record {
    /// The value of the first header with this name.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let (_, value) = self.headers.iter().find(|(header, _)| &**header == name)?;
        Some(value)
    }

    /// The value of the first header with this name, if it is UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.header(name)?).ok()
    }
}

/// Name and value of a header; most values are text, some are binary.
pub type Header = (Arc<str>, Arc<[u8]>);

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
