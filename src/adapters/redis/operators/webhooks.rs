//! `WebhookStore`: the webhooks, and the latest deliveries of each.
use async_trait::async_trait;
use deadpool_redis::redis::Value;
use domain::WebhookId;
use ports::Error;
use ports::endpoint::webhooks::{DELIVERIES_KEPT, Webhook, WebhookDelivery, WebhookStore, group};

use crate::store::arguments::ScriptArguments;
use crate::store::client::RedisStore;
use crate::store::reply::Reply;

#[async_trait]
impl WebhookStore for RedisStore {
    async fn webhooks(&self) -> Result<Vec<Webhook>, Error> {
        let reply = self.read_list("webhooks", &self.inner.scripts.webhooks, ScriptArguments::new()).await?;
        let mut webhooks =
            texts(reply)?.iter().map(|text| Webhook::from_document(text)).collect::<Result<Vec<_>, _>>()?;
        webhooks.sort_by_key(|webhook| webhook.id);
        Ok(webhooks)
    }

    async fn save_webhook(&self, webhook: &Webhook) -> Result<bool, Error> {
        let arguments =
            ScriptArguments::new().text(webhook.id.to_string()).number(webhook.version).text(webhook.to_document());
        flag(self.write("webhook_save", &self.inner.scripts.save_webhook, arguments).await?)
    }

    async fn delete_webhook(&self, id: WebhookId) -> Result<bool, Error> {
        let arguments = ScriptArguments::new().text(id.to_string()).text(group(id));
        flag(self.write("webhook_delete", &self.inner.scripts.delete_webhook, arguments).await?)
    }

    async fn record_deliveries(&self, deliveries: &[WebhookDelivery]) -> Result<(), Error> {
        let arguments =
            deliveries.iter().fold(ScriptArguments::new().number(DELIVERIES_KEPT), |arguments, delivery| {
                arguments.text(delivery.webhook.to_string()).text(delivery.to_document())
            });
        self.write("webhook_deliveries_record", &self.inner.scripts.record_deliveries, arguments).await.map(drop)
    }

    async fn deliveries(&self, id: WebhookId) -> Result<Vec<WebhookDelivery>, Error> {
        let arguments = ScriptArguments::new().text(id.to_string());
        let reply = self.read_list("webhook_deliveries", &self.inner.scripts.deliveries, arguments).await?;
        texts(reply)?.iter().map(|text| WebhookDelivery::from_document(text)).collect()
    }
}

fn texts(mut reply: Reply) -> Result<Vec<String>, Error> {
    (0..reply.len()).map(|index| reply.text(index)).collect()
}

fn flag(value: Value) -> Result<bool, Error> {
    Reply::single(value).flag(0)
}
