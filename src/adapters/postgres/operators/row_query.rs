//! Rows as operators see them. The table that drives a query decides what the query costs.
use outbox::{FailureType, InstanceId, PartitionNo, RowId, RowStatus};
use ports::operators::{RowFilter, RowView};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::session::PooledSession;
use crate::connection::sql_value::{event_id, event_key, get, get_time_opt, key_group, seconds};
use crate::connection::statement_error::{StatementResult, broken};
use crate::connection::where_clause::Conditions;

const COLUMNS: &str = "coalesce(e.id, q.id), e.event_id, coalesce(e.key, q.key), e.type, coalesce(e.partition, q.partition),
  coalesce(q.status, 5::int2), coalesce(q.lease_owner, a.owner), coalesce(q.lease_version, a.token, 0), coalesce(q.attempts, a.attempts),
  q.next_attempt_at, coalesce(q.failure_type, a.failure_type), coalesce(q.reason, a.reason), e.created_at, a.sent_at,
  coalesce(q.last_attempt_at, a.claimed_at), e.key_text";

/// The columns of the archive for rows that are not in it.
macro_rules! not_archived {
    () => {
        " LEFT JOIN (SELECT NULL::text AS owner, NULL::int8 AS token, NULL::int4 AS attempts, NULL::text AS failure_type,
            NULL::text AS reason, NULL::timestamptz AS sent_at, NULL::timestamptz AS claimed_at) a ON true"
    };
}

/// The table whose index a query follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrivingTable {
    /// All events in id order, or those of one key.
    Events,
    /// The unsent rows of one partition in id order.
    Partition,
    /// FAILED and PARKED rows, which are few.
    Waiting,
    /// Events that were sent, in id order.
    Archived,
}

impl DrivingTable {
    fn for_filter(filter: &RowFilter) -> Self {
        match filter.status {
            // A key has few events, and they have an index by key.
            Some(RowStatus::Pending | RowStatus::InFlight) if filter.key.is_none() && filter.partition.is_some() => {
                DrivingTable::Partition
            }
            Some(RowStatus::Failed | RowStatus::Parked) => DrivingTable::Waiting,
            Some(RowStatus::Sent) => DrivingTable::Archived,
            Some(RowStatus::Pending | RowStatus::InFlight) | None => DrivingTable::Events,
        }
    }

    fn tables(self) -> &'static str {
        match self {
            DrivingTable::Events => {
                "outbox_event e LEFT JOIN outbox_unsent q ON q.partition = e.partition AND q.id = e.id
                 LEFT JOIN LATERAL outbox_sent(e.partition, e.id) a ON q.id IS NULL"
            }
            DrivingTable::Partition => {
                concat!("outbox_unsent q LEFT JOIN outbox_event e ON e.id = q.id", not_archived!())
            }
            DrivingTable::Waiting => concat!(
                "outbox_waiting w JOIN outbox_unsent q ON q.partition = w.partition AND q.id = w.id
                 LEFT JOIN outbox_event e ON e.id = w.id",
                not_archived!()
            ),
            DrivingTable::Archived => {
                "outbox_event e LEFT JOIN outbox_unsent q ON q.partition = e.partition AND q.id = e.id
                 CROSS JOIN LATERAL outbox_sent(e.partition, e.id) a"
            }
        }
    }

    fn id(self) -> &'static str {
        match self {
            DrivingTable::Events | DrivingTable::Archived => "e.id",
            DrivingTable::Partition => "q.id",
            DrivingTable::Waiting => "w.id",
        }
    }

    fn partition(self) -> &'static str {
        match self {
            DrivingTable::Events | DrivingTable::Archived => "e.partition",
            DrivingTable::Partition => "q.partition",
            DrivingTable::Waiting => "w.partition",
        }
    }
}

/// A filter as tables and conditions.
pub(crate) struct RowQuery {
    driving: DrivingTable,
    conditions: Conditions,
}

