//! TopicKind: the two kinds of topics that a consumer group reads, each with a client of its own in every member.
use outbox::topics::retry_stage;
use rdkafka::ClientConfig;

use crate::connection::client_config;
use crate::options::Options;

/// The kind of the topics that a client of a group member reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopicKind {
    /// Topics to which the relay publishes.
    Events,
    /// Topics to which consumers forward the messages that failed.
    Retries,
}

impl TopicKind {
    const ALL: [Self; 2] = [Self::Events, Self::Retries];

    fn of(topic: &str) -> Self {
        if retry_stage(topic).is_some() { Self::Retries } else { Self::Events }
    }

    /// The topics of each kind, without a kind that has none.
    pub(crate) fn divide(topics: &[String]) -> Vec<(Self, Vec<String>)> {
        let topics_of = |kind| (kind, topics.iter().filter(|topic| Self::of(topic) == kind).cloned().collect());
        Self::ALL.map(topics_of).into_iter().filter(|(_, topics): &(_, Vec<String>)| !topics.is_empty()).collect()
    }

    /// The client of a group's member that reads this kind. Its id ends with the kind: a group that rebalances describes its members only by their ids.
    pub(crate) fn member_config(self, options: &Options, group: &str) -> ClientConfig {
        let mut config = client_config::group_member(options, group);
        let name = format!("{}{}", config.get("client.id").unwrap_or_default(), self.suffix());
        config.set("client.id", name);
        config
    }

    /// Whether a client id ends with the suffix of a kind, so that this client reads topics of one kind only.
    pub(crate) fn is_in(client_id: &str) -> bool {
        Self::ALL.iter().any(|kind| client_id.ends_with(kind.suffix()))
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Events => ".events",
            Self::Retries => ".retries",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kit::TestClock;
    use ports::partitions::InstanceId;

    use super::*;

    #[test]
    fn topics_are_divided_by_kind() {
        let divided =
            |names: &[&str]| TopicKind::divide(&names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();

        let both = divided(&["orders", "orders-retry-0", "carts", "webhooks-retry-3"]);
        let expected = [
            (TopicKind::Events, names(&["orders", "carts"])),
            (TopicKind::Retries, names(&["orders-retry-0", "webhooks-retry-3"])),
        ];
        assert_eq!(both, expected);
        assert_eq!(divided(&["orders"]), [(TopicKind::Events, names(&["orders"]))]);
    }

    #[test]
    fn client_id_shows_that_a_client_reads_one_kind() {
        let options = Options::new("none", "installation", InstanceId("a".into()), Arc::new(TestClock::default()));
        for kind in TopicKind::ALL {
            let config = kind.member_config(&options, "orders");

            assert!(TopicKind::is_in(config.get("client.id").expect("an id")), "{kind:?}");
        }
        assert!(!TopicKind::is_in("posthaste-a"));
    }
}
