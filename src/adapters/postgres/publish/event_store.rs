//! The port `EventStore`: the functions that writers in other languages call, in a transaction with the record.
use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use ports::Error;
use ports::orders::IdempotencyRecord;
use ports::outbox::events::{EventBatch, EventBatchOutcome, EventStore, ExternalEvent};
use serde_json::{Map, Value};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::session::Transaction;
use crate::connection::sql_value::{event_uuid, get, order_id};
use crate::connection::statement_error::{StatementError, StatementResult, broken, retry_conflicts};
use crate::orders::columns::IdempotencyColumns;
use crate::orders::group_commit::{INSERT_RECORDS, SELECT_TAKEN};
use crate::publish::transaction::EventPublisher;
use crate::store::context::StoreContext;
use crate::store::postgres::Postgres;

/// The schema of the functions, and which of the events were published before.
const KNOWN: &str =
    "SELECT functions, coalesce((SELECT array_agg(event_id) FROM outbox_event WHERE event_id = ANY($1)), '{}')
     FROM installation";
/// The events that this transaction has written.
const WRITTEN: &str = "SELECT event_id FROM outbox_event WHERE event_id = ANY($1) AND xmin = pg_current_xact_id()::xid";

#[async_trait]
impl EventStore for Postgres {
    async fn publish(&self, batch: EventBatch) -> Result<EventBatchOutcome, Error> {
        let partitions = self.partitions();
        if let Some(event) = batch.events.iter().find(|event| event.partition.0 >= partitions) {
            let (id, partition) = (event.event_id, event.partition);
            return Err(Error::Rejected(format!("event {id}: there is no partition {partition}")));
        }
        let context = self.context();
        // A conflict is another transaction that published one of the events meanwhile, or locked the same keys for the orders of a bulk.
        self.run("events_publish", async move { retry_conflicts!(publish(&context, &batch)) }).await
    }
}

async fn publish(context: &Arc<StoreContext>, batch: &EventBatch) -> StatementResult<EventBatchOutcome> {
    let ids: Vec<Uuid> = batch.events.iter().map(|event| event_uuid(event.event_id)).collect();
    let (transaction, known) = context.event_session().await?.begin_with(KNOWN, &[(&ids, Type::UUID_ARRAY)]).await?;
    let row = known.first().ok_or_else(|| broken("no installation"))?;
    let schema = get::<Option<String>>(row, 0)?.ok_or_else(|| broken("the schema has no functions"))?;
    let known: HashSet<Uuid> = get::<Vec<Uuid>>(row, 1)?.into_iter().collect();
    if let Some(idempotency_record) = &batch.idempotency_record
        && let Some(taken) = insert_idempotency_record(&transaction, idempotency_record).await?
    {
        transaction.rollback().await?;
        return Ok(EventBatchOutcome::KeyUsed(taken));
    }
    write(&transaction, &schema, &batch.events, &ids).await?;
    // Another transaction may have published one of the events between the look-up and the write, which then left it out. The look-up counts
    // too: the row of an old event may have been written by a transaction of the same number, 2^32 transactions ago.
    let written = transaction.query(WRITTEN, &[(&ids, Type::UUID_ARRAY)]).await?;
    let mut new = written.iter().map(|row| get(row, 0)).collect::<Result<HashSet<Uuid>, _>>()?;
    new.retain(|id| !known.contains(id));
    let is_new = ids.iter().map(|id| new.remove(id)).collect();
    transaction.commit().await?;
    Ok(EventBatchOutcome::Done { is_new })
}

/// Inserts the record, or returns the one that has taken its key.
async fn insert_idempotency_record(
    transaction: &Transaction,
    idempotency_record: &IdempotencyRecord,
) -> StatementResult<Option<IdempotencyRecord>> {
    let columns = IdempotencyColumns::new(std::iter::once(idempotency_record));
    let rows = transaction.query(INSERT_RECORDS, &columns.values()).await?;
    let inserted: Vec<String> = rows.first().map(|row| get(row, 1)).transpose()?.unwrap_or_default();
    if !inserted.is_empty() {
        return Ok(None);
    }
    let rows = transaction.query(SELECT_TAKEN, &columns.values()[..2]).await?;
    // It was deleted before it could be read: the transaction begins again.
    let Some(row) = rows.first() else {
        return Err(StatementError::Conflict("an idempotency record was deleted meanwhile".into()));
    };
    let fingerprint = get::<Vec<u8>>(row, 2)?;
    let fingerprint = fingerprint.try_into().map_err(|_| broken("a fingerprint that is not 32 bytes long"))?;
    Ok(Some(IdempotencyRecord { fingerprint, order_id: order_id(get(row, 3)?), ..idempotency_record.clone() }))
}

async fn write(transaction: &Transaction, schema: &str, events: &[ExternalEvent], ids: &[Uuid]) -> StatementResult<()> {
    let topics: Vec<&str> = events.iter().map(|event| &*event.topic).collect();
    let keys: Vec<Arc<str>> = events.iter().map(|event| event.key.to_text()).collect();
    let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
    let event_types: Vec<&str> = events.iter().map(|event| &*event.event_type).collect();
    let payloads: Vec<&[u8]> = events.iter().map(|event| &*event.payload).collect();
    let headers: Vec<Option<String>> = events.iter().map(headers_json).collect();
    let content_types: Vec<Option<&str>> = events.iter().map(|event| event.content_type.as_deref()).collect();
    let values =
        EventPublisher::batch_values([&topics, &keys, &event_types, &payloads, &headers, &content_types, &ids]);
    transaction.query(EventPublisher::in_schema(schema).batch_text(), &values).await?;
    Ok(())
}

/// The headers of an event with its trace context and the id of its request, as the functions take them.
fn headers_json(event: &ExternalEvent) -> Option<String> {
    let mut headers: Map<String, Value> =
        event.headers.iter().map(|(name, value)| (name.to_string(), Value::from(&**value))).collect();
    let mut put = |name: &str, value: Option<&Arc<str>>| {
        if let Some(value) = value {
            headers.insert(name.to_owned(), Value::from(&**value));
        }
    };
    put("traceparent", event.trace.as_ref().map(|trace| &trace.parent));
    put("tracestate", event.trace.as_ref().and_then(|trace| trace.state.as_ref()));
    put("x-request-id", event.request_id.as_ref());
    (!headers.is_empty()).then(|| Value::Object(headers).to_string())
}
