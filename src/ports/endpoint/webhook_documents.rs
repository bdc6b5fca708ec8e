//! Webhooks and deliveries as JSON documents, the form in which every store keeps them.
use std::time::Duration;

use domain::{Timestamp, WebhookId};
use serde_json::{Value, json};

use super::webhooks::{AttemptOutcome, Webhook, WebhookDelivery, WebhookSecret};
use crate::error::Error;

impl Webhook {
    /// The webhook as a JSON document.
    pub fn to_document(&self) -> String {
        let secret =
            |secret: &WebhookSecret| json!({"text": secret.text, "until": secret.valid_until.map(|at| at.millis())});
        json!({
            "id": self.id.to_string(), "version": self.version, "url": self.url, "topics": self.topics, "types": self.types,
            "ordered": self.ordered, "active": self.active, "disabled": self.disabled_reason, "description": self.description,
            "secrets": self.secrets.iter().map(secret).collect::<Vec<_>>(),
            "created": self.created_at.millis(), "updated": self.updated_at.millis(),
        })
        .to_string()
    }

    /// The webhook of a document that [`to_document`](Self::to_document) wrote.
    ///
    /// # Errors
    /// [`Error::Broken`]: another program has written the document.
    pub fn from_document(text: &str) -> Result<Self, Error> {
        let value: Value = parse(text)?;
        let read = || {
            let secret = |value: &Value| {
                Some(WebhookSecret { text: string(value, "text")?, valid_until: value["until"].as_i64().map(time) })
            };
            Some(Self {
                id: WebhookId::parse(value["id"].as_str()?)?,
                version: value["version"].as_u64()?,
                url: string(&value, "url")?,
                topics: strings(&value["topics"])?,
                types: strings(&value["types"])?,
                ordered: value["ordered"].as_bool()?,
                active: value["active"].as_bool()?,
                disabled_reason: string(&value, "disabled"),
                description: string(&value, "description")?,
                secrets: value["secrets"].as_array()?.iter().map(secret).collect::<Option<_>>()?,
                created_at: time(value["created"].as_i64()?),
                updated_at: time(value["updated"].as_i64()?),
            })
        };
        read().ok_or_else(|| Error::Broken("a stored webhook is not readable".into()))
    }
}

impl WebhookDelivery {
    /// The delivery as a JSON document.
    pub fn to_document(&self) -> String {
        json!({
            "webhook": self.webhook.to_string(), "id": self.message_id, "topic": self.topic, "key": self.key, "type": self.event_type,
            "attempt": self.attempt, "at": self.at.millis(), "ms": self.duration.as_millis() as u64, "status": self.status,
            "outcome": self.outcome.as_str(), "error": self.error,
        })
        .to_string()
    }

    /// The delivery of a document that [`to_document`](Self::to_document) wrote.
    ///
    /// # Errors
    /// [`Error::Broken`]: another program has written the document.
    pub fn from_document(text: &str) -> Result<Self, Error> {
        let value: Value = parse(text)?;
        let read = || {
            let outcome = value["outcome"].as_str()?;
            Some(Self {
                webhook: WebhookId::parse(value["webhook"].as_str()?)?,
                message_id: string(&value, "id")?,
                topic: string(&value, "topic")?,
                key: string(&value, "key")?,
                event_type: string(&value, "type")?,
                attempt: value["attempt"].as_u64()?.try_into().ok()?,
                at: time(value["at"].as_i64()?),
                duration: Duration::from_millis(value["ms"].as_u64()?),
                status: value["status"].as_u64().and_then(|status| status.try_into().ok()),
                outcome: AttemptOutcome::ALL.into_iter().find(|known| known.as_str() == outcome)?,
                error: string(&value, "error"),
            })
        };
        read().ok_or_else(|| Error::Broken("a stored delivery is not readable".into()))
    }
}

fn parse(text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|error| Error::Broken(format!("a stored document is not JSON: {error}")))
}

fn string(value: &Value, name: &str) -> Option<String> {
    value[name].as_str().map(str::to_owned)
}

fn strings(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|value| value.as_str().map(str::to_owned)).collect()
}

fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}
