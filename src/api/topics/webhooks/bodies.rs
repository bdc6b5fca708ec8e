//! Webhooks and their deliveries as JSON. A secret is shown once: by the response that created it.
use app::contract::rfc3339;
use app::port_types::{Webhook, WebhookDelivery};
use domain::WebhookId;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::response::AsText;

/// The subscription of an endpoint.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Webhook)]
pub(crate) struct WebhookBody<'a> {
    #[schema(value_type = String, format = "uuid")]
    id: AsText<WebhookId>,
    /// The number of this state; each change adds one.
    version: u64,
    #[schema(example = "https://example.org/hooks/orders")]
    url: &'a str,
    topics: &'a [String],
    /// The types that are delivered; all if there is none.
    types: &'a [String],
    /// Whether the events of a key are delivered in their order, also when one of them is retried.
    ordered: bool,
    /// Whether events are delivered; while false they wait.
    active: bool,
    /// Why the service has ended the deliveries.
    disabled_reason: Option<&'a str>,
    description: &'a str,
    /// The signing key; only in the response that created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    secret: Option<&'a str>,
    #[schema(format = "date-time")]
    created_at: String,
    #[schema(format = "date-time")]
    updated_at: String,
    /// The latest attempt; only where webhooks are listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_delivery: Option<DeliveryBody<'a>>,
}

/// One attempt to deliver an event.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WebhookDelivery)]
pub(crate) struct DeliveryBody<'a> {
    /// The value of the header `webhook-id`, the same in every attempt.
    id: &'a str,
    topic: &'a str,
    key: &'a str,
    r#type: &'a str,
    attempt: u32,
    #[schema(format = "date-time")]
    at: String,
    duration_ms: u64,
    /// The status of the response; null without one.
    status: Option<u16>,
    #[schema(example = "delivered")]
    outcome: &'static str,
    error: Option<&'a str>,
}

impl<'a> WebhookBody<'a> {
    pub(crate) fn new(webhook: &'a Webhook) -> Self {
        Self {
            id: AsText(webhook.id),
            version: webhook.version,
            url: &webhook.url,
            topics: &webhook.topics,
            types: &webhook.types,
            ordered: webhook.ordered,
            active: webhook.active,
            disabled_reason: webhook.disabled_reason.as_deref(),
            description: &webhook.description,
            secret: None,
            created_at: rfc3339(webhook.created_at),
            updated_at: rfc3339(webhook.updated_at),
            last_delivery: None,
        }
    }

    pub(crate) fn with_secret(webhook: &'a Webhook) -> Self {
        Self { secret: webhook.secrets.first().map(|secret| secret.text.as_str()), ..Self::new(webhook) }
    }

    pub(crate) fn with_last_delivery(webhook: &'a Webhook, last: Option<&'a WebhookDelivery>) -> Self {
        Self { last_delivery: last.map(DeliveryBody::new), ..Self::new(webhook) }
    }
}

impl<'a> DeliveryBody<'a> {
    pub(crate) fn new(delivery: &'a WebhookDelivery) -> Self {
        Self {
            id: &delivery.message_id,
            topic: &delivery.topic,
            key: &delivery.key,
            r#type: &delivery.event_type,
            attempt: delivery.attempt,
            at: rfc3339(delivery.at),
            duration_ms: u64::try_from(delivery.duration.as_millis()).unwrap_or(u64::MAX),
            status: delivery.status,
            outcome: delivery.outcome.as_str(),
            error: delivery.error.as_deref(),
        }
    }
}

/// The webhook that the path names.
///
/// # Errors
/// 404: a text that is not an id names no webhook.
pub(crate) fn webhook_id(context: &RequestContext) -> Result<WebhookId, Problem> {
    WebhookId::parse(context.path_parameter("id")).ok_or_else(no_such_webhook)
}

pub(crate) fn no_such_webhook() -> Problem {
    Problem::not_found("no such webhook")
}
