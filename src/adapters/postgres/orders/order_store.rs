//! The port `OrderStore`. Commits go through the queue of the committers; reads run at once.
use std::time::Duration;

use async_trait::async_trait;
use domain::{Order, OrderId, Status, Subject};
use ports::Error;
use ports::orders::{Commit, CommitOutcome, IdempotencyRecord, ListBudget, OrderFilter, OrderStore, PageStart};
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::sql_value::{SqlValue, get, order_id, order_uuid, seconds};
use crate::connection::statement_error::broken;
use crate::connection::where_clause::Conditions;
use crate::orders::order_row;
use crate::store::postgres::Postgres;

#[async_trait]
impl OrderStore for Postgres {
    async fn commit(&self, commit: Commit) -> Result<CommitOutcome, Error> {
        let started = Instant::now();
        let result = match self.enqueue(commit) {
            // The committer drops the sender without a reply only when the store is dropped.
            Ok(reply) => reply.await.unwrap_or_else(|_| Err(Error::Unknown("the store was closed meanwhile".into()))),
            Err(error) => Err(error),
        };
        self.record("order_commit", started, &result);
        result
    }

    async fn find(&self, id: OrderId) -> Result<Option<Order>, Error> {
        let context = self.context();
        self.run("order_find", async move {
            let text = format!("SELECT {} FROM orders WHERE id = $1", order_row::COLUMNS);
            let rows = context.service_session().await?.query(&text, &[(&order_uuid(id), Type::UUID)]).await?;
            rows.first().map(order_row::read).transpose()
        })
        .await
    }

    async fn list(&self, filter: &OrderFilter, from: PageStart, limit: u32) -> Result<Vec<Order>, Error> {
        let (context, filter) = (self.context(), filter.clone());
        let permit = context.list_permit().await?;
        self.run("order_list", async move {
            let _held = permit;
            let mut conditions = conditions(&filter);
            let mut offset = 0;
            match from {
                PageStart::After(id) => conditions.and("id <", order_uuid(id), Type::UUID),
                PageStart::Offset(rows) => offset = i64::try_from(rows).unwrap_or(i64::MAX),
            }
            let (limit, offset) = (conditions.add_parameter(i64::from(limit), Type::INT8), conditions.add_parameter(offset, Type::INT8));
            // OFFSET skips over index entries; only the page's own rows are read in full.
            let text = format!(
                "SELECT {} FROM orders WHERE id IN (SELECT id FROM orders{} ORDER BY id DESC LIMIT {limit} OFFSET {offset})
                 ORDER BY id DESC",
                order_row::COLUMNS,
                conditions.text()
            );
            let mut budget = ListBudget::default();
            let session = context.service_session().await?;
            // A row that cannot be read fails the conversion below.
            let has_budget = |row: &Row| budget.add(order_row::items_size(row).unwrap_or_default());
            let rows = session.query_while(&text, &conditions.values(), has_budget).await?;
            rows.iter().map(order_row::read).collect()
        })
        .await
    }

    async fn count(&self, filter: &OrderFilter) -> Result<u64, Error> {
        let (context, conditions) = (self.context(), conditions(filter));
        let permit = context.list_permit().await?;
        self.run("order_count", async move {
            let _held = permit;
            let text = format!("SELECT count(*) FROM orders{}", conditions.text());
            let rows = context.service_session().await?.query(&text, &conditions.values()).await?;
            Ok(rows.first().map(|row| get::<i64>(row, 0)).transpose()?.unwrap_or_default() as u64)
        })
        .await
    }

    async fn oldest(&self, status: Status, after: Option<OrderId>, limit: u32) -> Result<Vec<OrderId>, Error> {
        let context = self.context();
        self.run("order_oldest", async move {
            let after = after.map_or(Uuid::nil(), order_uuid);
            let text = "SELECT id FROM orders WHERE status = $1 AND id > $2 ORDER BY id LIMIT $3";
            let limit = i64::from(limit);
            let values: [SqlValue<'_>; 3] =
                [(&status.as_str(), Type::TEXT), (&after, Type::UUID), (&limit, Type::INT8)];
            let rows = context.service_session().await?.query(text, &values).await?;
            rows.iter().map(|row| get(row, 0).map(order_id)).collect()
        })
        .await
    }

    async fn find_idempotency_record(
        &self,
        subject: &Subject,
        key: &str,
        keep: Duration,
    ) -> Result<Option<IdempotencyRecord>, Error> {
        let (context, subject, key) = (self.context(), subject.clone(), key.to_string());
        self.run("find_idempotency_record", async move {
            let text = "SELECT fingerprint, order_id FROM idempotency_record
                        WHERE subject = $1 AND key = $2 AND created_at >= statement_timestamp() - make_interval(secs => $3)";
            let values = [(&subject.as_str() as _, Type::TEXT), (&key as _, Type::TEXT), (&seconds(keep) as _, Type::FLOAT8)];
            let rows = context.service_session().await?.query(text, &values).await?;
            let Some(row) = rows.first() else { return Ok(None) };
            let fingerprint = get::<&[u8]>(row, 0)?.try_into().map_err(|_| broken("a fingerprint that is not 32 bytes long"))?;
            let order_id = order_id(get(row, 1)?);
            Ok(Some(IdempotencyRecord { subject, key: key.into(), fingerprint, order_id }))
        })
        .await
    }

    async fn sweep_idempotency_records(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let context = self.context();
        self.run("sweep_idempotency_records", async move {
            let session = context.service_session().await?;
            // The rows of `idempotency` expire by themselves and are deleted here as well.
            session.execute(DELETE_EXPIRED_KEYS, &[(&i64::from(limit), Type::INT8)]).await?;
            let rows = session
                .execute(DELETE_RECORDS, &[(&seconds(keep), Type::FLOAT8), (&i64::from(limit), Type::INT8)])
                .await?;
            Ok(rows.first().map(|row| get::<i64>(row, 0)).transpose()?.unwrap_or_default() as u64)
        })
        .await
    }
}

const DELETE_RECORDS: &str = "WITH gone AS (DELETE FROM idempotency_record WHERE ctid = ANY(ARRAY(SELECT ctid FROM idempotency_record
       WHERE created_at < statement_timestamp() - make_interval(secs => $1) ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))
     RETURNING 1) SELECT count(*) FROM gone";

const DELETE_EXPIRED_KEYS: &str = "DELETE FROM idempotency WHERE ctid = ANY(ARRAY(SELECT ctid FROM idempotency
       WHERE until <= statement_timestamp() ORDER BY until LIMIT $1 FOR UPDATE SKIP LOCKED))";

impl Postgres {
    fn enqueue(&self, commit: Commit) -> Result<tokio::sync::oneshot::Receiver<Result<CommitOutcome, Error>>, Error> {
        if let Some(row) = commit.events.iter().find(|row| row.partition.0 >= self.partitions()) {
            return Err(Error::Rejected(format!("event {}: there is no partition {}", row.event_id, row.partition)));
        }
        self.inner.opened.commits.push(commit)
    }
}

/// The WHERE clause of a filter.
fn conditions(filter: &OrderFilter) -> Conditions {
    let mut conditions = Conditions::default();
    if let Some(owner) = &filter.owner {
        conditions.and("owner =", owner.as_str().to_string(), Type::TEXT);
    }
    if let Some(status) = filter.status {
        conditions.and("status =", status.as_str().to_string(), Type::TEXT);
    }
    conditions
}
