//! Builds the webhooks: the client of their endpoints, and the actions of administrators.
use std::sync::Arc;
use std::time::Duration;

use app::consume::webhooks::{Options, WebhookPorts, Webhooks, shared_base};
use app::operators::dead_letters::{DeadLetters, SpawnTask};
use endpoints::{AddressPolicy, HttpWebhookClient, WebhookClientOptions};
use outbox::topics::retry_topic;
use ports::clock::{Clock, Rng};
use ports::endpoint::WebhookClient;

use super::super::backends::{BrokerPorts, StorePorts};
use super::super::start_error::StartError;
use super::certificates::root_certificates;
use crate::config::Config;

/// Time of a request for a test event in addition to the call of the endpoint: the webhook is read and the result is recorded.
const TEST_MARGIN: Duration = Duration::from_secs(1);

/// The client that delivers events to the endpoints; `None` where webhooks are switched off.
///
/// # Errors
/// The file of root certificates is unusable.
pub(in crate::wiring) fn client(config: &Config) -> Result<Option<Arc<dyn WebhookClient>>, StartError> {
    client_with_timeout(config, config.webhooks.timeout)
}

/// The time limit of a test event, which ends before the request that sends it.
fn test_timeout(delivery: Duration, request: Duration) -> Duration {
    delivery.min(request.saturating_sub(TEST_MARGIN).max(request / 2))
}

fn client_with_timeout(config: &Config, timeout: Duration) -> Result<Option<Arc<dyn WebhookClient>>, StartError> {
    let settings = &config.webhooks;
    if !settings.enabled {
        return Ok(None);
    }
    let roots = settings.ca_file.as_deref().map(|file| root_certificates("webhooks.ca_file", file)).transpose()?;
    let addresses = if settings.private_addresses { AddressPolicy::Any } else { AddressPolicy::PublicOnly };
    let options = WebhookClientOptions { timeout, addresses, roots, ..WebhookClientOptions::default() };
    Ok(Some(Arc::new(HttpWebhookClient::new(options))))
}

/// The actions of administrators; `None` without a broker, or where webhooks are switched off.
///
/// # Errors
/// The file of root certificates is unusable.
pub(in crate::wiring) fn open(
    config: &Config,
    broker: Option<&BrokerPorts>,
    store: &StorePorts,
    (clock, rng): (&Arc<dyn Clock>, &Arc<dyn Rng>),
    spawn: &SpawnTask,
) -> Result<Option<Arc<Webhooks>>, StartError> {
    let timeout = test_timeout(config.webhooks.timeout, config.http.request_timeout);
    let (Some(broker), Some(client)) = (broker, client_with_timeout(config, timeout)?) else { return Ok(None) };
    let base = shared_base(&config.broker.topic_prefix);
    let (topics, records) = (Arc::clone(&broker.topics), Arc::clone(&broker.broker));
    let dead_letters =
        DeadLetters::new(&base, topics, records, Arc::clone(&store.redrives), Arc::clone(clock), Arc::clone(spawn));
    let dead_letters = dead_letters.with_request_timeout(config.http.request_timeout);
    let ports = WebhookPorts {
        store: Arc::clone(&store.webhooks),
        groups: Arc::clone(&broker.consumer_groups),
        topics: Arc::clone(&broker.topics),
        client,
        dead_letters: Arc::new(dead_letters.redriving_to(&retry_topic(&base, 0))),
        clock: Arc::clone(clock),
        rng: Arc::clone(rng),
    };
    let options = Options {
        webhooks_max: config.webhooks.max,
        secret_overlap: config.webhooks.secret_overlap,
        topic_prefix: config.broker.topic_prefix.clone(),
        own_topics: config.orders.enabled.then(|| config.topic()).into_iter().chain(config.external_topics()).collect(),
    };
    Ok(Some(Arc::new(Webhooks::new(ports, options))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_event_ends_before_its_request() {
        let timeout = |delivery, request| test_timeout(Duration::from_millis(delivery), Duration::from_millis(request));

        assert_eq!(timeout(10_000, 10_000), Duration::from_secs(9));
        assert_eq!(timeout(5_000, 10_000), Duration::from_secs(5));
        assert_eq!(
            (timeout(10_000, 1_500), timeout(10_000, 100)),
            (Duration::from_millis(750), Duration::from_millis(50))
        );
    }
}
