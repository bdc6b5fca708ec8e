//! Builds the consumers of other services' topics.
use std::sync::Arc;

use actors::TopicConsumers;
use app::consume::chain::ChainLimits;
use app::consume::topic_chain::{TopicChain, TopicFallback};

use super::super::start_error::StartError;
use super::configured_endpoints::ConfiguredEndpoints;
use crate::config::{Config, FallbackKind, TopicSettings};

/// The consumers of each topic that has some.
///
/// # Errors
/// The file of root certificates is unusable, or a URL; a configuration that was loaded has no such URL.
pub(in crate::wiring) fn consumers(config: &Config) -> Result<Vec<TopicConsumers>, StartError> {
    let endpoints = ConfiguredEndpoints::of(config)?;
    let consumed = config.topics.iter().filter(|(_, settings)| settings.consumers > 0);
    let consumers = consumed.map(|(topic, settings)| {
        let chain = chain(topic, settings, &endpoints)?;
        Ok(TopicConsumers { topic: topic.clone(), members: settings.consumers, chain })
    });
    consumers.collect()
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
