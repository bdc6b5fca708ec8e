//! Names of the topics around an event topic: retry topics, dead letters, watermarks. No other module constructs these names.
pub mod group_offsets;

use std::time::Duration;

/// Delays of the retry topics, in order: attempts two to five. Their number is the number of retry topics.
pub const RETRY_DELAYS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];

/// The compacted topic of the watermarks, without the installation's prefix.
pub const WATERMARK_TOPIC: &str = "relay-watermarks";

const RETRY_INFIX: &str = "-retry-";
const DEAD_LETTER_SUFFIX: &str = "-dlt";

/// The name of retry topic `stage`, counted from 0.
pub fn retry_topic(topic: &str, stage: usize) -> String {
    format!("{topic}{RETRY_INFIX}{stage}")
}

/// The name of the topic that takes the dead letters of `topic`.
pub fn dead_letter_topic(topic: &str) -> String {
    format!("{topic}{DEAD_LETTER_SUFFIX}")
}

/// The event topic that a retry topic belongs to: `x-retry-2` → `x`. Every other name is its own base.
pub fn base_topic(topic: &str) -> &str {
    topic
        .rsplit_once(RETRY_INFIX)
        .filter(|(_, stage)| stage.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(topic, |(base, _)| base)
}

/// The stage of a retry topic, counted from 0; `None` for every other topic.
pub fn retry_stage(topic: &str) -> Option<usize> {
    topic.rsplit_once(RETRY_INFIX).and_then(|(_, stage)| stage.parse().ok())
}

/// Every topic that a consumer of `topic` reads: itself and its retry topics.
pub fn consumed_topics(topic: &str) -> Vec<String> {
    let retry_topics = (0..RETRY_DELAYS.len()).map(|stage| retry_topic(topic, stage));
    std::iter::once(topic.to_owned()).chain(retry_topics).collect()
}

/// Every topic that belongs to `topic`: itself, its retry topics and its dead letters.
pub fn all_topics(topic: &str) -> Vec<String> {
    let mut topics = consumed_topics(topic);
    topics.push(dead_letter_topic(topic));
    topics
}

/// The topics to which consumers and the relay forward records of `topic`: its retry topics and its dead letters.
pub fn forwarding_topics(topic: &str) -> Vec<String> {
    let mut topics = all_topics(topic);
    topics.remove(0);
    topics
}

/// The base of the retry topics and of the dead letters of all webhooks, without the installation's prefix. A record there has the header
/// [`WEBHOOK_HEADER`], and only that webhook's group handles it: topics for each webhook would be many, and most of them empty.
pub const WEBHOOK_TOPIC: &str = "webhooks";

/// Header of a record in a retry or dead-letter topic of the webhooks: the id of the webhook whose endpoint did not accept it.
pub const WEBHOOK_HEADER: &str = "x-webhook";

/// The topics that all webhooks share: retry topics and dead letters.
pub fn webhook_topics(prefix: &str) -> Vec<String> {
    // The base is only a name.
    forwarding_topics(&format!("{prefix}{WEBHOOK_TOPIC}"))
}

/// The topics that no other service may write, whatever the topic of the orders is. A record in a retry topic of the webhooks would be signed and
/// delivered as if it were a retried event, and one among the watermarks could replace that of a partition.
pub fn internal_topics(prefix: &str) -> Vec<String> {
    let mut topics = webhook_topics(prefix);
    topics.push(format!("{prefix}{WATERMARK_TOPIC}"));
    topics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_topics_are_those_of_webhooks_and_the_watermarks() {
        let expected = [
            "webhooks-retry-0",
            "webhooks-retry-1",
            "webhooks-retry-2",
            "webhooks-retry-3",
            "webhooks-dlt",
            "relay-watermarks",
        ];
        assert_eq!(internal_topics("eu."), expected.map(|name| format!("eu.{name}")));
    }

    #[test]
    fn topics_around_an_event_topic_have_their_fixed_names() {
        let names = ["order.events", "order.events-retry-0", "order.events-retry-1", "order.events-retry-2"];
        let rest = ["order.events-retry-3", "order.events-dlt"];

        assert_eq!(all_topics("order.events"), [&names[..], &rest[..]].concat());
        assert_eq!(consumed_topics("order.events"), [&names[..], &rest[..1]].concat());
        assert_eq!(forwarding_topics("order.events"), [&names[1..], &rest[..]].concat());
    }

    #[test]
    fn base_and_stage_are_parsed_from_a_topic_name() {
        let cases = [
            ("order.events", "order.events", None),
            ("order.events-retry-0", "order.events", Some(0)),
            ("order.events-retry-12", "order.events", Some(12)),
            ("a-retry-1-retry-2", "a-retry-1", Some(2)),
            ("order.events-retry-soon", "order.events-retry-soon", None),
            ("order.events-dlt", "order.events-dlt", None),
        ];

        for (topic, base, stage) in cases {
            assert_eq!((base_topic(topic), retry_stage(topic)), (base, stage), "{topic}");
        }
    }

    #[test]
    fn retry_delays_double_from_one_second() {
        assert_eq!(RETRY_DELAYS.map(|delay| delay.as_secs()), [1, 2, 4, 8]);
    }
}
