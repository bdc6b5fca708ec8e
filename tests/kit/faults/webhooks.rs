//! The store of webhooks under a fault script.
use std::sync::Arc;

use async_trait::async_trait;
use domain::WebhookId;
use ports::Error;
use ports::endpoint::webhooks::{Webhook, WebhookDelivery, WebhookStore};

use crate::faults::script::{Call, FaultScript};

/// A store of webhooks with injected faults of its delivery log.
pub struct FaultyWebhooks {
    inner: Arc<dyn WebhookStore>,
    script: FaultScript,
}

impl FaultyWebhooks {
    /// Wraps a port with a fault script.
    pub fn wrap(inner: Arc<dyn WebhookStore>, script: FaultScript) -> Self {
        Self { inner, script }
    }
}

#[async_trait]
impl WebhookStore for FaultyWebhooks {
    async fn webhooks(&self) -> Result<Vec<Webhook>, Error> {
        self.inner.webhooks().await
    }
    async fn save_webhook(&self, webhook: &Webhook) -> Result<bool, Error> {
        self.inner.save_webhook(webhook).await
    }
    async fn delete_webhook(&self, id: WebhookId) -> Result<bool, Error> {
        self.inner.delete_webhook(id).await
    }
    async fn record_deliveries(&self, deliveries: &[WebhookDelivery]) -> Result<(), Error> {
        self.script.apply(Call::RecordDeliveries, self.inner.record_deliveries(deliveries)).await
    }
    async fn deliveries(&self, id: WebhookId) -> Result<Vec<WebhookDelivery>, Error> {
        self.inner.deliveries(id).await
    }
}
