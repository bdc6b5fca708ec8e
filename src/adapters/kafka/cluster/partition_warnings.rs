//! PartitionWarnings: reports topics with another number of partitions than the configured one, each until it changes.
use std::collections::HashMap;

use parking_lot::Mutex;

/// The last reported difference of each topic: its partitions, and the configured ones. Refused topics are checked twice a second.
#[derive(Debug, Default)]
pub(crate) struct PartitionWarnings(Mutex<HashMap<String, (usize, u32)>>);

impl PartitionWarnings {
    /// Reports a difference that was not the last one of its topic.
    pub(crate) fn check(&self, topic: &str, actual: usize, configured: u32) {
        if !self.is_new(topic, actual, configured) {
            return;
        }
        tracing::warn!(
            event = "topic_partitions_differ",
            topic,
            actual,
            configured,
            "the configured number of partitions differs from the topic's; the topic is left unchanged, because adding partitions breaks the order of keys unless the outbox is drained first"
        );
    }

    fn is_new(&self, topic: &str, actual: usize, configured: u32) -> bool {
        let mut reported = self.0.lock();
        if actual == configured as usize {
            reported.remove(topic);
            return false;
        }
        reported.insert(topic.to_owned(), (actual, configured)) != Some((actual, configured))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_is_reported_once_until_it_changes() {
        let warnings = PartitionWarnings::default();

        let reported = [6, 6, 8, 8, 12, 8].map(|actual| warnings.is_new("a", actual, 12));

        assert_eq!(reported, [true, false, true, false, false, true]);
        assert!(warnings.is_new("b", 8, 12), "another topic");
    }
}
