//! One transaction for a group of commits: idempotency records first, then orders, then events, each in one statement over arrays. A refused
//! commit does not fail the others. The statement that writes orders inserts their events from its own result, so an event's id is drawn
//! only after its order is locked, and the ids of one key are in commit order.
use std::collections::{HashMap, HashSet};

use domain::{OrderId, Version};
use ports::Error;
use ports::orders::{Commit, CommitOutcome, IdempotencyRecord};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::session::Transaction;
use crate::connection::sql_value::{SqlValue, get, order_id, order_uuid};
use crate::connection::statement_error::{StatementError, StatementResult, broken};
use crate::orders::columns::{EventColumns, IdempotencyColumns, OrderColumns};
use crate::store::context::StoreContext;

/// Inserts records in the order of the arrays, and returns those that were free.
pub(crate) const INSERT_RECORDS: &str = "WITH inserted AS (INSERT INTO idempotency_record (subject, key, fingerprint, order_id)
       SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[]) ON CONFLICT DO NOTHING RETURNING subject, key)
     SELECT pg_current_xact_id()::text::bigint, coalesce(array_agg(subject), '{}'), coalesce(array_agg(key), '{}') FROM inserted";

/// Reads the records that were taken. A second statement, because the first does not see rows that were committed while it waited.
pub(crate) const SELECT_TAKEN: &str =
    "SELECT record.subject, record.key, record.fingerprint, record.order_id FROM unnest($1::text[], $2::text[]) AS asked (subject, key)
     JOIN idempotency_record record ON record.subject = asked.subject AND record.key = asked.key";

const DELETE_RECORDS: &str =
    "DELETE FROM idempotency_record record USING unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[])
       AS asked (subject, key, fingerprint, order_id)
     WHERE record.subject = asked.subject AND record.key = asked.key AND record.order_id = asked.order_id";

/// The rest of a statement that begins with `WITH written AS (…)`, the written orders: inserts their events in the order of the array.
macro_rules! events {
    () => {
        ", event AS (INSERT INTO outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic, region,
             traceparent, tracestate, payload, key_text, headers, content_type, request_id, contract_checksum)
           SELECT event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic, region, traceparent, tracestate, payload,
             key_text, headers::jsonb, content_type, request_id, contract_checksum
           FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int4[], $5::int8[], $6::timestamptz[], $7::int8[], $8::int8[], $9::text[],
             $10::text[], $11::text[], $12::text[], $13::text[], $14::bytea[], $15::text[], $16::text[], $17::text[], $18::text[],
             $19::int4[]) WITH ORDINALITY AS new_event (order_id, event_id, key, partition,
             sequence, occurred_at, hlc_millis, hlc_counter, type, topic, region, traceparent, tracestate, payload, key_text, headers,
             content_type, request_id, contract_checksum, number)
           JOIN written ON written.id = new_event.order_id ORDER BY new_event.number RETURNING id, key, partition, octet_length(payload) AS bytes),
         queued AS (INSERT INTO outbox (id, key, partition, bytes) SELECT id, key, partition, coalesce(bytes, 0) FROM event)
         SELECT pg_current_xact_id()::text::bigint, coalesce(array_agg(id), '{}') FROM written"
    };
}

const CREATE: &str = concat!(
    "WITH written AS (INSERT INTO orders (id, owner, status, version, created_at, updated_at, items, total, region, hlc_millis, hlc_counter)
       SELECT id, owner, status, version, created_at, updated_at, items::json, total::numeric, region, hlc_millis, hlc_counter
       FROM unnest($20::uuid[], $21::text[], $22::text[], $23::int8[], $24::timestamptz[], $25::timestamptz[], $26::text[], $27::text[],
         $28::text[], $29::int8[], $30::int8[]) AS new_order (id, owner, status, version, created_at, updated_at, items, total, region,
         hlc_millis, hlc_counter) ON CONFLICT (id) DO NOTHING RETURNING id)",
    events!()
);

