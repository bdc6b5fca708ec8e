//! One atomic change of an order: mark, state and events, all or none.
use std::sync::Arc;

use domain::{OrderId, Status};
use ports::Error;
use ports::orders::{Commit, Committed, IdempotencyMark, NewRow};
use rusqlite::{OptionalExtension, params};

use crate::counts::code;
use crate::engine::Work;
use crate::error::{Answer, Trouble, broken};
use crate::order_row;
use crate::owners;

/// Does it, or says why not; then nothing was changed. Tidy: everything is looked at before anything is written.
pub(crate) fn commit(work: &mut Work<'_>, commit: &Commit) -> Answer<Committed> {
    for (place, event) in commit.events.iter().enumerate() {
        refuse_known_event(work, event, &commit.events[..place])?;
    }
    if let Some(refused) = refusal(work, commit)? {
        return Ok(refused);
    }
    work.begin_writing();
    if let Some(mark) = &commit.mark {
        insert_mark(work, mark)?;
    }
    write_order(work, commit)?;
    for event in &commit.events {
        insert_event(work, event)?;
    }
    Ok(Committed::Done)
}

/// An event's name is unique; whoever brings one twice is mistaken.
fn refuse_known_event(work: &Work<'_>, event: &NewRow, before: &[NewRow]) -> Answer<()> {
    let mut statement = work.sql.prepare_cached("SELECT 1 FROM outbox_event WHERE event_id = ?1")?;
    let twice = before.iter().any(|other| other.event_id == event.event_id);
    if twice || statement.exists([event.event_id.bytes()])? {
        return Err(Trouble::Said(Error::Rejected(format!("event {}: its id is taken", event.event_id))));
    }
    Ok(())
}

/// Some answer when the mark or the order stands in the way.
fn refusal(work: &Work<'_>, commit: &Commit) -> Answer<Option<Committed>> {
    if let Some(mark) = &commit.mark
        && let Some(taken) = taken_mark(work, mark)?
    {
        return Ok(Some(Committed::KeyUsed(taken)));
    }
    let stands = version_of(work, commit.order.id)?;
    Ok(match (commit.expected, stands) {
        (None, None) => None,
        (Some(expected), Some(current)) if expected == current => None,
        (_, Some(current)) => Some(Committed::Stale { current }),
        (Some(_), None) => Some(Committed::Missing),
    })
}

fn write_order(work: &mut Work<'_>, commit: &Commit) -> Answer<()> {
    let order = &commit.order;
    let written = match commit.expected {
        None => {
            owners::note(work, order)?;
            order_row::insert(work, order)?
        }
        Some(expected) => {
            if let Some(before) = status_of(work, order.id)? {
                work.counts.order(before, -1);
            }
            order_row::update(work, order, expected)?
        }
    };
    work.counts.order(order.status, 1);
    if written { Ok(()) } else { Err(broken(format!("order {} changed while it was written", order.id))) }
}

fn version_of(work: &Work<'_>, id: OrderId) -> Answer<Option<u64>> {
    let mut statement = work.sql.prepare_cached("SELECT version FROM orders WHERE id = ?1")?;
    let version: Option<i64> = statement.query_row([id.bytes()], |row| row.get(0)).optional()?;
    Ok(version.map(|version| version as u64))
}

fn status_of(work: &Work<'_>, id: OrderId) -> Answer<Option<Status>> {
    let mut statement = work.sql.prepare_cached("SELECT status FROM orders WHERE id = ?1")?;
    let status: Option<String> = statement.query_row([id.bytes()], |row| row.get(0)).optional()?;
    Ok(status.as_deref().and_then(Status::parse))
}

fn insert_mark(work: &Work<'_>, mark: &IdempotencyMark) -> Answer<()> {
    let mut statement = work.sql.prepare_cached(
        "INSERT INTO mark (subject, key, fingerprint, order_id, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let (subject, key) = (mark.subject.as_str(), &*mark.key);
    statement.execute(params![subject, key, mark.fingerprint, mark.order_id.bytes(), work.now.millis()])?;
    Ok(())
}

fn taken_mark(work: &Work<'_>, mark: &IdempotencyMark) -> Answer<Option<IdempotencyMark>> {
    let mut statement =
        work.sql.prepare_cached("SELECT fingerprint, order_id FROM mark WHERE subject = ?1 AND key = ?2")?;
    let found = statement
        .query_row(params![mark.subject.as_str(), &*mark.key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(found.map(|(fingerprint, order_id)| IdempotencyMark {
        fingerprint,
        order_id: OrderId::from_bytes(order_id),
        ..mark.clone()
    }))
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
