//! The port `Inbox`: processed events, and the effects recorded with them.
use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Hlc, OrderId, RegionId};
use ports::Error;
use ports::inbox::{Effect, Inbox, InboxOutcome, ProcessedEvent, RemoteStamp, RetryRoute, RetryRouteChange};
use sha2::{Digest, Sha256};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::sql_value::{SqlValue, event_uuid, get, order_uuid, seconds};
use crate::connection::statement_error::{StatementError, StatementResult, retry_conflicts};
use crate::store::context::StoreContext;
use crate::store::postgres::Postgres;

/// Inserts processed events in one order, so that two consumers of the same messages never deadlock. Applies the effects of the new ones:
/// of an order's remote stamps the latest is kept, whichever arrives first, and the incoming one wins a tie.
const COMMIT: &str = "WITH new_event AS (INSERT INTO processed_events (consumer_group, event_id, topic, partition, \"offset\")
       SELECT $1, message.* FROM unnest($2::uuid[], $3::text[], $4::int4[], $5::int8[]) AS message ON CONFLICT DO NOTHING RETURNING event_id),
     kept_stamp AS (INSERT INTO remote_stamp AS stored (order_id, region, hlc_millis, hlc_counter)
       SELECT DISTINCT ON (stamp.order_id) stamp.order_id, stamp.region, stamp.millis, stamp.counter
       FROM unnest($6::uuid[], $7::uuid[], $8::text[], $9::int8[], $10::int8[]) AS stamp (event_id, order_id, region, millis, counter)
         JOIN new_event ON new_event.event_id = stamp.event_id
       ORDER BY stamp.order_id, stamp.millis DESC, stamp.counter DESC, stamp.region COLLATE \"C\" DESC
       ON CONFLICT (order_id) DO UPDATE SET region = excluded.region, hlc_millis = excluded.hlc_millis, hlc_counter = excluded.hlc_counter
       WHERE (excluded.hlc_millis, excluded.hlc_counter, excluded.region) >= (stored.hlc_millis, stored.hlc_counter, stored.region))
     SELECT event_id FROM new_event";

/// A message that enters again, or late, lowers neither the stage of a retry route nor the offset of its last message.
const ENTER: &str = "INSERT INTO retry_route AS d (consumer_group, key, stage, last_offset) VALUES ($1, $2, $3, $4)
     ON CONFLICT (consumer_group, key) DO UPDATE
       SET stage = GREATEST(d.stage, excluded.stage), last_offset = GREATEST(d.last_offset, excluded.last_offset)";

const LEAVE: &str = "DELETE FROM retry_route WHERE consumer_group = $1 AND key = $2 AND last_offset <= $3";

const DELETE_OLD: &str = "WITH gone AS (DELETE FROM processed_events WHERE ctid = ANY(ARRAY(SELECT ctid FROM processed_events
       WHERE processed_at < statement_timestamp() - make_interval(secs => $1) ORDER BY processed_at LIMIT $2 FOR UPDATE SKIP LOCKED))
     RETURNING 1) SELECT count(*) FROM gone";

#[async_trait]
impl Inbox for Postgres {
    async fn commit(&self, group: &str, events: Vec<ProcessedEvent>) -> Result<Vec<InboxOutcome>, Error> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let (context, group) = (self.context(), group.to_string());
        self.run("inbox_commit", async move { retry_conflicts!(commit(&context, &group, &events)) }).await
    }

    async fn remote_stamp(&self, order_id: OrderId) -> Result<Option<RemoteStamp>, Error> {
        let context = self.context();
        self.run("inbox_remote", async move {
            let text = "SELECT region, hlc_millis, hlc_counter FROM remote_stamp WHERE order_id = $1";
            let rows = context.service_session().await?.query(text, &[(&order_uuid(order_id), Type::UUID)]).await?;
            let read = |row| {
                let hlc = Hlc { millis: get(row, 1)?, counter: get::<i64>(row, 2)? as u32 };
                Ok(RemoteStamp { region: RegionId::new(get(row, 0)?), hlc })
            };
            rows.first().map(read).transpose()
        })
        .await
    }

    async fn retry_route(&self, group: &str, key: &str) -> Result<Option<RetryRoute>, Error> {
        let (context, group, key) = (self.context(), group.to_string(), storable_key(key).into_owned());
        self.run("retry_route_find", async move {
            let text = "SELECT stage, last_offset FROM retry_route WHERE consumer_group = $1 AND key = $2";
            let rows =
                context.service_session().await?.query(text, &[(&group, Type::TEXT), (&key, Type::TEXT)]).await?;
            let read = |row| {
                let (stage, last): (i32, i64) = (get(row, 0)?, get(row, 1)?);
                Ok(RetryRoute { stage: stage.unsigned_abs(), last: last.unsigned_abs() })
            };
            rows.first().map(read).transpose()
        })
        .await
    }

    async fn update_retry_routes(&self, group: &str, changes: Vec<RetryRouteChange>) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let (context, group) = (self.context(), group.to_string());
        self.run(
            "retry_routes_update",
            async move { retry_conflicts!(update_retry_routes(&context, &group, &changes)) },
        )
        .await
    }

    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let context = self.context();
        self.run("inbox_sweep", async move {
            let values: [SqlValue<'_>; 2] = [(&seconds(keep), Type::FLOAT8), (&i64::from(limit), Type::INT8)];
            let rows = context.service_session().await?.execute(DELETE_OLD, &values).await?;
            Ok(rows.first().map(|row| get::<i64>(row, 0)).transpose()?.unwrap_or_default().unsigned_abs())
        })
        .await
    }
}

