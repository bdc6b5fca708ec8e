//! Queries for outbox rows as operators see them. The table that a query scans first decides its cost.
use domain::{EventId, Timestamp};
use ports::FailureType;
use ports::operators::{RowFilter, RowView};
use ports::outbox::{EventKey, RowId, RowStatus};
use ports::partitions::{InstanceId, PartitionNo};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

use crate::error::{CommandResult, broken};

const COLUMNS: &str = "coalesce(e.id, q.id), e.event_id, coalesce(e.key, q.key), e.type, coalesce(e.partition, q.partition),
  coalesce(q.status, 5), (SELECT name FROM claimer WHERE number = coalesce(q.lease_owner, a.owner)),
  coalesce(q.lease_version, a.token), coalesce(q.attempts, a.attempts), q.next_attempt_at, coalesce(q.failure_type, a.failure_type),
  coalesce(q.reason, a.reason), coalesce(e.created_at, 0), a.sent_at, CASE WHEN q.status = 1 THEN
    (SELECT claimed_at FROM outbox_lease l WHERE l.partition = q.partition) ELSE coalesce(q.last_attempt_at, a.last_attempt_at) END, e.key_text";

/// The table that a query scans in id order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScannedTable {
    /// All events, or those of one key.
    Events,
    /// Rows that are FAILED or PARKED; there are few.
    Waiting,
    /// Rows that are PENDING or IN_FLIGHT, one partition after the other: the order of their ids is that within a partition. The events, of
    /// which many more may be sent, are not read.
    Unsent,
    /// Rows that are SENT, in the archive.
    Archive,
}

impl ScannedTable {
    fn for_filter(filter: &RowFilter) -> Self {
        match filter.status {
            Some(RowStatus::Failed | RowStatus::Parked) => ScannedTable::Waiting,
            Some(RowStatus::Sent) => ScannedTable::Archive,
            // A key has few events, and they have an index by key.
            Some(RowStatus::Pending | RowStatus::InFlight) if filter.key.is_some() => ScannedTable::Events,
            Some(RowStatus::Pending | RowStatus::InFlight) => ScannedTable::Unsent,
            None => ScannedTable::Events,
        }
    }

    fn tables(self) -> &'static str {
        match self {
            ScannedTable::Events => {
                "outbox_event e LEFT JOIN outbox q ON q.partition = e.partition AND q.id = e.id
                 LEFT JOIN outbox_archive a ON a.id = e.id WHERE (q.id IS NOT NULL OR a.id IS NOT NULL)"
            }
            ScannedTable::Waiting => {
                "outbox q INDEXED BY outbox_waiting_by_id LEFT JOIN outbox_event e ON e.id = q.id
                 LEFT JOIN outbox_archive a ON a.id = q.id WHERE q.status >= 2"
            }
            ScannedTable::Unsent => {
                "outbox q LEFT JOIN outbox_event e ON e.id = q.id
                 LEFT JOIN outbox_archive a ON a.id = q.id WHERE q.partition = ?1"
            }
            ScannedTable::Archive => {
                "outbox_archive a CROSS JOIN outbox_event e ON e.id = a.id
                 LEFT JOIN outbox q ON q.partition = a.partition AND q.id = a.id WHERE true"
            }
        }
    }

    fn id(self) -> &'static str {
        match self {
            ScannedTable::Events => "e.id",
            ScannedTable::Waiting | ScannedTable::Unsent => "q.id",
            ScannedTable::Archive => "a.id",
        }
    }

    fn partition(self) -> &'static str {
        match self {
            ScannedTable::Events => "e.partition",
            ScannedTable::Waiting | ScannedTable::Unsent => "q.partition",
            ScannedTable::Archive => "a.partition",
        }
    }
}

/// A row filter as an SQL query.
pub(crate) struct OutboxRowQuery {
    scanned: ScannedTable,
    conditions: String,
    /// The bound values. Where [`ScannedTable::Unsent`] is scanned, the first is the partition.
    values: Vec<Value>,
    /// The only partition to read; all where it is `None`.
    partition: Option<PartitionNo>,
}

