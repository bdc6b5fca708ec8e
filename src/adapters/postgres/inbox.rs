//! `Inbox`: what was consumed, and what became true with it.
use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Hlc, OrderId, RegionId};
use ports::Error;
use ports::inbox::{Detour, DetourChange, Effect, Inbox, InboxOutcome, ProcessedEvent, RemoteStamp};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::error::{Answer, Trouble, retried};
use crate::store::{Core, Postgres};
use crate::value::{Value, event_uuid, get, order_uuid, seconds};

/// Marks in one order, so that two consumers of the same messages never wait for each other; effects of those that are new, of which the
/// latest stamp of an order stays, whatever the order, and the incoming one wins a tie.
const COMMIT: &str = "WITH n AS (INSERT INTO processed_events (consumer_group, event_id, topic, partition, \"offset\")
       SELECT $1, u.* FROM unnest($2::uuid[], $3::text[], $4::int4[], $5::int8[]) AS u ON CONFLICT DO NOTHING RETURNING event_id),
     r AS (INSERT INTO remote_stamp AS s (order_id, region, hlc_millis, hlc_counter)
       SELECT DISTINCT ON (v.order_id) v.order_id, v.region, v.millis, v.counter
       FROM unnest($6::uuid[], $7::uuid[], $8::text[], $9::int8[], $10::int8[]) AS v (event_id, order_id, region, millis, counter)
         JOIN n ON n.event_id = v.event_id
       ORDER BY v.order_id, v.millis DESC, v.counter DESC, v.region COLLATE \"C\" DESC
       ON CONFLICT (order_id) DO UPDATE SET region = excluded.region, hlc_millis = excluded.hlc_millis, hlc_counter = excluded.hlc_counter
       WHERE (excluded.hlc_millis, excluded.hlc_counter, excluded.region) >= (s.hlc_millis, s.hlc_counter, s.region))
     SELECT event_id FROM n";

const ENTER: &str = "INSERT INTO detour AS d (consumer_group, key, stage, outstanding) VALUES ($1, $2, $3, 1)
     ON CONFLICT (consumer_group, key) DO UPDATE SET stage = excluded.stage, outstanding = d.outstanding + 1";

/// The last message takes the row with it; the rest leave one less.
const LEAVE: [&str; 2] = [
    "DELETE FROM detour WHERE consumer_group = $1 AND key = $2 AND outstanding <= 1",
    "UPDATE detour SET outstanding = outstanding - 1 WHERE consumer_group = $1 AND key = $2",
];

const FORGET: &str = "WITH gone AS (DELETE FROM processed_events WHERE ctid = ANY(ARRAY(SELECT ctid FROM processed_events
       WHERE processed_at < statement_timestamp() - make_interval(secs => $1) ORDER BY processed_at LIMIT $2 FOR UPDATE SKIP LOCKED))
     RETURNING 1) SELECT count(*) FROM gone";

#[async_trait]
impl Inbox for Postgres {
    async fn commit(&self, group: &str, marks: Vec<ProcessedEvent>) -> Result<Vec<InboxOutcome>, Error> {
        if marks.is_empty() {
            return Ok(Vec::new());
        }
        let (core, group) = (self.core(), group.to_string());
        self.run("inbox_commit", async move { retried!(commit(&core, &group, &marks)) }).await
    }

    async fn remote(&self, order_id: OrderId) -> Result<Option<RemoteStamp>, Error> {
        let core = self.core();
        self.run("inbox_remote", async move {
            let text = "SELECT region, hlc_millis, hlc_counter FROM remote_stamp WHERE order_id = $1";
            let rows = core.others().await?.read(text, &[(&order_uuid(order_id), Type::UUID)]).await?;
            let read = |row| {
                let hlc = Hlc { millis: get(row, 1)?, counter: get::<i64>(row, 2)? as u32 };
                Ok(RemoteStamp { region: RegionId::new(get(row, 0)?), hlc })
            };
            rows.first().map(read).transpose()
        })
        .await
    }

