//! The labels of all metrics, each with the closed set that its values come from.

/// Each label with its values. A label whose values come from other services, such as a topic or an event type, has those that are
/// configured, and `other` for the rest ([`KnownValues`](crate::KnownValues)).
pub const LABELS: &[(&str, &str)] = &[
    ("actor", "kinds of actors, not single ones"),
    ("classification", "the fault classes TRANSIENT, SEMI_TRANSIENT and PERMANENT"),
    ("commit", "one: the commit of the build"),
    ("component", "callers of Redis: cache, idempotency, rate_limit, probe, keeper (maintenance) and store"),
    ("dependency", "db, redis and broker"),
    ("kind", "change, read and list"),
    ("method", "HTTP methods that routes have"),
    ("operation", "operations on orders"),
    ("outcome", "outcomes of a delivery to a webhook"),
    (
        "partition",
        "partitions that this instance reads of the topics of orders and of other services; not those that webhooks read",
    ),
    ("policy", "tiers and classes of rate_limit.policies, and the default"),
    ("query", "names of store statements"),
    ("reason", "reasons of an actor's exit; for dropped spans, queue or collector"),
    ("region", "one: the region of the process"),
    ("result", "new and duplicate"),
    ("status", "states of an outbox row; HTTP statuses"),
    ("sweep", "archive, keys, inbox, log and sessions"),
    (
        "topic",
        "the service's own topics and those of the configuration, retry topics and dead letters included; `other` for the rest",
    ),
    ("uri", "route templates"),
    ("version", "one: the version of the build; schema versions of events that the service reads"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::CATALOGUE;

    #[test]
    fn every_label_states_the_closed_set_of_its_values() {
        let stated: BTreeSet<&str> = LABELS.iter().map(|(label, _)| *label).collect();
        let used: BTreeSet<&str> = CATALOGUE.iter().flat_map(|definition| definition.labels).copied().collect();

        assert!(LABELS.is_sorted() && stated.len() == LABELS.len(), "each once, in order");
        assert_eq!(used.difference(&stated).collect::<Vec<_>>(), Vec::<&&str>::new(), "labels without a stated set");
        assert_eq!(stated.difference(&used).collect::<Vec<_>>(), Vec::<&&str>::new(), "sets without a label");
    }
}