impl OutboxRowQuery {
    /// The query for the rows that match a filter; ages are counted from `now`.
    pub(crate) fn new(filter: &RowFilter, now: Timestamp) -> Self {
        let scanned = ScannedTable::for_filter(filter);
        let values = if scanned == ScannedTable::Unsent { vec![Value::Null] } else { Vec::new() };
        let mut query = Self { scanned, conditions: String::new(), values, partition: filter.partition };
        query.conditions.push_str(match filter.status {
            Some(RowStatus::Pending) => " AND q.status = 0",
            Some(RowStatus::InFlight) if scanned == ScannedTable::Unsent => {
                " AND q.status = 1 AND q.id >= (SELECT first_id FROM outbox_lease WHERE partition = ?1)"
            }
            Some(RowStatus::InFlight) => " AND q.status = 1",
            Some(RowStatus::Failed) => " AND q.status = 2",
            Some(RowStatus::Parked) => " AND q.status > 2",
            Some(RowStatus::Sent) | None => "",
        });
        if let Some(key) = &filter.key {
            let column = if scanned == ScannedTable::Waiting { "q.key" } else { "e.key" };
            query.and(column, "=", Value::Blob(key.group().to_vec()));
            query.and("e.key_text", "IS", key.text().map_or(Value::Null, |text| Value::Text(text.to_owned())));
        }
        // A scan of the unsent rows reads this partition alone.
        if let Some(partition) = filter.partition.filter(|_| scanned != ScannedTable::Unsent) {
            query.and(scanned.partition(), "=", Value::Integer(partition.0.into()));
        }
        if let Some(event_type) = &filter.event_type {
            query.and("e.type", "=", Value::Text(event_type.clone()));
        }
        if let Some(failure) = filter.failure_type {
            query.and("coalesce(q.failure_type, a.failure_type)", "=", Value::Text(failure.as_str().into()));
        }
        if let Some(age) = filter.older_than {
            let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
            query.and("e.created_at", "<=", Value::Integer(now.millis().saturating_sub(age)));
        }
        if let Some(after) = filter.after {
            query.and(scanned.id(), ">", Value::Integer(after));
        }
        query
    }

    /// The query for one row by its id.
    fn by_id(id: RowId, scanned: ScannedTable) -> Self {
        let mut query = Self { scanned, conditions: String::new(), values: Vec::new(), partition: None };
        query.and(scanned.id(), "=", Value::Integer(id));
        query
    }

    fn and(&mut self, column: &str, comparison: &str, value: Value) {
        self.values.push(value);
        self.conditions.push_str(&format!(" AND {column} {comparison} ?{}", self.values.len()));
    }

    /// At most `limit` rows in id order.
    pub(crate) fn rows(mut self, sql: &Connection, limit: u32) -> CommandResult<Vec<RowView>> {
        if self.scanned != ScannedTable::Unsent {
            return self.page(sql, limit);
        }
        let mut found: Vec<RowView> = Vec::new();
        self.and("q.id", "<=", Value::Integer(RowId::MAX));
        let highest = self.values.len() - 1;
        let partitions = match self.partition {
            Some(partition) => vec![Value::Integer(partition.0.into())],
            None => partitions(sql)?,
        };
        for partition in partitions {
            self.values[0] = partition;
            found.extend(self.page(sql, limit)?);
            found.sort_by_key(|row| row.id);
            found.truncate(limit as usize);
            // The other partitions need not read beyond a full page.
            let last = found.last().filter(|_| found.len() == limit as usize);
            self.values[highest] = Value::Integer(last.map_or(RowId::MAX, |row| row.id));
        }
        Ok(found)
    }

    /// At most `limit` rows of the tables, or of one partition of them.
    fn page(&self, sql: &Connection, limit: u32) -> CommandResult<Vec<RowView>> {
        let (tables, id, last) = (self.scanned.tables(), self.scanned.id(), self.values.len() + 1);
        let text = format!("SELECT {COLUMNS} FROM {tables}{} ORDER BY {id} LIMIT ?{last}", self.conditions);
        let mut statement = sql.prepare_cached(&text)?;
        let limit = Value::Integer(limit.into());
        let mut rows = statement.query(params_from_iter(self.values.iter().chain([&limit])))?;
        let mut views = Vec::new();
        while let Some(row) = rows.next()? {
            views.push(read(row)?);
        }
        Ok(views)
    }

