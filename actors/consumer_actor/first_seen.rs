//! When this instance first saw the messages that hold retry partitions although their due time cannot be right.
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ports::broker::Position;
use tokio::time::Instant;

/// The message that holds each partition, and when it was first seen. One entry for each partition of a retry topic at most.
#[derive(Debug, Default)]
pub struct FirstSeen(Mutex<HashMap<TopicPartition, (u64, Instant)>>);

type TopicPartition = (Arc<str>, u32);

impl FirstSeen {
    /// When the message at this position was first asked for.
    pub fn at(&self, position: &Position, now: Instant) -> Instant {
        let mut messages = self.0.lock();
        let (offset, first) =
            messages.entry((Arc::clone(&position.topic), position.partition)).or_insert((position.offset, now));
        if *offset != position.offset {
            (*offset, *first) = (position.offset, now);
        }
        *first
    }
}
