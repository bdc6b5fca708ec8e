//! Validation of `[topics.NAME]`, and the values derived from all these sections: the topics to create, and the rules of the relay.
use std::collections::{BTreeMap, HashMap};

use outbox::TopicRules;
use outbox::topics::{all_topics, forwarding_topics, internal_topics};
use secrecy::ExposeSecret;

use super::consumer::{FallbackKind, endpoint_url};
use super::sections::{BrokerKind, Config};
use super::topics::TopicSettings;

impl Config {
    /// The full names of all topics to which events are published or forwarded.
    pub fn all_topics(&self) -> Vec<String> {
        self.order_topics().into_iter().chain(self.additional_topics()).collect()
    }

    /// The full names of the topic of the orders, its retry topics and its dead letters; none where orders are disabled: nothing is published there
    /// then, except by other instances that have them enabled.
    fn order_topics(&self) -> Vec<String> {
        if self.orders.enabled { all_topics(&self.topic()) } else { Vec::new() }
    }

    /// The full names of the topics other than those of the orders, with the retry topics and dead letters that they use.
    pub fn additional_topics(&self) -> Vec<String> {
        let own = self.order_topics();
        let listed = self.topics.iter().flat_map(|(name, topic)| topic.topics(name));
        self.broker.topics.iter().cloned().chain(listed).fold(Vec::new(), |mut names, name| {
            if !own.contains(&name) && !names.contains(&name) {
                names.push(name);
            }
            names
        })
    }

    /// The full names of the topics to which other services publish, as far as they are configured.
    pub fn external_topics(&self) -> Vec<String> {
        let listed = self.topics.keys().filter(|name| **name != self.topic() && !self.broker.topics.contains(name));
        self.broker.topics.iter().chain(listed).cloned().collect()
    }

    /// The full names of the topics to which only this service writes, without the topic of the orders: a record that another service writes to a
    /// retry topic would count as a message that failed, and hold up the later messages of its key. A topic of another service that `broker.topics`
    /// names is not among them, also where it is named as the retry topic or the dead letters of another one.
    pub fn internal_topics(&self) -> Vec<String> {
        let external = self.external_topics();
        let of_external = external.iter().flat_map(|topic| forwarding_topics(topic));
        let of_external = of_external.filter(|topic| !self.broker.topics.contains(topic)).collect();
        let of_orders = forwarding_topics(&self.topic());
        [internal_topics(&self.broker.topic_prefix), of_orders, of_external].concat()
    }

    /// The number of partitions of the topics that have one of their own, retry topics and dead letters included.
    pub fn partitions_by_topic(&self) -> HashMap<String, u32> {
        let sized = self.topics.iter().filter_map(|(name, topic)| Some((name, topic.partitions?)));
        sized.flat_map(|(name, partitions)| all_topics(name).into_iter().map(move |name| (name, partitions))).collect()
    }

    /// The rules of the relay: those of topics, those of event types, and the default.
    pub fn relay_rules(&self) -> app::relay::chain::ChainRules {
        let (mut poison, mut fallback) =
            (TopicRules::from_iter(self.outbox.poison.clone()), TopicRules::from_iter(self.outbox.fallback.clone()));
        let retry = &self.outbox.retry;
        for (name, topic) in &self.topics {
            topic.poison.into_iter().for_each(|rule| poison.insert_topic(name, rule));
            topic.fallback.into_iter().for_each(|rule| fallback.insert_topic(name, rule));
        }
        let retries = self.topics.iter().filter_map(|(name, topic)| Some((name.clone(), topic.retry(retry)?)));
        app::relay::chain::ChainRules { retry: retry.clone(), retry_by_topic: retries.collect(), poison, fallback }
    }
}

/// Errors between the values of a topic, and between topics.
pub(super) fn errors(config: &Config) -> Vec<String> {
    let own = config.topic();
    let of_topic = |(name, topic): (&String, &TopicSettings)| {
        let mut found = Vec::new();
        if let Some(owner) = owner(name, &own, &config.topics) {
            found.push(format!("topics.{name}: this topic belongs to {owner} and has the rules of {owner}"));
        }
        if topic.retry(&config.outbox.retry).is_some_and(|retry| retry.max < retry.base) {
            found.push(format!("topics.{name}.retry_max: must not be shorter than the first delay (retry_base)"));
        }
        found.extend(consumer_errors(name, topic, config));
        found
    };
    config.topics.iter().flat_map(of_topic).collect()
}

/// The topic whose retry topic or dead letters this one is.
fn owner<'a>(name: &str, own: &'a str, topics: &'a BTreeMap<String, TopicSettings>) -> Option<&'a str> {
    let owns = |owner: &&str| *owner != name && all_topics(owner).iter().any(|topic| topic == name);
    std::iter::once(own).chain(topics.keys().map(String::as_str)).find(owns)
}

fn consumer_errors(name: &str, topic: &TopicSettings, config: &Config) -> Vec<String> {
    let (key, consumers) = (format!("topics.{name}"), topic.consumers);
    let mut found = Vec::new();
    if consumers > 0 && name == config.topic() {
        found.push(format!(
            "{key}.consumers: the service consumes its own topic already; set consumer.count and consumer.handler"
        ));
    }
    if consumers > 0 && config.broker.kind == BrokerKind::None {
        found.push(format!("{key}.consumers: needs a broker; set broker.kind"));
    }
    let urls = [
        (&topic.consumer_url, "consumer_url", format!("consumers = {consumers}"), consumers > 0),
        (
            &topic.consumer_fallback_url,
            "consumer_fallback_url",
            "consumer_fallback = \"post\"".to_owned(),
            topic.consumer_fallback == FallbackKind::Post,
        ),
    ];
    for (url, field, used_by, used) in urls {
        match endpoint_url(url) {
            _ if url.expose_secret().is_empty() && !used => {}
            _ if url.expose_secret().is_empty() => found.push(format!("{key}.{field}: must be set for {used_by}")),
            Err(form) => found.push(format!("{key}.{field}: must be {form}")),
            Ok(_) => {}
        }
    }
    found
}
