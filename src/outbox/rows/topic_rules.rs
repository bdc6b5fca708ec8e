//! A rule that may be set for a topic and for an event type, and which of the two values applies to an event.
use std::collections::HashMap;

/// The values of one rule by topic and by event type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRules<T> {
    by_topic: HashMap<String, T>,
    by_type: HashMap<String, T>,
}

/// The topic's value, then the event type's: the owner of a topic decides about all events in it.
pub fn applicable<T>(of_topic: Option<T>, of_type: Option<T>) -> Option<T> {
    of_topic.or(of_type)
}

impl<T> Default for TopicRules<T> {
    fn default() -> Self {
        Self { by_topic: HashMap::new(), by_type: HashMap::new() }
    }
}

impl<T: Copy + Default> TopicRules<T> {
    /// The value for an event of this type in this topic; the default of `T` where neither has one.
    pub fn value_for(&self, topic: &str, event_type: &str) -> T {
        applicable(self.by_topic.get(topic), self.by_type.get(event_type)).copied().unwrap_or_default()
    }
}

impl<T> TopicRules<T> {
    /// Sets the value of one event type.
    pub fn insert(&mut self, event_type: impl Into<String>, value: T) {
        self.by_type.insert(event_type.into(), value);
    }

    /// Sets the value of one topic, which comes before those of event types.
    pub fn insert_topic(&mut self, topic: impl Into<String>, value: T) {
        self.by_topic.insert(topic.into(), value);
    }

    /// The values of event types, for a store that applies the rule in a language of its own.
    pub fn types(&self) -> impl Iterator<Item = (&str, &T)> {
        self.by_type.iter().map(|(event_type, value)| (event_type.as_str(), value))
    }

    /// The values of topics, for such a store.
    pub fn topics(&self) -> impl Iterator<Item = (&str, &T)> {
        self.by_topic.iter().map(|(topic, value)| (topic.as_str(), value))
    }
}

impl<K: Into<String>, T> FromIterator<(K, T)> for TopicRules<T> {
    /// Rules of event types.
    fn from_iter<I: IntoIterator<Item = (K, T)>>(rules: I) -> Self {
        let by_type = rules.into_iter().map(|(event_type, value)| (event_type.into(), value)).collect();
        Self { by_type, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topics_value_comes_before_that_of_the_event_type_and_the_default() {
        let cases =
            [(None, None, 0), (None, Some(1), 1), (Some(2), None, 2), (Some(2), Some(1), 2), (Some(0), Some(1), 0)];
        for (of_topic, of_type, expected) in cases {
            let mut rules = TopicRules::<u8>::default();
            of_type.into_iter().for_each(|value| rules.insert("Moved", value));
            of_topic.into_iter().for_each(|value| rules.insert_topic("customers", value));

            assert_eq!(rules.value_for("customers", "Moved"), expected, "{of_topic:?} {of_type:?}");
            assert_eq!(rules.value_for("invoices", "Moved"), of_type.unwrap_or_default(), "another topic");
            assert_eq!(rules.value_for("customers", "Paid"), of_topic.unwrap_or_default(), "another type");
        }
    }
}