/// Locks orders, except those that another transaction has locked, in the order of their ids, and returns their versions.
const LOCK: &str =
    "SELECT pg_current_xact_id()::text::bigint, coalesce(array_agg(id), '{}'), coalesce(array_agg(version), '{}')
     FROM (SELECT id, version FROM orders WHERE id = ANY($1) ORDER BY id FOR UPDATE SKIP LOCKED) locked";

/// Updates the columns that a change can affect.
const CHANGE: &str = concat!(
    "WITH written AS (UPDATE orders stored SET status = change.status, version = change.version, updated_at = change.updated_at,
         region = change.region, hlc_millis = change.hlc_millis, hlc_counter = change.hlc_counter
       FROM unnest($20::uuid[], $21::text[], $22::int8[], $23::timestamptz[], $24::text[], $25::int8[], $26::int8[])
         AS change (id, status, version, updated_at, region, hlc_millis, hlc_counter) WHERE stored.id = change.id RETURNING stored.id)",
    events!()
);

const VERSIONS: &str = "SELECT id, version FROM orders WHERE id = ANY($1)";

/// The result of one commit in a group whose transaction was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupedCommitResult {
    /// The caller receives this outcome.
    Final(CommitOutcome),
    /// Its record was taken, and deleted before it could be read: the commit has to be tried again.
    Retry,
    /// Another transaction has locked its order: the commit has to be tried again, and delays no other commit.
    Locked,
}

/// The outcome of a group's transaction.
pub(crate) enum GroupOutcome {
    /// It is durable; one result per commit, in their order.
    Committed(Vec<GroupedCommitResult>),
    /// The transaction was rolled back and changed nothing.
    Failed(StatementError),
    /// COMMIT was sent and no reply arrived.
    Unknown {
        /// The id of the transaction, by which its end can be observed.
        xid: i64,
        /// The error of the COMMIT.
        error: Error,
    },
}

/// Commits a group that is sorted by order id and contains no order and no record twice.
pub(crate) async fn commit(context: &StoreContext, commits: &[&Commit]) -> GroupOutcome {
    let WrittenGroup { transaction, xid, results } = match write(context, commits).await {
        Ok(written) => written,
        Err(error) => return GroupOutcome::Failed(error),
    };
    match transaction.commit().await {
        Ok(()) => GroupOutcome::Committed(results),
        Err(StatementError::Port(error @ Error::Unknown(_))) => GroupOutcome::Unknown { xid, error },
        Err(error) => GroupOutcome::Failed(error),
    }
}

/// A group whose statements have run, before the COMMIT.
struct WrittenGroup {
    transaction: Transaction,
    /// The id of the transaction.
    xid: i64,
    /// One result per commit, in their order.
    results: Vec<GroupedCommitResult>,
}

async fn write(context: &StoreContext, commits: &[&Commit]) -> StatementResult<WrittenGroup> {
    let mut group = GroupTransaction::new(context, commits);
    group.insert_records().await?;
    group.create_orders().await?;
    group.change_orders().await?;
    group.delete_records_of_unwritten().await?;
    let (Some(transaction), Some(xid)) = (group.transaction, group.xid) else {
        return Err(broken("a group without a statement"));
    };
    let results = group.results.into_iter().map(|result| result.unwrap_or(GroupedCommitResult::Retry)).collect();
    Ok(WrittenGroup { transaction, xid, results })
}

/// A group and its open transaction.
struct GroupTransaction<'a> {
    context: &'a StoreContext,
    commits: &'a [&'a Commit],
    /// The result of each commit, as far as known.
    results: Vec<Option<GroupedCommitResult>>,
    transaction: Option<Transaction>,
    xid: Option<i64>,
}

