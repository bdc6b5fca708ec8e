//! `Inbox`: consumed events, and the effects that commit with them.
use std::time::Duration;

use async_trait::async_trait;
use domain::{Hlc, OrderId, RegionId};
use ports::Error;
use ports::inbox::{Effect, Inbox, InboxOutcome, ProcessedEvent, RemoteStamp, RetryRoute, RetryRouteChange};
use rusqlite::{OptionalExtension, params};

use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;
use crate::store::Embedded;

#[async_trait]
impl Inbox for Embedded {
    async fn commit(&self, group: &str, events: Vec<ProcessedEvent>) -> Result<Vec<InboxOutcome>, Error> {
        let group = group.to_string();
        self.write("inbox_commit", move |context| events.iter().map(|event| commit(context, &group, event)).collect())
            .await
    }

    async fn remote_stamp(&self, order_id: OrderId) -> Result<Option<RemoteStamp>, Error> {
        self.read("inbox_remote", move |sql| {
            let mut statement =
                sql.prepare_cached("SELECT region, hlc_millis, hlc_counter FROM remote_stamp WHERE order_id = ?1")?;
            let remote = statement.query_row([order_id.bytes()], |row| {
                let region = RegionId::new(row.get_ref(0)?.as_str()?);
                Ok(RemoteStamp { region, hlc: Hlc { millis: row.get(1)?, counter: row.get(2)? } })
            });
            Ok(remote.optional()?)
        })
        .await
    }

    async fn retry_route(&self, group: &str, key: &str) -> Result<Option<RetryRoute>, Error> {
        let (group, key) = (group.to_string(), key.to_string());
        self.read("retry_route_find", move |sql| {
            let mut statement = sql
                .prepare_cached("SELECT stage, last_offset FROM retry_route WHERE consumer_group = ?1 AND key = ?2")?;
            let retry_route = statement.query_row([&group, &key], |row| {
                Ok(RetryRoute { stage: row.get(0)?, last: row.get::<_, i64>(1)?.unsigned_abs() })
            });
            Ok(retry_route.optional()?)
        })
        .await
    }

    async fn update_retry_routes(&self, group: &str, changes: Vec<RetryRouteChange>) -> Result<(), Error> {
        let group = group.to_string();
        self.write("retry_routes_update", move |context| {
            changes.iter().try_for_each(|change| update_retry_route(context, &group, change))
        })
        .await
    }

    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let oldest = self.millis_ago(keep);
        self.write("inbox_sweep", move |context| {
            // Ids grow with time, so the oldest rows have the lowest ids: the limit bounds the rows read as well.
            let mut statement = context.sql.prepare_cached(
                "DELETE FROM processed_events WHERE processed_at < ?1
                   AND id IN (SELECT id FROM processed_events ORDER BY id LIMIT ?2)",
            )?;
            Ok(statement.execute(params![oldest, limit])? as u64)
        })
        .await
    }
}

fn commit(context: &WriteContext<'_>, group: &str, event: &ProcessedEvent) -> CommandResult<InboxOutcome> {
    let mut insert = context.sql.prepare_cached(
        "INSERT INTO processed_events (consumer_group, event_id, topic, partition, offset, processed_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
    )?;
    let position = &event.position;
    let values = params![
        group,
        event.event_id.bytes(),
        &*position.topic,
        position.partition,
        position.offset as i64,
        context.now.millis()
    ];
    if insert.execute(values)? == 0 {
        return Ok(InboxOutcome::Duplicate);
    }
    for effect in &event.effects {
        match effect {
            Effect::StoreRemoteStamp { order_id, region, hlc } => store_remote_stamp(context, *order_id, region, *hlc)?,
        }
    }
    Ok(InboxOutcome::New)
}

/// Stores the later of two stamps, in any order of arrival; the incoming one replaces an equal one.
fn store_remote_stamp(context: &WriteContext<'_>, order_id: OrderId, region: &RegionId, hlc: Hlc) -> CommandResult<()> {
    let mut put = context.sql.prepare_cached(
        "INSERT INTO remote_stamp (order_id, region, hlc_millis, hlc_counter) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO UPDATE SET region = excluded.region, hlc_millis = excluded.hlc_millis, hlc_counter = excluded.hlc_counter
         WHERE (excluded.hlc_millis, excluded.hlc_counter, excluded.region) >= (hlc_millis, hlc_counter, region)",
    )?;
    put.execute(params![order_id.bytes(), region.as_str(), hlc.millis, hlc.counter])?;
    Ok(())
}

fn update_retry_route(context: &WriteContext<'_>, group: &str, change: &RetryRouteChange) -> CommandResult<()> {
    match change {
        RetryRouteChange::Enter { key, stage, offset } => {
            let mut put = context.sql.prepare_cached(
                "INSERT INTO retry_route (consumer_group, key, stage, last_offset) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET stage = max(stage, excluded.stage), last_offset = max(last_offset, excluded.last_offset)",
            )?;
            put.execute(params![group, key, stage, *offset as i64])?;
        }
        RetryRouteChange::Leave { key, offset } => {
            let mut end = context.sql.prepare_cached(
                "DELETE FROM retry_route WHERE consumer_group = ?1 AND key = ?2 AND last_offset <= ?3",
            )?;
            end.execute(params![group, key, *offset as i64])?;
        }
    }
    Ok(())
}
