//! `OrderStore`: commits queue up for the committers, everything else is read at once.
use std::time::Duration;

use async_trait::async_trait;
use domain::{Order, OrderId, Status, Subject};
use ports::Error;
use ports::orders::{Commit, Committed, IdempotencyMark, OrderFilter, OrderStore, PageStart};
use tokio::time::Instant;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::order_row;
use crate::question::Conditions;
use crate::store::Postgres;
use crate::value::{get, order_id, order_uuid, seconds};

#[async_trait]
impl OrderStore for Postgres {
    async fn commit(&self, commit: Commit) -> Result<Committed, Error> {
        let begun = Instant::now();
        let told = match self.enqueue(commit) {
            // A committer answers always, unless the store is dropped under it.
            Ok(answer) => answer.await.unwrap_or_else(|_| Err(Error::Unknown("the store was closed meanwhile".into()))),
            Err(error) => Err(error),
        };
        self.told("order_commit", begun, &told);
        told
    }

    async fn find(&self, id: OrderId) -> Result<Option<Order>, Error> {
        let core = self.core();
        self.run("order_find", async move {
            let text = format!("SELECT {} FROM orders WHERE id = $1", order_row::COLUMNS);
            let rows = core.others().await?.read(&text, &[(&order_uuid(id), Type::UUID)]).await?;
            rows.first().map(order_row::read).transpose()
        })
        .await
    }

    async fn list(&self, filter: &OrderFilter, from: PageStart, limit: u32) -> Result<Vec<Order>, Error> {
        let (core, filter) = (self.core(), filter.clone());
        self.run("order_list", async move {
            let mut conditions = conditions(&filter);
            let mut skip = 0;
            match from {
                PageStart::After(id) => conditions.and("id <", order_uuid(id), Type::UUID),
                PageStart::Offset(rows) => skip = i64::try_from(rows).unwrap_or(i64::MAX),
            }
            let (limit, skip) = (conditions.add(i64::from(limit), Type::INT8), conditions.add(skip, Type::INT8));
            // Skipping walks the narrow index; only the page's own rows are read in full.
            let text = format!(
                "SELECT {} FROM orders WHERE id IN (SELECT id FROM orders{} ORDER BY id DESC LIMIT {limit} OFFSET {skip})
                 ORDER BY id DESC",
                order_row::COLUMNS,
                conditions.text()
            );
            let rows = core.others().await?.read(&text, &conditions.values()).await?;
            rows.iter().map(order_row::read).collect()
        })
        .await
    }

    async fn count(&self, filter: &OrderFilter) -> Result<u64, Error> {
        let (core, conditions) = (self.core(), conditions(filter));
        self.run("order_count", async move {
            let text = format!("SELECT count(*) FROM orders{}", conditions.text());
            let rows = core.others().await?.read(&text, &conditions.values()).await?;
            Ok(rows.first().map(|row| get::<i64>(row, 0)).transpose()?.unwrap_or_default() as u64)
        })
        .await
    }

    async fn oldest(&self, status: Status, after: Option<OrderId>, limit: u32) -> Result<Vec<OrderId>, Error> {
        let core = self.core();
        self.run("order_oldest", async move {
            let after = after.map_or(Uuid::nil(), order_uuid);
            let rows = core
                .others()
                .await?
                .read(
                    "SELECT id FROM orders WHERE status = $1 AND id > $2 ORDER BY id LIMIT $3",
                    &[(&status.as_str(), Type::TEXT), (&after, Type::UUID), (&i64::from(limit), Type::INT8)],
                )
                .await?;
            rows.iter().map(|row| get(row, 0).map(order_id)).collect()
        })
        .await
    }

    async fn find_mark(&self, subject: &Subject, key: &str, keep: Duration) -> Result<Option<IdempotencyMark>, Error> {
        let (core, subject, key) = (self.core(), subject.clone(), key.to_string());
        self.run("mark_find", async move {
            let text = "SELECT fingerprint, order_id FROM mark
                        WHERE subject = $1 AND key = $2 AND created_at >= statement_timestamp() - make_interval(secs => $3)";
            let values = [(&subject.as_str() as _, Type::TEXT), (&key as _, Type::TEXT), (&seconds(keep) as _, Type::FLOAT8)];
            let rows = core.others().await?.read(text, &values).await?;
            let Some(row) = rows.first() else { return Ok(None) };
            let fingerprint = get::<&[u8]>(row, 0)?.try_into().map_err(|_| crate::error::broken("a fingerprint of another size"))?;
            let order_id = order_id(get(row, 1)?);
            Ok(Some(IdempotencyMark { subject, key: key.into(), fingerprint, order_id }))
        })
        .await
    }

    async fn sweep_marks(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let core = self.core();
        self.run("mark_sweep", async move {
            let session = core.others().await?;
            // The quick first line forgets by the way: its rows end by themselves.
            session.once(FORGET_KEYS, &[(&i64::from(limit), Type::INT8)]).await?;
            let rows =
                session.once(FORGET_MARKS, &[(&seconds(keep), Type::FLOAT8), (&i64::from(limit), Type::INT8)]).await?;
            Ok(rows.first().map(|row| get::<i64>(row, 0)).transpose()?.unwrap_or_default() as u64)
        })
        .await
    }
}

const FORGET_MARKS: &str = "WITH gone AS (DELETE FROM mark WHERE ctid = ANY(ARRAY(SELECT ctid FROM mark
       WHERE created_at < statement_timestamp() - make_interval(secs => $1) ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))
     RETURNING 1) SELECT count(*) FROM gone";

const FORGET_KEYS: &str = "DELETE FROM idempotency WHERE ctid = ANY(ARRAY(SELECT ctid FROM idempotency
       WHERE until <= statement_timestamp() ORDER BY until LIMIT $1 FOR UPDATE SKIP LOCKED))";

impl Postgres {
    fn enqueue(&self, commit: Commit) -> Result<tokio::sync::oneshot::Receiver<Result<Committed, Error>>, Error> {
        if let Some(row) = commit.events.iter().find(|row| row.partition.0 >= self.partitions()) {
            return Err(Error::Rejected(format!("event {}: there is no partition {}", row.event_id, row.partition)));
        }
        self.inner.queue.push(commit)
    }
}

/// The conditions of a filter and their values.
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
