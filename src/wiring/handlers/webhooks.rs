//! Builds the webhooks: the client of their endpoints, and the actions of administrators.
use std::sync::Arc;

use app::consume::webhooks::{Options, WebhookPorts, Webhooks, shared_base};
use app::operators::dead_letters::DeadLetters;
use endpoints::{AddressPolicy, HttpWebhookClient, WebhookClientOptions};
use outbox::topics::retry_topic;
use ports::clock::{Clock, Rng};
use ports::endpoint::WebhookClient;

use super::super::backends::{BrokerPorts, StorePorts};
use super::super::start_error::StartError;
use super::certificates::root_certificates;
use crate::config::Config;

/// The client of the endpoints; `None` where webhooks are switched off.
///
/// # Errors
/// The file of root certificates is unusable.
pub(in crate::wiring) fn client(config: &Config) -> Result<Option<Arc<dyn WebhookClient>>, StartError> {
    let settings = &config.webhooks;
    if !settings.enabled {
        return Ok(None);
    }
    let roots = settings.ca_file.as_deref().map(|file| root_certificates("webhooks.ca_file", file)).transpose()?;
    let addresses = if settings.private_addresses { AddressPolicy::Any } else { AddressPolicy::PublicOnly };
    let options =
        WebhookClientOptions { timeout: settings.timeout, addresses, roots, ..WebhookClientOptions::default() };
    Ok(Some(Arc::new(HttpWebhookClient::new(options))))
}

/// The actions of administrators; `None` without a broker, or where webhooks are switched off.
pub(in crate::wiring) fn open(
    config: &Config,
    broker: Option<&BrokerPorts>,
    store: &StorePorts,
    client: Option<&Arc<dyn WebhookClient>>,
    (clock, rng): (&Arc<dyn Clock>, &Arc<dyn Rng>),
) -> Option<Arc<Webhooks>> {
    let (broker, client) = (broker?, client?);
    let base = shared_base(&config.broker.topic_prefix);
    let (topics, records) = (Arc::clone(&broker.topics), Arc::clone(&broker.broker));
    let dead_letters = DeadLetters::new(&base, topics, records, Arc::clone(&store.redrives), Arc::clone(clock));
    let ports = WebhookPorts {
        store: Arc::clone(&store.webhooks),
        groups: Arc::clone(&broker.consumer_groups),
        topics: Arc::clone(&broker.topics),
        client: Arc::clone(client),
        dead_letters: Arc::new(dead_letters.replaying_to(&retry_topic(&base, 0))),
        clock: Arc::clone(clock),
        rng: Arc::clone(rng),
    };
    let options = Options {
        webhooks_max: config.webhooks.max,
        secret_overlap: config.webhooks.secret_overlap,
        topic_prefix: config.broker.topic_prefix.clone(),
        own_topics: [config.topic()].into_iter().chain(config.foreign_topics()).collect(),
    };
    Some(Arc::new(Webhooks::new(ports, options)))
}
