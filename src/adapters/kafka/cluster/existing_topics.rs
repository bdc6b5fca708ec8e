//! ExistingTopics: the topics that the cluster had when one client last looked for them.
use std::collections::BTreeSet;

/// Full names of the topics that the cluster had when they were last looked for.
#[derive(Debug, Default)]
pub(crate) struct ExistingTopics(BTreeSet<String>);

impl ExistingTopics {
    /// Records whether the cluster has a topic. Returns whether it was deleted since it was last looked for.
    pub(crate) fn record(&mut self, topic: &str, exists: bool) -> bool {
        if !exists {
            return self.0.remove(topic);
        }
        if !self.0.contains(topic) {
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
