//! The webhooks of the reference.
use async_trait::async_trait;
use domain::WebhookId;
use ports::Error;
use ports::endpoint::webhooks::{DELIVERIES_KEPT, Webhook, WebhookDelivery, WebhookStore, group};

use crate::reference::state::Reference;

#[async_trait]
impl WebhookStore for Reference {
    async fn webhooks(&self) -> Result<Vec<Webhook>, Error> {
        Ok(self.state.lock().webhooks.values().cloned().collect())
    }

    async fn save_webhook(&self, webhook: &Webhook) -> Result<bool, Error> {
        let mut state = self.state.lock();
        let stored = state.webhooks.get(&webhook.id).map_or(0, |stored| stored.version);
        let is_next = stored + 1 == webhook.version;
        if is_next {
            state.webhooks.insert(webhook.id, webhook.clone());
        }
        Ok(is_next)
    }

    async fn delete_webhook(&self, id: WebhookId) -> Result<bool, Error> {
        let mut state = self.state.lock();
        state.deliveries.remove(&id);
        state.retry_routes.retain(|(of, _), _| *of != group(id));
        Ok(state.webhooks.remove(&id).is_some())
    }

    async fn record_deliveries(&self, deliveries: &[WebhookDelivery]) -> Result<(), Error> {
        let mut state = self.state.lock();
        for delivery in deliveries {
            if state.webhooks.contains_key(&delivery.webhook) {
                let kept = state.deliveries.entry(delivery.webhook).or_default();
                kept.insert(0, delivery.clone());
                kept.truncate(DELIVERIES_KEPT);
            }
        }
        Ok(())
    }

    async fn deliveries(&self, id: WebhookId) -> Result<Vec<WebhookDelivery>, Error> {
        Ok(self.state.lock().deliveries.get(&id).cloned().unwrap_or_default())
    }
}
