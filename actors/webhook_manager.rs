//! WebhookManager: reads the webhooks at an interval, and starts and ends the consumer of each. A consumer reads its webhook from the shared
//! table before each message, so that a change of its URL or secret needs no restart.
pub mod subscriptions;
mod webhook_pipeline;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use domain::WebhookId;
use ports::Error;
use ports::broker::consumer_groups::ConsumerGroups;
use ports::endpoint::webhooks::{Webhook, WebhookStore};
use supervision::{ActorSnapshot, ActorState, ChildError, ChildSpec, SupervisionBus};
use tokio::time::Instant;

use subscriptions::Subscriptions;

/// Name of the supervisor of the webhooks' consumers.
pub const SUPERVISOR: &str = "webhooks";

/// Longest wait for the poll of a consumer that ends, with its calls under way: each takes at most 10 s by default.
const POLL_MAX: Duration = Duration::from_secs(30);

/// Interval at which the offsets of inactive webhooks are kept. Kafka deletes those of a group that has had no member for
/// `offsets.retention.minutes`, 7 days by default and seldom less than one: the group would begin at the first record again.
const KEEP_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Specifies the consumer of a webhook; the tree defines it.
pub type ConsumerSpec = Arc<dyn Fn(&Webhook) -> ChildSpec + Send + Sync>;

/// Keeps one consumer running for each active webhook.
pub struct WebhookManager {
    store: Arc<dyn WebhookStore>,
    subscriptions: Arc<Subscriptions>,
    bus: SupervisionBus,
    spec: ConsumerSpec,
    interval: Duration,
    groups: Arc<dyn ConsumerGroups>,
    shared_topics: Vec<String>,
    keep_offsets_at: Instant,
    /// The consumers whose removal the former manager began.
    unfinished_removals: BTreeSet<WebhookId>,
    failing: bool,
}

impl WebhookManager {
    /// A manager that reads the webhooks at this interval. `subscriptions` outlives its restarts, as the consumers do. `shared_topics` are the
    /// topics of all webhooks.
    pub fn new(
        store: Arc<dyn WebhookStore>,
        subscriptions: Arc<Subscriptions>,
        bus: SupervisionBus,
        spec: ConsumerSpec,
        interval: Duration,
        groups: Arc<dyn ConsumerGroups>,
        shared_topics: Vec<String>,
    ) -> Self {
        let (keep_offsets_at, unfinished_removals) = (Instant::now(), BTreeSet::new());
        Self {
            store,
            subscriptions,
            bus,
            spec,
            interval,
            groups,
            shared_topics,
            keep_offsets_at,
            unfinished_removals,
            failing: false,
        }
    }

    fn refresh(&mut self, ctx: &mut Context<Self>) {
        let store = Arc::clone(&self.store);
        let read = Box::pin(async move { store.webhooks().await });
        ctx.spawn(read.into_actor(self).map(|webhooks, this, ctx| this.apply_read(webhooks, ctx)));
    }

