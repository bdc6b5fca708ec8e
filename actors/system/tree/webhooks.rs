//! The part of the tree that delivers events to webhooks.
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use app::consume::order_topic::OrderTopic;
use app::consume::webhooks::endpoint_health::EndpointHealth;
use app::consume::webhooks::shared_base;
use outbox::topics::{WEBHOOK_HEADER, webhook_topics};
use parking_lot::Mutex;
use supervision::{Shutdown, Strategy, SupervisionBus, SupervisorSpec};
use tokio::time::Instant;

use crate::consumer_actor::ConsumerActor;
use crate::consumer_actor::group_consumer::GroupConsumer;
use crate::system::dependencies::Dependencies;
use crate::system::options::{Options, WebhookOptions};
use crate::system::tree::group_consumers::group_consumers;
use crate::system::tree::limits::{CONSUMER_DRAIN_MAX, Intensity, MAILBOX_SMALL, actor, supervisor};
use crate::system::tree::threads::Threads;
use crate::webhook_manager::subscriptions::Subscriptions;
use crate::webhook_manager::{self, ConsumerSpec, WebhookManager, WebhookPipeline, consumed_topics, consumer_id};

/// Longest drain of the other consumers when the group restarts because one of them failed without end: a slow endpoint must not keep all
/// webhooks waiting. An endpoint that works accepts a POST within this time; a POST that is cut off is repeated, as the guarantee permits.
const SIBLING_DRAIN_MAX: Duration = Duration::from_secs(2);

/// The webhooks' consumers and their manager; `None` where they are switched off, or without a broker.
pub(crate) fn webhooks(
    dependencies: &Dependencies,
    options: &Arc<Options>,
    bus: &SupervisionBus,
    threads: &Threads,
) -> Option<SupervisorSpec> {
    let client = dependencies.webhook_client.clone()?;
    let groups = group_consumers(dependencies, options, bus)?;
    let subscriptions = Arc::<Subscriptions>::default();
    let shared = webhook_topics(&options.topic_prefix);
    let (all_groups, shared_topics) = (dependencies.consumer_groups.clone()?, shared.clone());
    let spec: ConsumerSpec = {
        let (dependencies, options, actor_bus) = (dependencies.clone(), Arc::clone(options), bus.clone());
        let (subscriptions, arbiter) = (Arc::clone(&subscriptions), threads.relay());
        Arc::new(move |webhook| {
            let WebhookOptions { parallel, retry_delays, breaker, .. } = options.webhooks.clone();
            let pipeline = Arc::new(WebhookPipeline {
                id: webhook.id,
                consumer: GroupConsumer {
                    topics: consumed_topics(webhook, &shared),
                    added_header: Some((WEBHOOK_HEADER, webhook.id.to_string())),
                    parallel_keys: parallel,
                    retry_delays,
                    ..groups(webhook.group(), &shared_base(&options.topic_prefix), 1)
                },
                subscriptions: Arc::clone(&subscriptions),
                store: Arc::clone(&dependencies.webhooks),
                client: Arc::clone(&client),
                orders: OrderTopic::new(&options.topic),
                health: Mutex::new(EndpointHealth::new(breaker)),
                delivery_log_is_failing: AtomicBool::new(false),
                started: Instant::now(),
                tracer: dependencies.tracer.clone(),
            });
            let (_, spec) =
                actor(&actor_bus, &format!("/webhooks/{}", consumer_id(webhook.id)), MAILBOX_SMALL, move |_| {
                    ConsumerActor::new(Arc::clone(&pipeline) as _, None, 0)
                });
            spec.arbiter(arbiter.clone()).shutdown(Shutdown::Timeout(CONSUMER_DRAIN_MAX))
        })
    };
    let (store, actor_bus, interval) = (Arc::clone(&dependencies.webhooks), bus.clone(), options.webhooks.refresh);
    let (_, manager) = actor(bus, "/webhooks/webhook-manager", MAILBOX_SMALL, move |_| {
        let (store, subscriptions, spec) = (Arc::clone(&store), Arc::clone(&subscriptions), Arc::clone(&spec));
        let (groups, shared_topics) = (Arc::clone(&all_groups), shared_topics.clone());
        WebhookManager::new(store, subscriptions, actor_bus.clone(), spec, interval, groups, shared_topics)
    });
    let consumers = supervisor(webhook_manager::SUPERVISOR, Strategy::OneForOne, Intensity::WEBHOOKS)
        .parallel_shutdown()
        .sibling_drain_limit(SIBLING_DRAIN_MAX);
    let group = supervisor("webhook-group", Strategy::RestForOne, Intensity::MANAGER).path("/webhooks");
    Some(group.supervisor(consumers).child(manager))
}
