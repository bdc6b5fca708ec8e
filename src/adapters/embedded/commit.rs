//! One atomic change of an order: mark, state and events, all or none.
use std::sync::Arc;

use domain::{OrderId, Status};
use ports::orders::{Commit, Committed, Mark, NewRow};
use rusqlite::{OptionalExtension, params};

use crate::counts::code;
use crate::engine::Work;
use crate::error::{Answer, broken};
use crate::order_row;

/// Does it, or says why not; then nothing was changed.
pub(crate) fn commit(work: &mut Work<'_>, commit: &Commit) -> Answer<Committed> {
    let refused = refusal(work, commit)?;
    if let Some(refused) = refused {
        work.undo();
        return Ok(refused);
    }
    for event in &commit.events {
        insert_event(work, event)?;
    }
    Ok(Committed::Done)
}

/// Writes mark and order; some answer when one of them stands in the way.
fn refusal(work: &mut Work<'_>, commit: &Commit) -> Answer<Option<Committed>> {
    if let Some(mark) = &commit.mark
        && !insert_mark(work, mark)?
    {
        let taken = taken_mark(work, mark)?;
        return Ok(Some(Committed::MarkTaken(taken)));
    }
    let order = &commit.order;
    let Some(expected) = commit.expected else {
        if order_row::insert(work, order)? {
            work.counts.order(order.status, 1);
            return Ok(None);
        }
        return standing(work, order.id).map(Some);
    };
    let before = status_of(work, order.id)?;
    if !order_row::update(work, order, expected)? {
        return standing(work, order.id).map(Some);
    }
    if let Some(before) = before {
        work.counts.order(before, -1);
        work.counts.order(order.status, 1);
    }
    Ok(None)
}

/// The version an order has instead of the one expected.
fn standing(work: &Work<'_>, id: OrderId) -> Answer<Committed> {
    let mut statement = work.sql.prepare_cached("SELECT version FROM orders WHERE id = ?1")?;
    let version: Option<i64> = statement.query_row([id.bytes()], |row| row.get(0)).optional()?;
    Ok(version.map_or(Committed::Missing, |current| Committed::Stale { current: current as u64 }))
}

fn status_of(work: &Work<'_>, id: OrderId) -> Answer<Option<Status>> {
    let mut statement = work.sql.prepare_cached("SELECT status FROM orders WHERE id = ?1")?;
    let status: Option<String> = statement.query_row([id.bytes()], |row| row.get(0)).optional()?;
    Ok(status.as_deref().and_then(Status::parse))
}

fn insert_mark(work: &Work<'_>, mark: &Mark) -> Answer<bool> {
    let mut statement = work.sql.prepare_cached(
        "INSERT INTO mark (subject, key, fingerprint, order_id, created_at) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT DO NOTHING",
    )?;
    let (subject, key) = (mark.subject.as_str(), &*mark.key);
    let values = params![subject, key, mark.fingerprint, mark.order_id.bytes(), work.now.millis()];
    Ok(statement.execute(values)? == 1)
}

fn taken_mark(work: &Work<'_>, mark: &Mark) -> Answer<Mark> {
    let mut statement =
        work.sql.prepare_cached("SELECT fingerprint, order_id FROM mark WHERE subject = ?1 AND key = ?2")?;
    let found = statement
        .query_row(params![mark.subject.as_str(), &*mark.key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (fingerprint, order_id) = found.ok_or_else(|| broken("a mark that stood in the way is gone"))?;
    Ok(Mark { fingerprint, order_id: OrderId::from_bytes(order_id), ..mark.clone() })
}

/// Writes an event and its place in line. The id is drawn here, by the one writer, so ids are in commit order.
fn insert_event(work: &mut Work<'_>, event: &NewRow) -> Answer<()> {
    let mut insert = work.sql.prepare_cached(
        "INSERT INTO outbox_event (event_id, key, type, topic, partition, sequence, occurred_at, region, hlc_millis, hlc_counter,
           traceparent, tracestate, created_at, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?;
    let trace = event.trace.as_ref();
    insert.execute(params![
        event.event_id.bytes(),
        event.key.bytes(),
        event.kind.as_str(),
        &*event.topic,
        event.partition.0,
        event.sequence as i64,
        event.occurred_at.millis(),
        event.region.as_str(),
        event.hlc.millis,
        event.hlc.counter,
        trace.map(|trace| &*trace.parent),
        trace.and_then(|trace| trace.state.as_ref()).map(|state: &Arc<str>| &**state),
        work.now.millis(),
        &*event.payload,
    ])?;
    let mut queue = work.sql.prepare_cached("INSERT INTO outbox (partition, id, key) VALUES (?1, ?2, ?3)")?;
    queue.execute(params![event.partition.0, work.sql.last_insert_rowid(), event.key.bytes()])?;
    work.counts.rows(event.partition.0, code::PENDING, 1);
    Ok(())
}
