//! A store of webhooks with a flaw.
use std::sync::Arc;

use async_trait::async_trait;
use domain::WebhookId;
use ports::Error;
use ports::endpoint::webhooks::{Webhook, WebhookDelivery, WebhookStore};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenWebhooks {
    pub(crate) inner: Arc<dyn WebhookStore>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl WebhookStore for BrokenWebhooks {
    async fn webhooks(&self) -> Result<Vec<Webhook>, Error> {
        let mut webhooks = self.inner.webhooks().await?;
        if self.flaw == Flaw::ForgetsSecretsOfWebhooks {
            webhooks.iter_mut().for_each(|webhook| webhook.secrets.truncate(1));
        }
        Ok(webhooks)
    }
    async fn save_webhook(&self, webhook: &Webhook) -> Result<bool, Error> {
        let saved = self.inner.save_webhook(webhook).await?;
        if saved || self.flaw != Flaw::SavesAnyVersion {
            return Ok(saved);
        }
        let webhooks = self.inner.webhooks().await?;
        let stored = webhooks.iter().find(|stored| stored.id == webhook.id).map_or(0, |stored| stored.version);
        self.inner.save_webhook(&Webhook { version: stored + 1, ..webhook.clone() }).await
    }
    async fn delete_webhook(&self, id: WebhookId) -> Result<bool, Error> {
        if self.flaw == Flaw::KeepsDeletedWebhooks { Ok(true) } else { self.inner.delete_webhook(id).await }
    }
    async fn record_deliveries(&self, deliveries: &[WebhookDelivery]) -> Result<(), Error> {
        self.inner.record_deliveries(deliveries).await
    }
    async fn deliveries(&self, id: WebhookId) -> Result<Vec<WebhookDelivery>, Error> {
        let mut deliveries = self.inner.deliveries(id).await?;
        match self.flaw {
            Flaw::ListsOldestDeliveriesFirst => deliveries.reverse(),
            Flaw::SharesDeliveries => {
                for webhook in self.inner.webhooks().await?.into_iter().filter(|webhook| webhook.id != id) {
                    deliveries.extend(self.inner.deliveries(webhook.id).await?);
                }
            }
            _ => {}
        }
        Ok(deliveries)
    }
}