    async fn detour(&self, group: &str, key: &str) -> Result<Option<Detour>, Error> {
        let (core, group, key) = (self.core(), group.to_string(), key.to_string());
        self.run("detour", async move {
            let text = "SELECT stage, outstanding FROM detour WHERE consumer_group = $1 AND key = $2";
            let rows = core.others().await?.read(text, &[(&group, Type::TEXT), (&key, Type::TEXT)]).await?;
            let read = |row| {
                let (stage, outstanding): (i32, i32) = (get(row, 0)?, get(row, 1)?);
                Ok(Detour { stage: stage.unsigned_abs(), outstanding: outstanding.unsigned_abs() })
            };
            rows.first().map(read).transpose()
        })
        .await
    }

    async fn set_detours(&self, group: &str, changes: Vec<DetourChange>) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let (core, group) = (self.core(), group.to_string());
        self.run("detour_set", async move { retried!(set_detours(&core, &group, &changes)) }).await
    }

    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let core = self.core();
        self.run("inbox_sweep", async move {
            let values: [Value<'_>; 2] = [(&seconds(keep), Type::FLOAT8), (&i64::from(limit), Type::INT8)];
            let rows = core.others().await?.once(FORGET, &values).await?;
            Ok(rows.first().map(|row| get::<i64>(row, 0)).transpose()?.unwrap_or_default().unsigned_abs())
        })
        .await
    }
}

async fn commit(core: &Core, group: &str, marks: &[ProcessedEvent]) -> Answer<Vec<InboxOutcome>> {
    // Of a message that comes twice in one call the first one counts.
    let mut seen = HashSet::new();
    let firsts: Vec<bool> = marks.iter().map(|mark| seen.insert(mark.event_id)).collect();
    let mut once: Vec<&ProcessedEvent> =
        marks.iter().zip(&firsts).filter(|(_, first)| **first).map(|(mark, _)| mark).collect();
    once.sort_by_key(|mark| mark.event_id);
    let ids: Vec<Uuid> = once.iter().map(|mark| event_uuid(mark.event_id)).collect();
    let topics: Vec<&str> = once.iter().map(|mark| &*mark.position.topic).collect();
    let partitions: Vec<i32> = once.iter().map(|mark| mark.position.partition as i32).collect();
    let offsets: Vec<i64> = once.iter().map(|mark| mark.position.offset as i64).collect();
    let effects = Effects::of(&once);
    let values: [Value<'_>; 10] = [
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
    let rows = core.others().await?.once(COMMIT, &values).await?;
    let new = rows.iter().map(|row| get(row, 0)).collect::<Result<HashSet<Uuid>, Trouble>>()?;
    let marked = |(mark, first): (&ProcessedEvent, &bool)| {
        if *first && new.contains(&event_uuid(mark.event_id)) { InboxOutcome::New } else { InboxOutcome::Duplicate }
    };
    Ok(marks.iter().zip(&firsts).map(marked).collect())
}

/// What marks want done, one array for each column.
#[derive(Default)]
struct Effects<'a> {
    events: Vec<Uuid>,
    orders: Vec<Uuid>,
    regions: Vec<&'a str>,
    millis: Vec<i64>,
    counters: Vec<i64>,
}

impl<'a> Effects<'a> {
    fn of(marks: &[&'a ProcessedEvent]) -> Self {
        let mut effects = Self::default();
        for mark in marks {
            for Effect::RememberRemote { order_id, region, hlc } in &mark.effects {
                effects.events.push(event_uuid(mark.event_id));
                effects.orders.push(order_uuid(*order_id));
                effects.regions.push(region.as_str());
                effects.millis.push(hlc.millis);
                effects.counters.push(hlc.counter.into());
            }
        }
        effects
    }
}

async fn set_detours(core: &Core, group: &str, changes: &[DetourChange]) -> Answer<()> {
    let transaction = core.others().await?.begin_transaction().await?;
    for change in changes {
        match change {
            DetourChange::Enter { key, stage } => {
                let values: [Value<'_>; 3] = [(&group, Type::TEXT), (key, Type::TEXT), (&(*stage as i32), Type::INT4)];
                transaction.query(ENTER, &values).await?;
            }
            DetourChange::Leave { key } => {
                for text in LEAVE {
                    transaction.query(text, &[(&group, Type::TEXT), (key, Type::TEXT)]).await?;
                }
            }
        }
    }
    transaction.commit().await
}
