//! The store of webhooks under a fault script.
use std::sync::Arc;

use async_trait::async_trait;
use domain::WebhookId;
use ports::Error;
use ports::endpoint::webhooks::{Webhook, WebhookDelivery, WebhookStore};

use crate::faults::script::{Call, FaultScript};

/// A store of webhooks with injected faults of its delivery log.
pub struct FaultyWebhooks {
    real: Arc<dyn WebhookStore>,
    script: FaultScript,
}

impl FaultyWebhooks {
    /// Wraps a port with a fault script.
    pub fn around(real: Arc<dyn WebhookStore>, script: FaultScript) -> Self {
        Self { real, script }
    }
}

#[async_trait]
impl WebhookStore for FaultyWebhooks {
    async fn webhooks(&self) -> Result<Vec<Webhook>, Error> {
        self.real.webhooks().await
    }
    async fn save_webhook(&self, webhook: &Webhook) -> Result<bool, Error> {
        self.real.save_webhook(webhook).await
    }
    async fn delete_webhook(&self, id: WebhookId) -> Result<bool, Error> {
        self.real.delete_webhook(id).await
    }
    async fn record_deliveries(&self, deliveries: &[WebhookDelivery]) -> Result<(), Error> {
        self.script.around(Call::RecordDeliveries, self.real.record_deliveries(deliveries)).await
    }
    async fn deliveries(&self, id: WebhookId) -> Result<Vec<WebhookDelivery>, Error> {
        self.real.deliveries(id).await
    }
}