impl RowQuery {
    /// The rows that match a filter.
    pub(crate) fn new(filter: &RowFilter) -> Self {
        let driving = DrivingTable::for_filter(filter);
        let mut conditions = Conditions::default();
        let mut partition_parameter = String::new();
        if let Some(partition) = filter.partition {
            partition_parameter = conditions.add_parameter(partition.0 as i32, Type::INT4);
            conditions.and_plain(&format!("{} = {partition_parameter}", driving.partition()));
        }
        match filter.status {
            // An equation lets the planner expect so few PENDING rows that it would read all of the partition and sort them.
            Some(RowStatus::Pending) if driving == DrivingTable::Partition => conditions.and_plain("q.status < 1"),
            Some(RowStatus::InFlight) if driving == DrivingTable::Partition => {
                let lease = format!("FROM outbox_lease WHERE partition = {partition_parameter}");
                conditions.and_plain(&format!(
                    "q.status = 1 AND q.id >= (SELECT first_id {lease}) AND q.id <= (SELECT last_id {lease})"
                ));
            }
            Some(RowStatus::Pending) => conditions.and_plain(
                "q.status = 0 AND e.id >= (SELECT min(f.id) FROM outbox_lease l CROSS JOIN LATERAL
              (SELECT o.id FROM outbox o WHERE o.partition = l.partition ORDER BY o.id LIMIT 1) f)",
            ),
            Some(RowStatus::InFlight) => {
                conditions.and_plain("q.status = 1 AND e.id >= (SELECT min(first_id) FROM outbox_lease)")
            }
            Some(RowStatus::Failed) => conditions.and_plain("q.status = 2"),
            Some(RowStatus::Parked) => conditions.and_plain("q.status > 2"),
            Some(RowStatus::Sent) => conditions.and_plain("q.id IS NULL"),
            None => conditions.and_plain("(q.id IS NOT NULL OR a.token IS NOT NULL)"),
        }
        if let Some(key) = &filter.key {
            conditions.and(
                if driving == DrivingTable::Waiting { "q.key =" } else { "e.key =" },
                key_group(key),
                Type::UUID,
            );
            match key.text() {
                Some(text) => conditions.and("e.key_text =", text.to_owned(), Type::TEXT),
                None => conditions.and_plain("e.key_text IS NULL"),
            }
        }
        if let Some(event_type) = &filter.event_type {
            conditions.and("e.type =", event_type.clone(), Type::TEXT);
        }
        if let Some(failure) = filter.failure_type {
            conditions.and("coalesce(q.failure_type, a.failure_type) =", failure.as_str(), Type::TEXT);
        }
        if let Some(age) = filter.older_than {
            let age = conditions.add_parameter(seconds(age), Type::FLOAT8);
            conditions.and_plain(&format!("e.created_at <= clock_timestamp() - make_interval(secs => {age})"));
        }
        if let Some(after) = filter.after {
            conditions.and(&format!("{} >", driving.id()), after, Type::INT8);
        }
        Self { driving, conditions }
    }

    fn by_id(id: RowId, driving: DrivingTable) -> Self {
        let mut conditions = Conditions::default();
        if driving == DrivingTable::Events {
            conditions.and_plain("(q.id IS NOT NULL OR a.token IS NOT NULL)");
        }
        conditions.and(&format!("{} =", driving.id()), id, Type::INT8);
        Self { driving, conditions }
    }

    /// Reads at most `limit` rows in id order.
    pub(crate) async fn rows(mut self, session: &PooledSession, limit: u32) -> StatementResult<Vec<RowView>> {
        let limit = self.conditions.add_parameter(i64::from(limit), Type::INT8);
        let (tables, id, conditions) = (self.driving.tables(), self.driving.id(), self.conditions.text());
        let text = format!("SELECT {COLUMNS} FROM {tables}{conditions} ORDER BY {id} LIMIT {limit}");
        let rows = session.query(&text, &self.conditions.values()).await?;
        rows.iter().map(read).collect()
    }

    /// Counts the matching rows without reading them.
    pub(crate) async fn count(self, session: &PooledSession) -> StatementResult<u64> {
        let text = format!("SELECT count(*) FROM {}{}", self.driving.tables(), self.conditions.text());
        let rows = session.query(&text, &self.conditions.values()).await?;
        Ok(rows.first().map(|row| get::<i64>(row, 0)).transpose()?.unwrap_or_default().unsigned_abs())
    }
}

/// Reads one row, also one whose event was deleted.
pub(crate) async fn find(session: &PooledSession, id: RowId) -> StatementResult<Option<RowView>> {
    if let Some(view) = RowQuery::by_id(id, DrivingTable::Events).rows(session, 1).await?.pop() {
        return Ok(Some(view));
    }
    Ok(RowQuery::by_id(id, DrivingTable::Waiting).rows(session, 1).await?.pop())
}

/// The status of a code in the table.
pub(crate) fn status_from_code(code: i16) -> StatementResult<RowStatus> {
    RowStatus::from_code(code).ok_or_else(|| broken(format!("unknown status code {code}")))
}

fn read(row: &Row) -> StatementResult<RowView> {
    let failure_type = match get::<Option<&str>>(row, 10)? {
        Some(text) => Some(FailureType::parse(text).ok_or_else(|| broken(format!("unknown failure type {text}")))?),
        None => None,
    };
    Ok(RowView {
        id: get(row, 0)?,
        event_id: event_id(get::<Option<_>>(row, 1)?.unwrap_or_default()),
        key: event_key(get(row, 2)?, get(row, 15)?),
        event_type: get::<Option<String>>(row, 3)?.unwrap_or_default(),
        partition: PartitionNo(get::<i32>(row, 4)?.unsigned_abs()),
        status: status_from_code(get(row, 5)?)?,
        lease_owner: get::<Option<String>>(row, 6)?.map(|name| InstanceId(name.into())),
        lease_version: get::<i64>(row, 7)? as u64,
        retry_count: get::<i32>(row, 8)?.unsigned_abs(),
        next_attempt_at: get_time_opt(row, 9)?,
        failure_type,
        last_failure_reason: get(row, 11)?,
        created_at: get_time_opt(row, 12)?.unwrap_or_default(),
        sent_at: get_time_opt(row, 13)?,
        last_attempt_at: get_time_opt(row, 14)?,
    })
}