    /// Counts the rows that match. Must not be called for a filter of PENDING or IN_FLIGHT rows, which a query reads by partition.
    pub(crate) fn count(self, sql: &Connection) -> CommandResult<u64> {
        debug_assert_ne!(self.scanned, ScannedTable::Unsent);
        let text = format!("SELECT count(*) FROM {}{}", self.scanned.tables(), self.conditions);
        let rows: i64 = sql.prepare_cached(&text)?.query_row(params_from_iter(self.values), |row| row.get(0))?;
        Ok(rows as u64)
    }
}

fn partitions(sql: &Connection) -> CommandResult<Vec<Value>> {
    let mut partitions = sql.prepare_cached("SELECT partition FROM outbox_lease")?;
    Ok(partitions.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// Reads one row by its id, also a row whose event was deleted.
pub(crate) fn find(sql: &Connection, id: RowId) -> CommandResult<Option<RowView>> {
    if let Some(view) = OutboxRowQuery::by_id(id, ScannedTable::Events).rows(sql, 1)?.pop() {
        return Ok(Some(view));
    }
    Ok(OutboxRowQuery::by_id(id, ScannedTable::Waiting).rows(sql, 1)?.pop())
}

/// The status for a code in the column `outbox.status`.
pub(crate) fn status_from_code(code: i64) -> CommandResult<RowStatus> {
    let status = i16::try_from(code).ok().and_then(RowStatus::from_code);
    status.ok_or_else(|| broken(format!("unknown status code {code}")))
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
        key: EventKey::from_stored(row.get(2)?, row.get::<_, Option<String>>(15)?.as_deref()),
        event_type: row.get::<_, Option<String>>(3)?.unwrap_or_default(),
        partition: PartitionNo(row.get(4)?),
        status: status_from_code(row.get(5)?)?,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::step_count::counted_store;

    #[test]
    fn list_of_waiting_rows_reads_no_event_that_was_sent() {
        let folder = tempfile::tempdir().unwrap();
        let (sql, steps) = counted_store(folder.path());
        // Three partitions: row 1 is parked, rows 2 to 20,000 are sent, and the last twelve are pending, except one that is in flight.
        sql.execute_batch(
            "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 20012)
             INSERT INTO outbox_event SELECT id, randomblob(16), zeroblob(16), iif(id % 2, 'odd', 'even'), 't', id % 3, 1, 1, '', 0, 0,
               NULL, NULL, id, x'', NULL, NULL, NULL, NULL, NULL FROM n;
             INSERT INTO outbox_archive (id, partition, token, attempts, deaths, sent_at, by_fallback)
               SELECT id, partition, 1, 1, 0, 1, 0 FROM outbox_event WHERE id BETWEEN 2 AND 20000;
             INSERT INTO outbox (partition, id, key, status) SELECT partition, id, key, 0 FROM outbox_event WHERE id > 20000;
             INSERT INTO outbox (partition, id, key, status) VALUES (1, 1, zeroblob(16), 3);
             UPDATE outbox SET status = 1 WHERE id = 20003;
             UPDATE outbox_lease SET first_id = 20001, last_id = 20003 WHERE partition = 20003 % 3;",
        )
        .unwrap();
        let list = |filter: RowFilter, limit| {
            let query = OutboxRowQuery::new(&filter, Timestamp::from_millis(30_000));
            let (rows, steps) = steps.measure(|| query.rows(&sql, limit).unwrap());
            assert!(steps < 20_000, "{filter:?}: {steps} steps");
            rows.iter().map(|row| row.id).collect::<Vec<_>>()
        };
        let with_status = |status| RowFilter { status: Some(status), ..RowFilter::default() };
        let pending = with_status(RowStatus::Pending);

        assert_eq!(list(pending.clone(), 4), [20_001, 20_002, 20_004, 20_005]);
        assert_eq!(list(RowFilter { after: Some(20_005), ..pending.clone() }, 4), [20_006, 20_007, 20_008, 20_009]);
        assert_eq!(list(RowFilter { after: Some(20_009), ..pending.clone() }, 4), [20_010, 20_011, 20_012]);
        let even = RowFilter { event_type: Some("even".into()), ..pending.clone() };
        assert_eq!(list(even, 3), [20_002, 20_004, 20_006]);
        let of_partition = RowFilter { partition: Some(PartitionNo(2)), ..pending };
        assert_eq!(list(of_partition.clone(), 2), [20_006, 20_009]);
        assert_eq!(list(RowFilter { after: Some(20_009), ..of_partition }, 2), [20_012]);
        assert_eq!(list(with_status(RowStatus::InFlight), 4), [20_003]);
    }
}
