//! `WebhookStore`: the webhooks, and the latest deliveries of each.
use async_trait::async_trait;
use domain::WebhookId;
use ports::Error;
use ports::endpoint::webhooks::{
    DELIVERIES_KEPT, RETRY_ROUTES_PER_DELETION, Webhook, WebhookDelivery, WebhookStore, group,
};
use rusqlite::{params, params_from_iter};

use crate::store::Embedded;

#[async_trait]
impl WebhookStore for Embedded {
    async fn webhooks(&self) -> Result<Vec<Webhook>, Error> {
        let documents = self.documents("webhooks", "SELECT document FROM webhook ORDER BY id", None);
        documents.await?.iter().map(|document| Webhook::from_document(document)).collect()
    }

    async fn save_webhook(&self, webhook: &Webhook) -> Result<bool, Error> {
        let (id, version, document) = (webhook.id.bytes(), webhook.version as i64, webhook.to_document());
        self.write("webhook_save", move |context| {
            let text = if version == 1 {
                "INSERT INTO webhook (id, version, document) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING"
            } else {
                "UPDATE webhook SET version = ?2, document = ?3 WHERE id = ?1 AND version = ?2 - 1"
            };
            Ok(context.sql.prepare_cached(text)?.execute(params![id, version, document])? > 0)
        })
        .await
    }

    async fn delete_webhook(&self, id: WebhookId) -> Result<bool, Error> {
        let existed = self.write("webhook_delete", move |context| {
            context.sql.prepare_cached("DELETE FROM webhook_delivery WHERE webhook = ?1")?.execute([id.bytes()])?;
            Ok(context.sql.prepare_cached("DELETE FROM webhook WHERE id = ?1")?.execute([id.bytes()])? > 0)
        });
        let existed = existed.await?;
        while self.delete_retry_routes(id).await? == RETRY_ROUTES_PER_DELETION as usize {}
        Ok(existed)
    }

    async fn record_deliveries(&self, deliveries: &[WebhookDelivery]) -> Result<(), Error> {
        let webhooks = WebhookDelivery::distinct_webhooks(deliveries);
        let documents: Vec<_> =
            deliveries.iter().map(|delivery| (delivery.webhook.bytes(), delivery.to_document())).collect();
        self.write("webhook_deliveries_record", move |context| {
            let mut insert = context.sql.prepare_cached(
                "INSERT INTO webhook_delivery (webhook, document)
                 SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM webhook WHERE id = ?1)",
            )?;
            let mut trim = context.sql.prepare_cached(
                "DELETE FROM webhook_delivery WHERE webhook = ?1 AND number <=
                   (SELECT number FROM webhook_delivery WHERE webhook = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
            )?;
            for (webhook, document) in &documents {
                insert.execute(params![webhook, document])?;
            }
            for webhook in &webhooks {
                trim.execute(params![webhook.bytes(), DELIVERIES_KEPT as i64])?;
            }
            Ok(())
        })
        .await
    }

    async fn deliveries(&self, id: WebhookId) -> Result<Vec<WebhookDelivery>, Error> {
        let text = "SELECT document FROM webhook_delivery WHERE webhook = ?1 ORDER BY number DESC";
        let documents = self.documents("webhook_deliveries", text, Some(id));
        documents.await?.iter().map(|document| WebhookDelivery::from_document(document)).collect()
    }
}

impl Embedded {
    /// Deletes retry routes of a webhook's group; returns their number, at most [`RETRY_ROUTES_PER_DELETION`].
    async fn delete_retry_routes(&self, id: WebhookId) -> Result<usize, Error> {
        self.write("webhook_retry_routes_delete", move |context| {
            let mut delete = context.sql.prepare_cached(
                "DELETE FROM retry_route WHERE consumer_group = ?1
                   AND key IN (SELECT key FROM retry_route WHERE consumer_group = ?1 LIMIT ?2)",
            )?;
            Ok(delete.execute(params![group(id), RETRY_ROUTES_PER_DELETION])?)
        })
        .await
    }

    async fn documents(
        &self,
        operation: &'static str,
        text: &'static str,
        id: Option<WebhookId>,
    ) -> Result<Vec<String>, Error> {
        self.read(operation, move |sql| {
            let mut select = sql.prepare_cached(text)?;
            let rows = select.query_map(params_from_iter(id.map(|id| id.bytes())), |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }
}