impl<'a> GroupTransaction<'a> {
    fn new(context: &'a StoreContext, commits: &'a [&'a Commit]) -> Self {
        Self { context, commits, results: vec![None; commits.len()], transaction: None, xid: None }
    }

    /// Runs a statement of the transaction. The first one begins it, and returns its id in column 0.
    async fn query(&mut self, text: &str, values: &[SqlValue<'_>]) -> StatementResult<Vec<Row>> {
        if let Some(transaction) = &self.transaction {
            return transaction.query(text, values).await;
        }
        let (transaction, rows) = self.context.commit_session().await?.begin_with(text, values).await?;
        self.transaction = Some(transaction);
        self.xid = rows.first().map(|row| get(row, 0)).transpose()?;
        Ok(rows)
    }

    /// Indexes of the commits without a result that match a condition.
    fn undecided(&self, matches: impl Fn(&Commit) -> bool) -> Vec<usize> {
        (0..self.commits.len())
            .filter(|index| self.results[*index].is_none() && matches(self.commits[*index]))
            .collect()
    }

    async fn insert_records(&mut self) -> StatementResult<()> {
        let mut with_record: Vec<(usize, &IdempotencyRecord)> = self
            .commits
            .iter()
            .enumerate()
            .filter_map(|(index, commit)| Some((index, commit.idempotency_record.as_ref()?)))
            .collect();
        if with_record.is_empty() {
            return Ok(());
        }
        with_record.sort_by(|(_, a), (_, b)| (&a.subject, &a.key).cmp(&(&b.subject, &b.key)));
        let columns = IdempotencyColumns::new(with_record.iter().map(|(_, idempotency_record)| *idempotency_record));
        let rows = self.query(INSERT_RECORDS, &columns.values()).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        let (subjects, keys): (Vec<String>, Vec<String>) = (get(row, 1)?, get(row, 2)?);
        let free: HashSet<(&str, &str)> =
            subjects.iter().map(String::as_str).zip(keys.iter().map(String::as_str)).collect();
        with_record.retain(|(_, idempotency_record)| {
            !free.contains(&(idempotency_record.subject.as_str(), &*idempotency_record.key))
        });
        if with_record.is_empty() { Ok(()) } else { self.read_taken_records(&with_record).await }
    }

    async fn read_taken_records(&mut self, taken: &[(usize, &IdempotencyRecord)]) -> StatementResult<()> {
        let columns = IdempotencyColumns::new(taken.iter().map(|(_, idempotency_record)| *idempotency_record));
        let rows = self.query(SELECT_TAKEN, &columns.values()[..2]).await?;
        let mut stored = HashMap::new();
        for row in &rows {
            let (subject, key): (String, String) = (get(row, 0)?, get(row, 1)?);
            stored.insert((subject, key), (get::<Vec<u8>>(row, 2)?, order_id(get(row, 3)?)));
        }
        for (index, idempotency_record) in taken {
            let result = match stored
                .get(&(idempotency_record.subject.as_str().to_string(), idempotency_record.key.to_string()))
            {
                Some((fingerprint, order_id)) => {
                    let fingerprint = fingerprint
                        .as_slice()
                        .try_into()
                        .map_err(|_| broken("a fingerprint that is not 32 bytes long"))?;
                    GroupedCommitResult::Final(CommitOutcome::KeyUsed(IdempotencyRecord {
                        fingerprint,
                        order_id: *order_id,
                        ..(*idempotency_record).clone()
                    }))
                }
                None => GroupedCommitResult::Retry,
            };
            self.results[*index] = Some(result);
        }
        Ok(())
    }

    async fn create_orders(&mut self) -> StatementResult<()> {
        let new = self.undecided(|commit| commit.expected.is_none());
        if new.is_empty() {
            return Ok(());
        }
        let commits: Vec<&Commit> = new.iter().map(|index| self.commits[*index]).collect();
        let (events, orders) = (EventColumns::new(&commits), OrderColumns::new(&commits)?);
        let values: Vec<_> = events.values().into_iter().chain(orders.creation()).collect();
        let rows = self.query(CREATE, &values).await?;
        let written = written(&rows)?;
        self.record_results(&new, &written).await
    }

    async fn change_orders(&mut self) -> StatementResult<()> {
        let changed = self.undecided(|commit| commit.expected.is_some());
        if changed.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = changed.iter().map(|index| order_uuid(self.commits[*index].order.id)).collect();
        let rows = self.query(LOCK, &[(&ids, Type::UUID_ARRAY)]).await?;
        let versions = match rows.first() {
            Some(row) => get::<Vec<Uuid>>(row, 1)?.into_iter().map(order_id).zip(get::<Vec<i64>>(row, 2)?).collect(),
            None => HashMap::new(),
        };
        let expected = |index: &usize| {
            let commit = self.commits[*index];
            versions.get(&commit.order.id).is_some_and(|version| commit.expected == Some(*version as Version))
        };
        let (matching, others): (Vec<usize>, Vec<usize>) = changed.into_iter().partition(expected);
        self.record_unwritten(&others).await?;
        if matching.is_empty() {
            return Ok(());
        }
        let commits: Vec<&Commit> = matching.iter().map(|index| self.commits[*index]).collect();
        let (events, orders) = (EventColumns::new(&commits), OrderColumns::new(&commits)?);
        let values: Vec<_> = events.values().into_iter().chain(orders.change()).collect();
        let rows = self.query(CHANGE, &values).await?;
        let written = written(&rows)?;
        self.record_results(&matching, &written).await
    }

    /// Records the results of attempted commits: done if the order was written, otherwise by the order's version in the table.
    async fn record_results(&mut self, attempted: &[usize], written: &HashSet<OrderId>) -> StatementResult<()> {
        let (written, unwritten): (Vec<usize>, Vec<usize>) =
            attempted.iter().partition(|index| written.contains(&self.commits[**index].order.id));
        for index in written {
            self.results[index] = Some(GroupedCommitResult::Final(CommitOutcome::Done));
        }
        self.record_unwritten(&unwritten).await
    }

    /// Records the results of commits whose order was not written, by the order's version in the table: one with the expected version was
    /// locked by another transaction.
    async fn record_unwritten(&mut self, unwritten: &[usize]) -> StatementResult<()> {
        if unwritten.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = unwritten.iter().map(|index| order_uuid(self.commits[*index].order.id)).collect();
        let rows = self.query(VERSIONS, &[(&ids, Type::UUID_ARRAY)]).await?;
        let mut versions = HashMap::new();
        for row in &rows {
            versions.insert(order_id(get(row, 0)?), get::<i64>(row, 1)? as Version);
        }
        for index in unwritten {
            let commit = self.commits[*index];
            self.results[*index] = Some(match versions.get(&commit.order.id).copied() {
                None => GroupedCommitResult::Final(CommitOutcome::Missing),
                current if current == commit.expected => GroupedCommitResult::Locked,
                Some(current) => GroupedCommitResult::Final(CommitOutcome::Stale { current }),
            });
        }
        Ok(())
    }

    async fn delete_records_of_unwritten(&mut self) -> StatementResult<()> {
        let is_unwritten = |index: &usize| {
            matches!(
                self.results[*index],
                Some(
                    GroupedCommitResult::Locked
                        | GroupedCommitResult::Final(CommitOutcome::Stale { .. } | CommitOutcome::Missing)
                )
            )
        };
        let idempotency_records: Vec<&IdempotencyRecord> = (0..self.commits.len())
            .filter(is_unwritten)
            .filter_map(|index| self.commits[index].idempotency_record.as_ref())
            .collect();
        if idempotency_records.is_empty() {
            return Ok(());
        }
        let columns = IdempotencyColumns::new(idempotency_records.into_iter());
        self.query(DELETE_RECORDS, &columns.values()).await.map(|_| ())
    }
}

fn written(rows: &[Row]) -> StatementResult<HashSet<OrderId>> {
    let Some(row) = rows.first() else { return Ok(HashSet::new()) };
    Ok(get::<Vec<Uuid>>(row, 1)?.into_iter().map(order_id).collect())
}
