//! ExistingTopics: which topics were there at the last check, so that a deletion is found once.
use std::collections::BTreeSet;

/// Full names of the topics that the cluster had at the last check.
#[derive(Debug, Default)]
pub(crate) struct ExistingTopics(BTreeSet<String>);

impl ExistingTopics {
    /// Whether the cluster had the topic at the last record.
    pub(crate) fn contains(&self, topic: &str) -> bool {
        self.0.contains(topic)
    }

    /// Records whether the cluster has a topic. Returns whether it was deleted since the last record.
    pub(crate) fn record(&mut self, topic: &str, exists: bool) -> bool {
        if !exists {
            return self.0.remove(topic);
        }
        if !self.contains(topic) {
            self.0.insert(topic.to_owned());
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletion_of_a_topic_is_found_once() {
        let mut topics = ExistingTopics::default();

        let is_deleted = [false, true, true, false, false, true, false].map(|exists| topics.record("orders", exists));

        assert_eq!(is_deleted, [false, false, false, true, false, false, true]);
    }
}
