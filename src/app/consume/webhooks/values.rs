//! Settings of a webhook that an administrator may change.
use ports::endpoint::webhooks::Webhook;

use crate::error::QueryError;

/// Start position of a new webhook in its topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WebhookStart {
    /// Events that are published from now on.
    #[default]
    End,
    /// All events that the topics keep.
    Beginning,
}

/// Values of a new webhook or of a change; `None` leaves a value as it is, or takes its default.
#[derive(Clone, Debug, Default)]
pub struct WebhookValues {
    /// Version of the webhook that a change is based on; `None` for any.
    pub version: Option<u64>,
    /// Absolute URL of the endpoint; required for a new webhook.
    pub url: Option<String>,
    /// Types of the events; all by default.
    pub types: Option<Vec<String>>,
    /// Whether each key's events are delivered in order; true by default.
    pub ordered: Option<bool>,
    /// Whether events are delivered; true by default.
    pub active: Option<bool>,
    /// Text for operators; empty by default.
    pub description: Option<String>,
}

impl WebhookValues {
    /// # Errors
    /// [`QueryError::Conflict`] when the webhook has another version than the one that these values are based on.
    pub(super) fn apply(self, webhook: &mut Webhook) -> Result<(), QueryError> {
        let Self { version, url, types, ordered, active, description } = self;
        if version.is_some_and(|version| version != webhook.version) {
            return Err(QueryError::Conflict("the webhook was changed meanwhile, so nothing was changed now".into()));
        }
        webhook.url = url.unwrap_or_else(|| std::mem::take(&mut webhook.url));
        webhook.types = types.unwrap_or_else(|| std::mem::take(&mut webhook.types));
        webhook.ordered = ordered.unwrap_or(webhook.ordered);
        webhook.description = description.unwrap_or_else(|| std::mem::take(&mut webhook.description));
        if let Some(active) = active {
            (webhook.active, webhook.disabled_reason) = (active, None);
        }
        Ok(())
    }
}
