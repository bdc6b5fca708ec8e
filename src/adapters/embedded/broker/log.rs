//! The log of the embedded broker: loads its topics, appends records and reads them.
use std::collections::BTreeMap;
use std::sync::Arc;

use domain::Timestamp;
use ports::Error;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::topic_log::{NextOffset, ReadLimits};
use ports::broker::{Position, Record};
use rusqlite::{Connection, OptionalExtension, params};

use crate::broker::headers;
use crate::broker::log_state::{LogState, LogTopic, log_id, offset_in};
use crate::connection::group_commit::WriteContext;
use crate::error::{CommandResult, WriteError, broken};

/// Most records of one read.
const READ_MAX: u32 = 10_000;

/// Bytes of values after which a read ends; the first record is always returned.
const READ_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A record with its topic partition and encoded headers. The caller prepares it, so that the writer thread only executes statements.
pub(crate) struct PreparedRecord {
    pub(crate) number: u32,
    pub(crate) partition: u32,
    pub(crate) record: Record,
    pub(crate) headers: Vec<u8>,
}

/// Loads every topic and the end of each of its partitions.
pub(crate) fn load(sql: &Connection, log_state: &LogState) -> rusqlite::Result<()> {
    let mut topics = sql.prepare("SELECT name, first, partitions FROM topic")?;
    let topics = topics.query_map([], |row| {
        Ok((row.get_ref(0)?.as_str()?.into(), LogTopic { first: row.get(1)?, partitions: row.get(2)? }))
    })?;
    for topic in topics {
        let (name, topic): (Arc<str>, LogTopic) = topic?;
        log_state.add_topic(name, topic);
    }
    let mut ends = sql.prepare("SELECT number, next_offset FROM topic_partition")?;
    let ends = ends.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
    log_state.advance(&ends.collect::<Result<Vec<_>, _>>()?);
    Ok(())
}

/// Appends records in their order; returns the position of each.
pub(crate) fn append(context: &mut WriteContext<'_>, records: &[PreparedRecord]) -> CommandResult<Vec<Position>> {
    let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
    let mut insert = context.sql.prepare_cached(
        "INSERT INTO log (place, appended_at, timestamp, key, headers, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let mut positions = Vec::with_capacity(records.len());
    for PreparedRecord { number, partition, record, headers } in records {
        let end = match ends.entry(*number) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(unknown) => unknown.insert(end(context, *number)?),
        };
        let (appended_at, timestamp) = (context.now.millis(), record.timestamp.millis());
        insert.execute(params![
            log_id(*number, *end),
            appended_at,
            timestamp,
            &*record.key,
            headers,
            &*record.value
        ])?;
        positions.push(Position { topic: record.topic.clone(), partition: *partition, offset: *end });
        *end += 1;
    }
    let mut advance = context.sql.prepare_cached("UPDATE topic_partition SET next_offset = ?2 WHERE number = ?1")?;
    for (number, end) in ends {
        advance.execute(params![number, end as i64])?;
        context.ends.push((number, end));
    }
    Ok(positions)
}

fn end(context: &WriteContext<'_>, number: u32) -> CommandResult<u64> {
    let mut statement = context.sql.prepare_cached("SELECT next_offset FROM topic_partition WHERE number = ?1")?;
    Ok(statement.query_row([number], |row| row.get::<_, i64>(0))? as u64)
}

/// Reads at most `limit` records of one topic partition from an offset on.
pub(crate) fn read(
    sql: &Connection,
    name: &Arc<str>,
    topic: LogTopic,
    partition: u32,
    from: u64,
    limit: u32,
) -> CommandResult<Vec<ConsumerRecord>> {
    read_within(sql, name, topic, (partition, from), read_limits(limit))
}

/// The limits of a read of at most `limit` records.
pub(crate) fn read_limits(limit: u32) -> ReadLimits {
    ReadLimits { records: limit.min(READ_MAX), bytes: READ_BYTES_MAX }
}

/// The limits of the next read, after a read within `limits` that returned `messages`.
pub(crate) fn remaining_limits(limits: ReadLimits, messages: &[ConsumerRecord]) -> ReadLimits {
    let bytes: usize = messages.iter().map(|message| message.record.value.len()).sum();
    ReadLimits { records: limits.records - messages.len() as u32, bytes: limits.bytes.saturating_sub(bytes) }
}

/// Reads records of one topic partition from an offset on, within limits.
pub(crate) fn read_within(
    sql: &Connection,
    name: &Arc<str>,
    topic: LogTopic,
    (partition, from): NextOffset,
    limits: ReadLimits,
) -> CommandResult<Vec<ConsumerRecord>> {
    let number = topic.first + partition;
    let mut statement = sql.prepare_cached(
        "SELECT place, timestamp, key, headers, value FROM log WHERE place >= ?1 AND place < ?2 ORDER BY place LIMIT ?3",
    )?;
    let (start, end) = (log_id(number, from), log_id(number + 1, 0));
    let mut rows = statement.query(params![start, end, limits.records])?;
    let (mut messages, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let position = Position { topic: name.clone(), partition, offset: offset_in(row.get(0)?) };
        let text = |column| -> CommandResult<Arc<str>> {
            Ok(row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?.into())
        };
        let blob =
            |column| -> CommandResult<&[u8]> { Ok(row.get_ref(column)?.as_blob().map_err(rusqlite::Error::from)?) };
        let headers = headers::decode(blob(3)?).ok_or_else(|| broken(format!("headers at {position:?}")))?;
        let record = Record {
            topic: name.clone(),
            key: text(2)?,
            headers,
            value: blob(4)?.into(),
            timestamp: Timestamp::from_millis(row.get(1)?),
        };
        bytes += record.value.len();
        messages.push(ConsumerRecord { position, record });
        if bytes >= limits.bytes {
            break;
        }
    }
    Ok(messages)
}

/// Reads a topic from the file.
///
/// # Errors
/// [`Error::Rejected`] if there is no such topic; its text lists the existing ones.
pub(crate) fn topic_in(sql: &Connection, name: &str) -> CommandResult<LogTopic> {
    if let Some(known) = find_topic(sql, name)? {
        return Ok(known);
    }
    let names = topic_names(sql)?.join(", ");
    Err(WriteError::Port(Error::Rejected(format!("there is no topic {name}; there are: {names}"))))
}

/// A topic of the file; `None` if there is none of this name.
pub(crate) fn find_topic(sql: &Connection, name: &str) -> CommandResult<Option<LogTopic>> {
    let mut known = sql.prepare_cached("SELECT first, partitions FROM topic WHERE name = ?1")?;
    Ok(known.query_row([name], |row| Ok(LogTopic { first: row.get(0)?, partitions: row.get(1)? })).optional()?)
}

/// The names of the file's topics, in their order.
pub(crate) fn topic_names(sql: &Connection) -> CommandResult<Vec<String>> {
    let mut names = sql.prepare_cached("SELECT name FROM topic ORDER BY name")?;
    Ok(names.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
}
