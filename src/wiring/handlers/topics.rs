//! Builds the consumers of other services' topics, and the operators' actions on the dead letters of all topics.
use std::sync::Arc;

use actors::TopicConsumers;
use app::consume::chain::ChainLimits;
use app::consume::topic_chain::{TopicChain, TopicFallback};
use app::consume::webhooks::shared_base;
use app::operators::dead_letters::{DeadLetters, SpawnTask};
use app::operators::dead_letters_by_topic::DeadLettersByTopic;
use ports::broker::Broker;
use ports::broker::topics::TopicReader;
use ports::clock::Clock;
use ports::operators::redrives::RedriveLedger;

use super::super::start_error::StartError;
use super::configured_endpoints::ConfiguredEndpoints;
use crate::config::{Config, FallbackKind, TopicSettings};

/// The consumers of each topic that has some.
///
/// # Errors
/// The file of root certificates is unusable, or a URL; a configuration that was loaded has no such URL.
pub(in crate::wiring) fn consumers(config: &Config) -> Result<Vec<TopicConsumers>, StartError> {
    let endpoints = ConfiguredEndpoints::from_config(config)?;
    let consumed = config.topics.iter().filter(|(_, settings)| settings.consumers > 0);
    let consumers = consumed.map(|(topic, settings)| {
        let chain = chain(topic, settings, &endpoints)?;
        Ok(TopicConsumers { topic: topic.clone(), members: settings.consumers, chain })
    });
    consumers.collect()
}

/// The dead letters of the topic of the orders, and of every topic to which other services publish.
pub(in crate::wiring) fn dead_letters(
    config: &Config,
    (topics, broker): (&Arc<dyn TopicReader>, &Arc<dyn Broker>),
    (redrives, spawn): (&Arc<dyn RedriveLedger>, &SpawnTask),
    clock: &Arc<dyn Clock>,
) -> DeadLettersByTopic {
    let (topics, broker, spawn) = (Arc::clone(topics), Arc::clone(broker), Arc::clone(spawn));
    let of_orders = DeadLetters::new(&config.topic(), topics, broker, Arc::clone(redrives), Arc::clone(clock), spawn);
    let of_orders = of_orders.with_request_timeout(config.http.request_timeout);
    let webhooks = shared_base(&config.broker.topic_prefix);
    DeadLettersByTopic::new(of_orders, &config.external_topics()).with_webhooks(&webhooks)
}

fn chain(topic: &str, settings: &TopicSettings, endpoints: &ConfiguredEndpoints) -> Result<TopicChain, StartError> {
    let fallback = match settings.consumer_fallback {
        FallbackKind::None => TopicFallback::None,
        FallbackKind::Record => TopicFallback::Record,
        FallbackKind::Post => TopicFallback::Post(Arc::new(endpoints.at(&settings.consumer_fallback_url, topic)?)),
    };
    let limits = ChainLimits { attempts_max: settings.consumer_attempts_max, poison: settings.consumer_poison };
    Ok(TopicChain { endpoint: Arc::new(endpoints.at(&settings.consumer_url, topic)?), fallback, limits })
}
