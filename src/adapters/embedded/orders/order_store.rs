//! `OrderStore`: commits and sweeps run on the writer, reads on the readers.
use std::time::Duration;

use async_trait::async_trait;
use domain::{Order, OrderId, Status, Subject};
use ports::Error;
use ports::orders::{Commit, CommitOutcome, IdempotencyRecord, ListBudget, OrderFilter, OrderStore, PageStart};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use crate::error::CommandResult;
use crate::orders::commit;
use crate::orders::owner_index::OWNER_ORDER_IDS;
use crate::orders::row;
use crate::store::Embedded;

#[async_trait]
impl OrderStore for Embedded {
    async fn commit(&self, commit: Commit) -> Result<CommitOutcome, Error> {
        if let Some(row) = commit.events.iter().find(|row| row.partition.0 >= self.inner.partitions) {
            return Err(Error::Rejected(format!("event {}: there is no partition {}", row.event_id, row.partition)));
        }
        self.write_without_savepoint("order_commit", move |context| commit::commit(context, &commit)).await
    }

    async fn find(&self, id: OrderId) -> Result<Option<Order>, Error> {
        self.read("order_find", move |sql| {
            let mut statement = sql.prepare_cached(row::FIND)?;
            let mut rows = statement.query([id.bytes()])?;
            rows.next()?.map(row::read).transpose()
        })
        .await
    }

    async fn list(&self, filter: &OrderFilter, from: PageStart, limit: u32) -> Result<Vec<Order>, Error> {
        let filter = filter.clone();
        self.read("order_list", move |sql| list(sql, &filter, from, limit)).await
    }

    async fn count(&self, filter: &OrderFilter) -> Result<u64, Error> {
        let filter = filter.clone();
        self.read("order_count", move |sql| count(sql, &filter)).await
    }

    async fn oldest(&self, status: Status, after: Option<OrderId>, limit: u32) -> Result<Vec<OrderId>, Error> {
        self.read("order_oldest", move |sql| {
            let mut statement =
                sql.prepare_cached("SELECT id FROM orders WHERE status = ?1 AND id > ?2 ORDER BY id LIMIT ?3")?;
            let after = after.map(|id| id.bytes().to_vec()).unwrap_or_default();
            let ids = statement.query_map(params![status.as_str(), after, limit], |row| row.get(0))?;
            Ok(ids.map(|id| id.map(OrderId::from_bytes)).collect::<Result<_, _>>()?)
        })
        .await
    }

    async fn find_idempotency_record(
        &self,
        subject: &Subject,
        key: &str,
        keep: Duration,
    ) -> Result<Option<IdempotencyRecord>, Error> {
        let (subject, key) = (subject.clone(), key.to_string());
        let oldest = self.millis_ago(keep);
        self.read("find_idempotency_record", move |sql| find_idempotency_record(sql, &subject, &key, oldest)).await
    }

    async fn sweep_idempotency_records(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let oldest = self.millis_ago(keep);
        self.write("sweep_idempotency_records", move |context| {
            // Ids grow with time, so the oldest rows have the lowest ids: the limit bounds the rows read as well.
            let mut statement = context.sql.prepare_cached(
                "DELETE FROM idempotency_record WHERE created_at < ?1 AND id IN (SELECT id FROM idempotency_record ORDER BY id LIMIT ?2)",
            )?;
            Ok(statement.execute(params![oldest, limit])? as u64)
        })
        .await
    }
}

impl Embedded {
    /// The store's time minus `ago`, in milliseconds.
    pub(crate) fn millis_ago(&self, ago: Duration) -> i64 {
        let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
        self.inner.clock.now().millis().saturating_sub(ago)
    }
}

/// The query for the ids that match a filter, and its values. It uses the most selective index: by owner, else by status, else the orders.
fn ids(filter: &OrderFilter) -> (String, Vec<Value>) {
    let mut values = Vec::new();
    values.extend(filter.owner.as_ref().map(|owner| Value::Text(owner.as_str().into())));
    values.extend(filter.status.map(|status| Value::Text(status.as_str().into())));
    let text = match (&filter.owner, filter.status) {
        (None, None) => "SELECT id FROM orders WHERE true".to_owned(),
        (None, Some(_)) => "SELECT id FROM orders WHERE status = ?1".to_owned(),
        (Some(_), None) => format!("SELECT id FROM ({OWNER_ORDER_IDS}) WHERE true"),
        // The index by owner is the more selective one; `+` keeps SQLite from using the index by status.
        (Some(_), Some(_)) => format!("SELECT id FROM ({OWNER_ORDER_IDS}) JOIN orders USING (id) WHERE +status = ?2"),
    };
    (text, values)
}

fn list(sql: &Connection, filter: &OrderFilter, from: PageStart, limit: u32) -> CommandResult<Vec<Order>> {
    let (mut text, mut values) = ids(filter);
    let mut skip = 0;
    match from {
        PageStart::After(id) => {
            values.push(Value::Blob(id.bytes().to_vec()));
            text.push_str(&format!(" AND id < ?{}", values.len()));
        }
        PageStart::Offset(rows) => skip = i64::try_from(rows).unwrap_or(i64::MAX),
    }
    values.extend([Value::Integer(limit.into()), Value::Integer(skip)]);
    let (last, before) = (values.len(), values.len() - 1);
    // The offset skips ids in an index; only the rows of the page are read in full.
    let text = format!(
        "SELECT {columns} FROM orders WHERE id IN ({text} ORDER BY id DESC LIMIT ?{before} OFFSET ?{last}) ORDER BY id DESC",
        columns = row::COLUMNS
    );
    let mut statement = sql.prepare_cached(&text)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let (mut orders, mut budget) = (Vec::new(), ListBudget::default());
    while let Some(row) = rows.next()? {
        orders.push(row::read(row)?);
        if !budget.add(row::items_size(row)?) {
            break;
        }
    }
    Ok(orders)
}

/// Counts orders. Without an owner it reads the running counts; an owner's orders are few enough to count one by one.
fn count(sql: &Connection, filter: &OrderFilter) -> CommandResult<u64> {
    let (text, values) = match (&filter.owner, filter.status) {
        (Some(_), _) => {
            let (text, values) = ids(filter);
            (format!("SELECT count(*) FROM ({text})"), values)
        }
        (None, None) => ("SELECT coalesce(sum(orders), 0) FROM order_count".to_owned(), Vec::new()),
        (None, Some(status)) => {
            let text = "SELECT coalesce(sum(orders), 0) FROM order_count WHERE status = ?1".to_owned();
            (text, vec![Value::Text(status.as_str().into())])
        }
    };
    let mut statement = sql.prepare_cached(&text)?;
    let orders: i64 = statement.query_row(params_from_iter(values), |row| row.get(0))?;
    Ok(orders as u64)
}

fn find_idempotency_record(
    sql: &Connection,
    subject: &Subject,
    key: &str,
    oldest: i64,
) -> CommandResult<Option<IdempotencyRecord>> {
    let mut statement = sql.prepare_cached(
        "SELECT fingerprint, order_id FROM idempotency_record WHERE subject = ?1 AND key = ?2 AND created_at >= ?3",
    )?;
    let idempotency_record = statement
        .query_row(params![subject.as_str(), key, oldest], |row| {
            Ok(IdempotencyRecord {
                subject: subject.clone(),
                key: key.into(),
                fingerprint: row.get(0)?,
                order_id: OrderId::from_bytes(row.get(1)?),
            })
        })
        .optional()?;
    Ok(idempotency_record)
}
