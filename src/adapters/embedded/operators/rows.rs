//! Queries for outbox rows as operators see them. The table that a query scans first decides its cost.
use domain::{EventId, Timestamp};
use ports::FailureType;
use ports::operators::{RowFilter, RowView};
use ports::outbox::{EventKey, RowId, RowStatus};
use ports::partitions::{InstanceId, PartitionNo};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

use crate::error::{CommandResult, broken};
use crate::outbox::counts::code;

const COLUMNS: &str = "coalesce(e.id, q.id), e.event_id, coalesce(e.key, q.key), e.type, coalesce(e.partition, q.partition),
  coalesce(q.status, 5), (SELECT name FROM claimer WHERE number = coalesce(q.lease_owner, a.owner)),
  coalesce(q.lease_version, a.token), coalesce(q.attempts, a.attempts), q.next_attempt_at, coalesce(q.failure_type, a.failure_type),
  coalesce(q.reason, a.reason), coalesce(e.created_at, 0), a.sent_at, CASE WHEN q.status = 1 THEN
    (SELECT claimed_at FROM outbox_lease l WHERE l.partition = q.partition) ELSE coalesce(q.last_attempt_at, a.last_attempt_at) END, e.key_text";

/// The table that a query scans in id order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeadingTable {
    /// All events, or those of one key.
    Events,
    /// Rows that are FAILED or PARKED; there are few.
    Waiting,
    /// Rows that are SENT, in the archive.
    Archive,
}

impl LeadingTable {
    fn of(status: Option<RowStatus>) -> Self {
        match status {
            Some(RowStatus::Failed | RowStatus::Parked) => LeadingTable::Waiting,
            Some(RowStatus::Sent) => LeadingTable::Archive,
            Some(RowStatus::Pending | RowStatus::InFlight) | None => LeadingTable::Events,
        }
    }

    fn tables(self) -> &'static str {
        match self {
            LeadingTable::Events => {
                "outbox_event e LEFT JOIN outbox q ON q.partition = e.partition AND q.id = e.id
                 LEFT JOIN outbox_archive a ON a.id = e.id WHERE (q.id IS NOT NULL OR a.id IS NOT NULL)"
            }
            LeadingTable::Waiting => {
                "outbox q INDEXED BY outbox_waiting_by_id LEFT JOIN outbox_event e ON e.id = q.id
                 LEFT JOIN outbox_archive a ON a.id = q.id WHERE q.status >= 2"
            }
            LeadingTable::Archive => {
                "outbox_archive a CROSS JOIN outbox_event e ON e.id = a.id
                 LEFT JOIN outbox q ON q.partition = a.partition AND q.id = a.id WHERE true"
            }
        }
    }

    fn id(self) -> &'static str {
        match self {
            LeadingTable::Events => "e.id",
            LeadingTable::Waiting => "q.id",
            LeadingTable::Archive => "a.id",
        }
    }
}

/// A row filter as an SQL query.
pub(crate) struct OutboxRowQuery {
    lead: LeadingTable,
    conditions: String,
    values: Vec<Value>,
}

