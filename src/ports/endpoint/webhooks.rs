//! Webhooks: subscriptions of HTTP endpoints to topics, and the log of what was delivered to them.
use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Timestamp, WebhookId};

use crate::error::Error;

/// Number of deliveries of each webhook that a store keeps.
pub const DELIVERIES_KEPT: usize = 100;

/// Most retry routes of a deleted webhook that one transaction deletes.
pub const RETRY_ROUTES_PER_DELETION: u32 = 10_000;

/// A key that signs the requests of a webhook, in the form of Standard Webhooks: `whsec_` and base64. Its debug output hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret {
    /// The key with its prefix.
    pub text: String,
    /// End of its validity; `None` for the present secret.
    pub valid_until: Option<Timestamp>,
}

impl std::fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookSecret").field("valid_until", &self.valid_until).finish_non_exhaustive()
    }
}

/// The subscription of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Id of the webhook.
    pub id: WebhookId,
    /// Version of this state, from 1; each change adds one.
    pub version: u64,
    /// Absolute URL of the endpoint.
    pub url: String,
    /// Full names of the topics whose events are delivered; at least one.
    pub topics: Vec<String>,
    /// Types of the events that are delivered; all if there is none.
    pub types: Vec<String>,
    /// Whether the events of a key are delivered in their order, also when one of them is retried.
    pub ordered: bool,
    /// Whether events are delivered. While false they wait in their topics, as long as those keep them.
    pub active: bool,
    /// Why the service itself has ended the deliveries; `None` after an operator's change.
    pub disabled_reason: Option<String>,
    /// Description by operators; may be empty.
    pub description: String,
    /// The present secret first, then those that are still valid after a rotation.
    pub secrets: Vec<WebhookSecret>,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Time of its last change.
    pub updated_at: Timestamp,
}

impl Webhook {
    /// The consumer group whose offsets are the webhook's progress.
    pub fn group(&self) -> String {
        group(self.id)
    }
}

const GROUP_PREFIX: &str = "webhook-";

/// The consumer group of a webhook.
pub fn group(id: WebhookId) -> String {
    format!("{GROUP_PREFIX}{id}")
}

/// Whether a consumer group is that of a webhook, which may be deleted: no other reader may move its offsets.
pub fn is_group(name: &str) -> bool {
    name.strip_prefix(GROUP_PREFIX).is_some_and(|id| WebhookId::parse(id).is_some())
}

/// Outcome of an attempt to deliver an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The endpoint accepted the event.
    Delivered,
    /// The attempt failed and is repeated.
    Retried,
    /// The attempt failed, and the event is now a dead letter.
    DeadLettered,
    /// A test event failed, or the endpoint answered that it is gone, and the webhook was switched off.
    Failed,
}

impl AttemptOutcome {
    /// All outcomes, in the order of their severity.
    pub const ALL: [Self; 4] = [Self::Delivered, Self::Retried, Self::DeadLettered, Self::Failed];

    /// The outcome's name in documents, metrics and HTTP.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Retried => "retried",
            Self::DeadLettered => "dead-lettered",
            Self::Failed => "failed",
        }
    }
}

/// One attempt to deliver an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookDelivery {
    /// Webhook that the attempt belongs to.
    pub webhook: WebhookId,
    /// Value of the header `webhook-id`, the same in every attempt: the id of the event, or else its first position.
    pub message_id: String,
    /// Topic of the event; empty for a test event.
    pub topic: String,
    /// Key of the event; empty for a test event.
    pub key: String,
    /// Type of the event; empty for an event without.
    pub event_type: String,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Start of the attempt.
    pub at: Timestamp,
    /// Time until the response or the failure.
    pub duration: Duration,
    /// Status of the response; `None` without a response.
    pub status: Option<u16>,
    /// Outcome of the attempt.
    pub outcome: AttemptOutcome,
    /// Why the endpoint did not accept it, for operators.
    pub error: Option<String>,
}

impl WebhookDelivery {
    /// The webhooks of some attempts, each once.
    pub fn distinct_webhooks(deliveries: &[Self]) -> BTreeSet<WebhookId> {
        deliveries.iter().map(|delivery| delivery.webhook).collect()
    }
}

/// Store of webhooks and of their latest deliveries.
#[async_trait]
pub trait WebhookStore: Send + Sync {
    /// Lists every webhook in id order.
    async fn webhooks(&self) -> Result<Vec<Webhook>, Error>;

    /// Stores a webhook if the stored version is the one before its own: version 1 for a new webhook. Returns whether it was stored.
    async fn save_webhook(&self, webhook: &Webhook) -> Result<bool, Error>;

    /// Deletes a webhook with its deliveries and the retry routes of its group. Returns whether it existed. Retry routes may be left if the call
    /// fails or its future is dropped: a repeated call deletes them.
    async fn delete_webhook(&self, id: WebhookId) -> Result<bool, Error>;

    /// Adds deliveries, oldest first. Of each webhook the latest [`DELIVERIES_KEPT`] are kept; those of webhooks that do not exist are not.
    async fn record_deliveries(&self, deliveries: &[WebhookDelivery]) -> Result<(), Error>;

    /// Lists the deliveries of a webhook, newest first.
    async fn deliveries(&self, id: WebhookId) -> Result<Vec<WebhookDelivery>, Error>;
}