async fn commit(context: &StoreContext, group: &str, events: &[ProcessedEvent]) -> StatementResult<Vec<InboxOutcome>> {
    // Of an event that occurs twice in one call the first occurrence counts.
    let mut seen = HashSet::new();
    let firsts: Vec<bool> = events.iter().map(|event| seen.insert(event.event_id)).collect();
    let mut distinct: Vec<&ProcessedEvent> =
        events.iter().zip(&firsts).filter(|(_, first)| **first).map(|(event, _)| event).collect();
    distinct.sort_by_key(|event| event.event_id);
    let ids: Vec<Uuid> = distinct.iter().map(|event| event_uuid(event.event_id)).collect();
    let topics: Vec<&str> = distinct.iter().map(|event| &*event.position.topic).collect();
    let partitions: Vec<i32> = distinct.iter().map(|event| event.position.partition as i32).collect();
    let offsets: Vec<i64> = distinct.iter().map(|event| event.position.offset as i64).collect();
    let effects = EffectColumns::new(&distinct);
    let values: [SqlValue<'_>; 10] = [
        (&group, Type::TEXT),
        (&ids, Type::UUID_ARRAY),
        (&topics, Type::TEXT_ARRAY),
        (&partitions, Type::INT4_ARRAY),
        (&offsets, Type::INT8_ARRAY),
        (&effects.events, Type::UUID_ARRAY),
        (&effects.orders, Type::UUID_ARRAY),
        (&effects.regions, Type::TEXT_ARRAY),
        (&effects.millis, Type::INT8_ARRAY),
        (&effects.counters, Type::INT8_ARRAY),
    ];
    let rows = context.service_session().await?.execute(COMMIT, &values).await?;
    let new = rows.iter().map(|row| get(row, 0)).collect::<Result<HashSet<Uuid>, StatementError>>()?;
    let outcome = |(event, first): (&ProcessedEvent, &bool)| {
        if *first && new.contains(&event_uuid(event.event_id)) { InboxOutcome::New } else { InboxOutcome::Duplicate }
    };
    Ok(events.iter().zip(&firsts).map(outcome).collect())
}

/// The effects of processed events, one array per column.
#[derive(Default)]
struct EffectColumns<'a> {
    events: Vec<Uuid>,
    orders: Vec<Uuid>,
    regions: Vec<&'a str>,
    millis: Vec<i64>,
    counters: Vec<i64>,
}

impl<'a> EffectColumns<'a> {
    fn new(processed: &[&'a ProcessedEvent]) -> Self {
        let mut effects = Self::default();
        for event in processed {
            for Effect::StoreRemoteStamp { order_id, region, hlc } in &event.effects {
                effects.events.push(event_uuid(event.event_id));
                effects.orders.push(order_uuid(*order_id));
                effects.regions.push(region.as_str());
                effects.millis.push(hlc.millis);
                effects.counters.push(hlc.counter.into());
            }
        }
        effects
    }
}

/// Longest key that is stored as it is: PostgreSQL's B-trees accept rows of 2,704 bytes.
const KEY_BYTES_MAX: usize = 2_000;

/// The text that identifies a key. Keys of other programs' messages may contain zero bytes (Kafka's serialisers of numbers), which PostgreSQL's
/// `text` does not accept; those and very long ones are stored as their digest.
fn storable_key(key: &str) -> Cow<'_, str> {
    if key.len() <= KEY_BYTES_MAX && !key.contains('\0') {
        return Cow::Borrowed(key);
    }
    Cow::Owned(format!("sha256 {:x}", Sha256::digest(key)))
}

async fn update_retry_routes(context: &StoreContext, group: &str, changes: &[RetryRouteChange]) -> StatementResult<()> {
    let transaction = context.service_session().await?.begin().await?;
    for change in changes {
        match change {
            RetryRouteChange::Enter { key, stage, offset } => {
                let (key, stage, offset) = (storable_key(key), *stage as i32, *offset as i64);
                let values: [SqlValue<'_>; 4] =
                    [(&group, Type::TEXT), (&key, Type::TEXT), (&stage, Type::INT4), (&offset, Type::INT8)];
                transaction.query(ENTER, &values).await?;
            }
            RetryRouteChange::Leave { key, offset } => {
                let key = storable_key(key);
                let values: [SqlValue<'_>; 3] =
                    [(&group, Type::TEXT), (&key, Type::TEXT), (&(*offset as i64), Type::INT8)];
                transaction.query(LEAVE, &values).await?;
            }
        }
    }
    transaction.commit().await
}