impl OutboxRowQuery {
    /// The query for the rows that match a filter; ages are counted from `now`.
    pub(crate) fn of(filter: &RowFilter, now: Timestamp) -> Self {
        let lead = LeadingTable::of(filter.status);
        let mut query = Self { lead, conditions: String::new(), values: Vec::new() };
        query.conditions.push_str(match filter.status {
            Some(RowStatus::Pending) => {
                " AND q.status = 0 AND e.id >= (SELECT min(f) FROM (SELECT (SELECT min(id) FROM outbox
                WHERE partition = l.partition) AS f FROM outbox_lease l))"
            }
            Some(RowStatus::InFlight) => " AND q.status = 1 AND e.id >= (SELECT min(first_id) FROM outbox_lease)",
            Some(RowStatus::Failed) => " AND q.status = 2",
            Some(RowStatus::Parked) => " AND q.status > 2",
            Some(RowStatus::Sent) | None => "",
        });
        if let Some(key) = &filter.key {
            let column = if lead == LeadingTable::Waiting { "q.key" } else { "e.key" };
            query.and(column, "=", Value::Blob(key.group().to_vec()));
            query.and("e.key_text", "IS", key.text().map_or(Value::Null, |text| Value::Text(text.to_owned())));
        }
        if let Some(kind) = &filter.kind {
            query.and("e.type", "=", Value::Text(kind.clone()));
        }
        if let Some(failure) = filter.failure_type {
            query.and("coalesce(q.failure_type, a.failure_type)", "=", Value::Text(failure.as_str().into()));
        }
        if let Some(age) = filter.older_than {
            let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
            query.and("e.created_at", "<=", Value::Integer(now.millis().saturating_sub(age)));
        }
        if let Some(after) = filter.after {
            query.and(lead.id(), ">", Value::Integer(after));
        }
        query
    }

    /// The query for one row by its id.
    pub(crate) fn row(id: RowId, lead_waiting: bool) -> Self {
        let lead = if lead_waiting { LeadingTable::Waiting } else { LeadingTable::Events };
        let mut query = Self { lead, conditions: String::new(), values: Vec::new() };
        query.and(lead.id(), "=", Value::Integer(id));
        query
    }

    fn and(&mut self, column: &str, comparison: &str, value: Value) {
        self.values.push(value);
        self.conditions.push_str(&format!(" AND {column} {comparison} ?{}", self.values.len()));
    }

    /// At most `limit` rows in id order.
    pub(crate) fn rows(mut self, sql: &Connection, limit: u32) -> CommandResult<Vec<RowView>> {
        self.values.push(Value::Integer(limit.into()));
        let (tables, id, last) = (self.lead.tables(), self.lead.id(), self.values.len());
        let text = format!("SELECT {COLUMNS} FROM {tables}{} ORDER BY {id} LIMIT ?{last}", self.conditions);
        let mut statement = sql.prepare_cached(&text)?;
        let mut rows = statement.query(params_from_iter(self.values))?;
        let mut views = Vec::new();
        while let Some(row) = rows.next()? {
            views.push(read(row)?);
        }
        Ok(views)
    }

    /// Counts the rows that match.
    pub(crate) fn count(self, sql: &Connection) -> CommandResult<u64> {
        let text = format!("SELECT count(*) FROM {}{}", self.lead.tables(), self.conditions);
        let rows: i64 = sql.prepare_cached(&text)?.query_row(params_from_iter(self.values), |row| row.get(0))?;
        Ok(rows as u64)
    }
}

/// Reads one row by its id, also a row whose event was deleted.
pub(crate) fn find(sql: &Connection, id: RowId) -> CommandResult<Option<RowView>> {
    if let Some(view) = OutboxRowQuery::row(id, false).rows(sql, 1)?.pop() {
        return Ok(Some(view));
    }
    Ok(OutboxRowQuery::row(id, true).rows(sql, 1)?.pop())
}

/// The status that a code in the file means.
pub(crate) fn status_of(number: i64) -> RowStatus {
    match number {
        code::PENDING => RowStatus::Pending,
        code::IN_FLIGHT => RowStatus::InFlight,
        code::FAILED => RowStatus::Failed,
        code::SENT => RowStatus::Sent,
        _ => RowStatus::Parked,
    }
}

fn read(row: &Row<'_>) -> CommandResult<RowView> {
    let failure: Option<String> = row.get(10)?;
    let failure_type = match failure {
        Some(text) => Some(FailureType::parse(&text).ok_or_else(|| broken(format!("unknown failure type {text}")))?),
        None => None,
    };
    Ok(RowView {
        id: row.get(0)?,
        event_id: EventId::from_bytes(row.get::<_, Option<_>>(1)?.unwrap_or_default()),
        key: EventKey::stored(row.get(2)?, row.get::<_, Option<String>>(15)?.as_deref()),
        kind: row.get::<_, Option<String>>(3)?.unwrap_or_default(),
        partition: PartitionNo(row.get(4)?),
        status: status_of(row.get(5)?),
        lease_owner: row.get::<_, Option<String>>(6)?.map(|name| InstanceId(name.into())),
        lease_version: row.get::<_, i64>(7)? as u64,
        retry_count: row.get(8)?,
        next_attempt_at: row.get::<_, Option<i64>>(9)?.map(Timestamp::from_millis),
        failure_type,
        last_failure_reason: row.get(11)?,
        created_at: Timestamp::from_millis(row.get(12)?),
        sent_at: row.get::<_, Option<i64>>(13)?.map(Timestamp::from_millis),
        last_attempt_at: row.get::<_, Option<i64>>(14)?.map(Timestamp::from_millis),
    })
}
