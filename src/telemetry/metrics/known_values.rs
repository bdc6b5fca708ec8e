//! The values that a label may have where they come from outside, such as topics and event types of other services.
use std::collections::BTreeSet;

/// The label of every value outside the set.
const OTHER: &str = "other";

/// A closed set of label values. Without it, each name that another service chooses would create a series until the process ends.
#[derive(Clone, Debug, Default)]
pub struct KnownValues(BTreeSet<String>);

impl KnownValues {
    /// The label of a value: the value if it is known, otherwise `other`.
    pub fn label<'a>(&self, value: &'a str) -> &'a str {
        if self.0.contains(value) { value } else { OTHER }
    }
}

impl<T: Into<String>> FromIterator<T> for KnownValues {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self(values.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metrics;

    #[test]
    fn unknown_values_share_one_series() {
        let (metrics, known) = (Metrics::new(), KnownValues::from_iter(["order.events", "invoices"]));

        for topic in ["order.events", "invented-1", "invented-2", "other", "ORDER.EVENTS"] {
            metrics.topic_records_served_total.with([known.label(topic)]).inc();
        }

        let members = metrics.topic_records_served_total.members();
        let counts: Vec<_> = members.into_iter().map(|([topic], count)| (topic, count.get())).collect();
        assert_eq!(counts, [("order.events".to_owned(), 1), ("other".to_owned(), 4)]);
    }
}
