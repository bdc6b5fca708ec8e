//! Diagnosis of an outbox row: its state, and the row and lease on which it depends.
use std::sync::Arc;

use ports::broker::Position;
use ports::operators::{RecordLocation, RowDiagnosis, RowSelector};
use ports::outbox::RowId;
use ports::partitions::InstanceId;
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::CommandResult;
use crate::operators::rows;
use crate::outbox::counts::code;

/// Diagnoses the row of an event, or a key's first unsent row (its last sent one if all were sent).
pub(crate) fn diagnose(sql: &Connection, selector: RowSelector) -> CommandResult<Option<RowDiagnosis>> {
    let Some(id) = find_row_id(sql, selector)? else { return Ok(None) };
    let Some(row) = rows::find(sql, id)? else { return Ok(None) };
    let head = match row.sent_at {
        Some(_) => None,
        None => first_blocking(sql, row.key.group())?.filter(|head| *head < id),
    };
    let head = head.map(|head| rows::find(sql, head)).transpose()?.flatten();
    let mut lease = sql.prepare_cached("SELECT owner, epoch FROM outbox_lease WHERE partition = ?1")?;
    let (owner, epoch): (Option<String>, i64) =
        lease.query_row([row.partition.0], |row| Ok((row.get(0)?, row.get(1)?))).optional()?.unwrap_or_default();
    let mut deaths = sql.prepare_cached(
        "SELECT coalesce((SELECT deaths FROM outbox WHERE partition = ?1 AND id = ?2),
           (SELECT deaths FROM outbox_archive WHERE id = ?2), 0)",
    )?;
    let deaths = deaths.query_row(params![row.partition.0, id], |row| row.get(0))?;
    let (sent_to, by_fallback) = sent_to(sql, id)?;
    let owner = owner.map(|name| InstanceId(name.into()));
    Ok(Some(RowDiagnosis { row, head, owner, epoch: epoch as u64, deaths, sent_to, by_fallback }))
}

fn find_row_id(sql: &Connection, selector: RowSelector) -> CommandResult<Option<RowId>> {
    match selector {
        RowSelector::Event(event) => {
            let mut statement = sql.prepare_cached("SELECT id FROM outbox_event WHERE event_id = ?1")?;
            Ok(statement.query_row([event.bytes()], |row| row.get(0)).optional()?)
        }
        RowSelector::Key(key) => match first_unsent(sql, key.group())? {
            Some(id) => Ok(Some(id)),
            None => latest_sent(sql, key.group()),
        },
    }
}

fn first_unsent(sql: &Connection, key: [u8; 16]) -> CommandResult<Option<RowId>> {
    first_with_status_up_to(code::PARKED_ROW, sql, key)
}

/// The first row of a key for which the later ones wait, or that is to be sent before them.
fn first_blocking(sql: &Connection, key: [u8; 16]) -> CommandResult<Option<RowId>> {
    first_with_status_up_to(code::PARKED, sql, key)
}

fn first_with_status_up_to(highest: i64, sql: &Connection, key: [u8; 16]) -> CommandResult<Option<RowId>> {
    let mut statement = sql.prepare_cached(
        "SELECT e.id FROM outbox_event e CROSS JOIN outbox q ON q.partition = e.partition AND q.id = e.id
         WHERE e.key = ?1 AND q.status <= ?2 ORDER BY e.id LIMIT 1",
    )?;
    Ok(statement.query_row(params![key, highest], |row| row.get(0)).optional()?)
}

fn latest_sent(sql: &Connection, key: [u8; 16]) -> CommandResult<Option<RowId>> {
    let mut statement = sql.prepare_cached(
        "SELECT e.id FROM outbox_event e CROSS JOIN outbox_archive a ON a.id = e.id WHERE e.key = ?1 ORDER BY e.id DESC LIMIT 1",
    )?;
    Ok(statement.query_row([key], |row| row.get(0)).optional()?)
}

fn sent_to(sql: &Connection, id: RowId) -> CommandResult<(Option<RecordLocation>, bool)> {
    let mut statement = sql.prepare_cached(
        "SELECT coalesce(a.topic, e.topic), a.topic_partition, a.topic_offset, a.by_fallback
         FROM outbox_archive a CROSS JOIN outbox_event e ON e.id = a.id WHERE a.id = ?1",
    )?;
    let found = statement.query_row([id], |row| {
        let topic: Arc<str> = row.get_ref(0)?.as_str()?.into();
        let (partition, offset): (Option<u32>, Option<i64>) = (row.get(1)?, row.get(2)?);
        let position = |(partition, offset)| Position { topic: Arc::clone(&topic), partition, offset: offset as u64 };
        let (position, by_fallback) = (partition.zip(offset).map(position), row.get(3)?);
        Ok((Some(RecordLocation::new(&topic, position, by_fallback)), by_fallback))
    });
    Ok(found.optional()?.unwrap_or_default())
}
