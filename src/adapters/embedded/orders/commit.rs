//! One atomic commit of an order: idempotency record, state and events, all or none.
use std::sync::Arc;

use domain::{OrderId, Status};
use ports::Error;
use ports::orders::{Commit, CommitOutcome, IdempotencyRecord, NewRow};
use rusqlite::{OptionalExtension, params};

use crate::connection::group_commit::WriteContext;
use crate::error::{CommandResult, WriteError, broken};
use crate::orders::row;
use crate::outbox::counts::code;

/// Commits the change, or returns the reason to refuse it. Checks every reason before the first write, as
/// [`crate::connection::group_commit::SavepointMode::NoSavepoint`] requires.
pub(crate) fn commit(context: &mut WriteContext<'_>, commit: &Commit) -> CommandResult<CommitOutcome> {
    for (index, event) in commit.events.iter().enumerate() {
        refuse_known_event(context, event, &commit.events[..index])?;
    }
    if let Some(refused) = refusal(context, commit)? {
        return Ok(refused);
    }
    context.begin_writing();
    if let Some(idempotency_record) = &commit.idempotency_record {
        insert_idempotency_record(context, idempotency_record)?;
    }
    write_order(context, commit)?;
    for event in &commit.events {
        insert_event(context, event)?;
    }
    Ok(CommitOutcome::Done)
}

/// Refuses an event whose id is already stored or occurs twice in the commit.
fn refuse_known_event(context: &WriteContext<'_>, event: &NewRow, before: &[NewRow]) -> CommandResult<()> {
    let mut statement = context.sql.prepare_cached("SELECT 1 FROM outbox_event WHERE event_id = ?1")?;
    let twice = before.iter().any(|other| other.event_id == event.event_id);
    if twice || statement.exists([event.event_id.bytes()])? {
        return Err(WriteError::Port(Error::Rejected(format!("event {}: its id is taken", event.event_id))));
    }
    Ok(())
}

/// The reason for which the record or the stored version refuses the commit, if there is one.
fn refusal(context: &WriteContext<'_>, commit: &Commit) -> CommandResult<Option<CommitOutcome>> {
    if let Some(idempotency_record) = &commit.idempotency_record
        && let Some(taken) = taken_idempotency_record(context, idempotency_record)?
    {
        return Ok(Some(CommitOutcome::KeyUsed(taken)));
    }
    let stored = read_version(context, commit.order.id)?;
    Ok(match (commit.expected, stored) {
        (None, None) => None,
        (Some(expected), Some(current)) if expected == current => None,
        (_, Some(current)) => Some(CommitOutcome::Stale { current }),
        (Some(_), None) => Some(CommitOutcome::Missing),
    })
}

fn write_order(context: &mut WriteContext<'_>, commit: &Commit) -> CommandResult<()> {
    let order = &commit.order;
    let written = match commit.expected {
        None => {
            insert_unindexed(context, order)?;
            row::insert(context, order)?
        }
        Some(expected) => {
            if let Some(before) = read_status(context, order.id)? {
                context.counts.add_orders(before, -1);
            }
            row::update(context, order, expected)?
        }
    };
    context.counts.add_orders(order.status, 1);
    if written { Ok(()) } else { Err(broken(format!("order {} changed while it was written", order.id))) }
}

/// Adds a new order to the list of orders that are not in the index by owner yet.
fn insert_unindexed(context: &mut WriteContext<'_>, order: &domain::Order) -> CommandResult<()> {
    let mut statement = context.sql.prepare_cached("INSERT INTO order_fresh (owner, id) VALUES (?1, ?2)")?;
    statement.execute(params![order.owner.as_str(), order.id.bytes()])?;
    context.unindexed_orders += 1;
    Ok(())
}

fn read_version(context: &WriteContext<'_>, id: OrderId) -> CommandResult<Option<u64>> {
    let mut statement = context.sql.prepare_cached("SELECT version FROM orders WHERE id = ?1")?;
    let version: Option<i64> = statement.query_row([id.bytes()], |row| row.get(0)).optional()?;
    Ok(version.map(|version| version as u64))
}

fn read_status(context: &WriteContext<'_>, id: OrderId) -> CommandResult<Option<Status>> {
    let mut statement = context.sql.prepare_cached("SELECT status FROM orders WHERE id = ?1")?;
    let status: Option<String> = statement.query_row([id.bytes()], |row| row.get(0)).optional()?;
    Ok(status.as_deref().and_then(Status::parse))
}

pub(crate) fn insert_idempotency_record(
    context: &WriteContext<'_>,
    idempotency_record: &IdempotencyRecord,
) -> CommandResult<()> {
    let mut statement = context.sql.prepare_cached(
        "INSERT INTO idempotency_record (subject, key, fingerprint, order_id, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let (subject, key) = (idempotency_record.subject.as_str(), &*idempotency_record.key);
    statement.execute(params![
        subject,
        key,
        idempotency_record.fingerprint,
        idempotency_record.order_id.bytes(),
        context.now.millis()
    ])?;
    Ok(())
}

pub(crate) fn taken_idempotency_record(
    context: &WriteContext<'_>,
    idempotency_record: &IdempotencyRecord,
) -> CommandResult<Option<IdempotencyRecord>> {
    let mut statement = context
        .sql
        .prepare_cached("SELECT fingerprint, order_id FROM idempotency_record WHERE subject = ?1 AND key = ?2")?;
    let found = statement
        .query_row(params![idempotency_record.subject.as_str(), &*idempotency_record.key], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    Ok(found.map(|(fingerprint, order_id)| IdempotencyRecord {
        fingerprint,
        order_id: OrderId::from_bytes(order_id),
        ..idempotency_record.clone()
    }))
}

/// Writes an event and its outbox row. The single writer generates the id here, so ids are in commit order.
pub(crate) fn insert_event(context: &mut WriteContext<'_>, event: &NewRow) -> CommandResult<()> {
    let mut insert = context.sql.prepare_cached(
        "INSERT INTO outbox_event (event_id, key, type, topic, partition, sequence, occurred_at, region, hlc_millis, hlc_counter,
           traceparent, tracestate, created_at, payload, key_text, headers, content_type, request_id, contract_checksum)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
    )?;
    let (trace, stamp) = (event.trace.as_ref(), event.stamp.as_ref());
    insert.execute(params![
        event.event_id.bytes(),
        event.key.group(),
        &*event.event_type,
        &*event.topic,
        event.partition.0,
        event.sequence as i64,
        event.occurred_at.millis(),
        stamp.map_or("", |stamp| stamp.region.as_str()),
        stamp.map_or(0, |stamp| stamp.hlc.millis),
        stamp.map_or(0, |stamp| stamp.hlc.counter),
        trace.map(|trace| &*trace.parent),
        trace.and_then(|trace| trace.state.as_ref()).map(|state: &Arc<str>| &**state),
        context.now.millis(),
        &*event.payload,
        event.key.text(),
        event.headers.to_json(),
        event.content_type.as_deref(),
        event.request_id.as_deref(),
        event.contract_checksum,
    ])?;
    let mut queue = context.sql.prepare_cached("INSERT INTO outbox (partition, id, key) VALUES (?1, ?2, ?3)")?;
    queue.execute(params![event.partition.0, context.sql.last_insert_rowid(), event.key.group()])?;
    context.counts.add_rows(event.partition.0, code::PENDING, 1);
    Ok(())
}