    fn apply_read(&mut self, webhooks: Result<Vec<Webhook>, Error>, ctx: &mut Context<Self>) {
        let webhooks = match webhooks {
            Ok(webhooks) => webhooks,
            Err(error) => {
                // The consumers go on with the webhooks that were read last.
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(event = "webhooks_not_read", error = %error, "the webhooks could not be read; deliveries go on as before: {error}");
                }
                ctx.run_later(self.interval, Self::refresh);
                return;
            }
        };
        self.failing = false;
        let existing: BTreeSet<WebhookId> = webhooks.iter().map(|webhook| webhook.id).collect();
        let (active, inactive): (Vec<_>, Vec<_>) = webhooks.into_iter().partition(|webhook| webhook.active);
        self.keep_offsets(inactive, ctx);
        let active: BTreeMap<_, _> = active.into_iter().map(|webhook| (webhook.id, Arc::new(webhook))).collect();
        // A removal goes on after the manager that began it has died. A webhook that is active again needs the end of that removal before its new
        // consumer can start.
        let mut ending = std::mem::take(&mut self.unfinished_removals);
        ending.extend(self.subscriptions.replace(active));
        for id in ending {
            self.end(id, !existing.contains(&id), ctx);
        }
        self.start_missing();
        ctx.run_later(self.interval, Self::refresh);
    }

    /// Keeps the offsets of inactive webhooks at their interval, one webhook after the other. A failed call is repeated at the next interval.
    fn keep_offsets(&mut self, inactive: Vec<Webhook>, ctx: &mut Context<Self>) {
        let now = Instant::now();
        if now < self.keep_offsets_at {
            return;
        }
        self.keep_offsets_at = now + KEEP_INTERVAL;
        let (groups, shared) = (Arc::clone(&self.groups), self.shared_topics.clone());
        let keep = Box::pin(async move {
            for webhook in inactive {
                if let Err(error) = groups.keep_offsets(&webhook.group(), &consumed_topics(&webhook, &shared)).await {
                    tracing::warn!(event = "webhook_offsets_not_kept", webhook = %webhook.id, error = %error, "the offsets of the inactive webhook {} could not be kept: {error}", webhook.id);
                }
            }
        });
        ctx.spawn(keep.into_actor(self));
    }

    /// Ends a consumer. Meanwhile the manager continues to read the webhooks, so that a slow endpoint delays no change of another webhook.
    fn end(&self, id: WebhookId, is_deleted: bool, ctx: &mut Context<Self>) {
        let (bus, subscriptions, store) = (self.bus.clone(), Arc::clone(&self.subscriptions), Arc::clone(&self.store));
        let removal = Box::pin(async move {
            end_consumer(&bus, &subscriptions, id).await;
            if is_deleted {
                // Its last deliveries may have written retry routes after the deletion. The last instance removes them; if the store fails,
                // they stay, and no message waits for them.
                let _ = store.delete_webhook(id).await;
            }
        });
        ctx.spawn(removal.into_actor(self).map(move |(), this, _| {
            this.subscriptions.record_end(id);
            this.start_missing();
        }));
    }

    fn start_missing(&self) {
        self.subscriptions.start_missing(|webhook| {
            let started = self.bus.start_child(SUPERVISOR, (self.spec)(webhook));
            // A path that is taken: the former manager has requested this consumer, and the supervisor, busy with the removal of another one, has
            // not started it yet.
            matches!(started, Ok(()) | Err(ChildError::PathTaken(_)))
        });
    }
}

/// Waits for the poll that is under way, so that its messages are settled before another consumer begins. The supervisor does nothing else while
/// it removes a child: the wait comes before.
async fn end_consumer(bus: &SupervisionBus, subscriptions: &Subscriptions, id: WebhookId) {
    let is_paused = |actor: &ActorSnapshot| actor.path == consumer_path(id) && actor.state == ActorState::Paused;
    if !bus.snapshot().iter().any(is_paused) {
        // After the limit the consumer's own drain limit follows.
        let _ = tokio::time::timeout(POLL_MAX, subscriptions.wait_for_poll(id)).await;
    }
    if let Err(error) = bus.remove_child(SUPERVISOR, &consumer_id(id)).await {
        tracing::debug!(event = "webhook_consumer_not_removed", webhook = %id, error = %error, "the consumer of a webhook has ended already");
    }
}

fn consumer_path(id: WebhookId) -> String {
    format!("/webhooks/{}", consumer_id(id))
}

/// A consumer's name below its supervisor.
pub fn consumer_id(id: WebhookId) -> String {
    ports::endpoint::webhooks::group(id)
}

impl Actor for WebhookManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // Its supervisor may have restarted without the consumers.
        let running: BTreeSet<String> = self.bus.snapshot().into_iter().map(|actor| actor.path).collect();
        self.unfinished_removals = self.subscriptions.retain(|id| running.contains(&consumer_path(id)));
        self.refresh(ctx);
    }
}

supervision::supervised!(WebhookManager);

pub use webhook_pipeline::WebhookPipeline;

/// The topics that a webhook's consumer reads: its own, and the retry topics of all webhooks.
pub fn consumed_topics(webhook: &Webhook, shared: &[String]) -> Vec<String> {
    let retries = shared.iter().filter(|topic| outbox::topics::retry_stage(topic).is_some());
    webhook.topics.iter().chain(retries).cloned().collect()
}
