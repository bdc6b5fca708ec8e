//! The port `WebhookStore`: the webhooks, and the latest deliveries of each.
use async_trait::async_trait;
use domain::WebhookId;
use ports::Error;
use ports::endpoint::webhooks::{
    DELIVERIES_KEPT, RETRY_ROUTES_PER_DELETION, Webhook, WebhookDelivery, WebhookStore, group,
};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::sql_value::{SqlValue, get};
use crate::connection::statement_error::{StatementResult, retry_conflicts};
use crate::store::postgres::Postgres;

const INSERT: &str =
    "INSERT INTO webhook (id, version, document) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING id";

const UPDATE: &str = "UPDATE webhook SET version = $2, document = $3 WHERE id = $1 AND version = $2 - 1 RETURNING id";

/// Locks the webhooks, so that none is deleted before the deliveries are inserted.
const RECORD: &str = "WITH known AS (SELECT id FROM webhook WHERE id = ANY($1) ORDER BY id FOR KEY SHARE)
     INSERT INTO webhook_delivery (webhook, document)
     SELECT d.webhook, d.document FROM unnest($1, $2) WITH ORDINALITY AS d (webhook, document, position)
     JOIN known ON known.id = d.webhook ORDER BY d.position";

const TRIM: &str = "DELETE FROM webhook_delivery WHERE webhook = $1 AND number <=
     (SELECT number FROM webhook_delivery WHERE webhook = $1 ORDER BY number DESC LIMIT 1 OFFSET $2)";

const DELETE_RETRY_ROUTES: &str = "WITH gone AS (DELETE FROM retry_route WHERE ctid = ANY(ARRAY(
       SELECT ctid FROM retry_route WHERE consumer_group = $1 LIMIT $2 FOR UPDATE)) RETURNING 1) SELECT count(*) FROM gone";

#[async_trait]
impl WebhookStore for Postgres {
    async fn webhooks(&self) -> Result<Vec<Webhook>, Error> {
        let documents = self.documents("webhooks", "SELECT document FROM webhook ORDER BY id", None);
        documents.await?.iter().map(|document| Webhook::from_document(document)).collect()
    }

    async fn save_webhook(&self, webhook: &Webhook) -> Result<bool, Error> {
        let (context, id, version) = (self.context(), uuid(webhook.id), webhook.version as i64);
        let (text, document) = (if version == 1 { INSERT } else { UPDATE }, webhook.to_document());
        self.run("webhook_save", async move {
            retry_conflicts!(async {
                let values = [(&id as _, Type::UUID), (&version as _, Type::INT8), (&document as _, Type::TEXT)];
                context.service_session().await?.execute(text, &values).await.map(|rows| !rows.is_empty())
            })
        })
        .await
    }

    async fn delete_webhook(&self, id: WebhookId) -> Result<bool, Error> {
        let (context, group, id) = (self.context(), group(id), uuid(id));
        let existed = self.run("webhook_delete", async move {
            retry_conflicts!(async {
                let text = "DELETE FROM webhook WHERE id = $1 RETURNING id";
                let rows = context.service_session().await?.execute(text, &[(&id, Type::UUID)]).await?;
                Ok(!rows.is_empty())
            })
        });
        let existed = existed.await?;
        while self.delete_retry_routes(&group).await? == u64::from(RETRY_ROUTES_PER_DELETION) {}
        Ok(existed)
    }

    async fn record_deliveries(&self, deliveries: &[WebhookDelivery]) -> Result<(), Error> {
        let webhooks: Vec<Uuid> = deliveries.iter().map(|delivery| uuid(delivery.webhook)).collect();
        let distinct = WebhookDelivery::distinct_webhooks(deliveries);
        let documents: Vec<String> = deliveries.iter().map(WebhookDelivery::to_document).collect();
        let (context, kept) = (self.context(), DELIVERIES_KEPT as i64);
        self.run("webhook_deliveries_record", async move {
            let session = context.service_session().await?;
            session.execute(RECORD, &[(&webhooks, Type::UUID_ARRAY), (&documents, Type::TEXT_ARRAY)]).await?;
            for webhook in distinct {
                session.execute(TRIM, &[(&uuid(webhook), Type::UUID), (&kept, Type::INT8)]).await?;
            }
            Ok(())
        })
        .await
    }

    async fn deliveries(&self, id: WebhookId) -> Result<Vec<WebhookDelivery>, Error> {
        let text = "SELECT document FROM webhook_delivery WHERE webhook = $1 ORDER BY number DESC";
        let documents = self.documents("webhook_deliveries", text, Some(id));
        documents.await?.iter().map(|document| WebhookDelivery::from_document(document)).collect()
    }
}

impl Postgres {
    /// Deletes retry routes of a group; returns their number, at most [`RETRY_ROUTES_PER_DELETION`].
    async fn delete_retry_routes(&self, group: &str) -> Result<u64, Error> {
        let (context, group, limit) = (self.context(), group.to_owned(), i64::from(RETRY_ROUTES_PER_DELETION));
        self.run("webhook_retry_routes_delete", async move {
            retry_conflicts!(async {
                let values: [SqlValue<'_>; 2] = [(&group, Type::TEXT), (&limit, Type::INT8)];
                let rows = context.service_session().await?.execute(DELETE_RETRY_ROUTES, &values).await?;
                Ok(rows.first().map(|row| get::<i64>(row, 0)).transpose()?.unwrap_or_default().unsigned_abs())
            })
        })
        .await
    }

    async fn documents(
        &self,
        operation: &'static str,
        text: &'static str,
        id: Option<WebhookId>,
    ) -> Result<Vec<String>, Error> {
        let (context, id) = (self.context(), id.map(uuid));
        self.run(operation, async move {
            let values: Vec<SqlValue<'_>> = id.iter().map(|id| (id as _, Type::UUID)).collect();
            let rows = context.service_session().await?.query(text, &values).await?;
            rows.iter().map(|row| get(row, 0)).collect::<StatementResult<Vec<String>>>()
        })
        .await
    }
}

fn uuid(id: WebhookId) -> Uuid {
    Uuid::from_bytes(id.bytes())
}
