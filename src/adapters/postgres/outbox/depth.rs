//! Counting the rows of the outbox. Writes maintain no counter, because creators would wait for each other on its row. The table contains
//! only unsent rows, so counting it is cheap while it is short; when it is long an estimate suffices.
use std::collections::HashMap;
use std::time::Duration;

use outbox::PartitionNo;
use ports::outbox::RowCounts;

use crate::connection::sql_value::get;
use crate::connection::statement_error::StatementResult;
use crate::store::context::StoreContext;

/// Most rows that are counted exactly: twice the backlog at which writes are rejected by default. Above it the server's statistics give
/// the number.
const COUNTED_MAX: &str = "500000";
/// Most rows that are counted in one partition.
const COUNTED_OF_PARTITION_MAX: &str = "100000";

/// Selects the counts by status, the archive's rows, and the age of the first row that is neither sent nor parked nor behind a parked one. The
/// lease rows name what is in flight; in the table such a row is PENDING, or FAILED if it has a row in `outbox_waiting`. Of a table that is too long
/// to be counted, the rows that are FAILED or PARKED are counted there.
fn depth_text() -> String {
    format!(
        "WITH by_status AS MATERIALIZED (SELECT status, count(*) AS rows FROM (SELECT status FROM outbox LIMIT {COUNTED_MAX}) unsent GROUP BY status),
         waiting AS (SELECT count(due) AS failed, count(*) - count(due) AS parked FROM outbox_waiting),
         open_batches AS (SELECT coalesce(sum(cardinality(open_ids)), 0)::int8 AS rows FROM outbox_lease),
         retried AS (SELECT count(*) AS rows FROM outbox_waiting waiting JOIN outbox_lease lease ON lease.partition = waiting.partition
             AND waiting.id BETWEEN lease.first_id AND lease.last_id AND waiting.id = ANY (lease.open_ids) WHERE waiting.due IS NOT NULL),
         table_counts AS (SELECT coalesce(sum(by_status.rows), 0)::int8 AS rows,
             coalesce(sum(by_status.rows) FILTER (WHERE status = 1), 0)::int8 + min(open_batches.rows) AS in_flight,
             coalesce(sum(by_status.rows) FILTER (WHERE status = 2), 0)::int8 AS failed, min(retried.rows) AS failed_in_flight,
             coalesce(sum(by_status.rows) FILTER (WHERE status > 2), 0)::int8 AS parked
             FROM open_batches CROSS JOIN retried LEFT JOIN by_status ON true),
         counts AS (SELECT in_flight, failed_in_flight, failed, parked, rows FROM table_counts WHERE rows < {COUNTED_MAX}
           UNION ALL SELECT in_flight, failed_in_flight, waiting.failed, waiting.parked,
               greatest(rows, pg_stat_get_live_tuples('outbox'::regclass))
             FROM table_counts CROSS JOIN waiting WHERE rows >= {COUNTED_MAX}),
         depth AS (SELECT in_flight, greatest(failed - failed_in_flight, 0) AS failed, parked, rows FROM counts)
         SELECT greatest(rows - in_flight - failed - parked, 0) AS pending, in_flight, failed, parked,
           greatest((SELECT sum(archived) FROM outbox_lease)::int8 - (SELECT archive_forgotten FROM installation), 0) AS sent,
           (SELECT extract(epoch FROM clock_timestamp() - event.created_at)::float8 FROM outbox_event event WHERE event.id = (SELECT min(first.id)
             FROM outbox_lease lease CROSS JOIN LATERAL (SELECT queued.id FROM outbox queued
               WHERE queued.partition = lease.partition AND queued.status <= 2
               AND NOT EXISTS (SELECT FROM outbox_waiting waiting WHERE waiting.partition = queued.partition AND waiting.key = queued.key
                 AND waiting.id < queued.id AND waiting.blocks AND waiting.due IS NULL)
               ORDER BY queued.id LIMIT 1) first)) AS oldest_age
         FROM depth"
    )
}

/// The number of rows by status, and the age of the oldest unsent one.
pub(crate) async fn depth(context: &StoreContext) -> StatementResult<RowCounts> {
    let rows = context.relay_session().await?.query(&depth_text(), &[]).await?;
    let row = rows
        .first()
        .ok_or_else(|| crate::connection::statement_error::broken("the depth statement returned no row"))?;
    let count = |column: &str| get::<i64>(row, column).map(i64::unsigned_abs);
    let age: Option<f64> = get(row, "oldest_age")?;
    Ok(RowCounts {
        pending: count("pending")?,
        in_flight: count("in_flight")?,
        failed: count("failed")?,
        parked: count("parked")?,
        sent: count("sent")?,
        oldest_unsent: age.map(|age| Duration::try_from_secs_f64(age).unwrap_or_default()),
    })
}

/// Unsent rows by partition, up to [`COUNTED_OF_PARTITION_MAX`] of each.
pub(crate) async fn by_partition(context: &StoreContext) -> StatementResult<HashMap<PartitionNo, u64>> {
    let text = format!(
        "SELECT lease.partition, counted.rows FROM outbox_lease lease CROSS JOIN LATERAL (SELECT count(*) AS rows
           FROM (SELECT FROM outbox queued WHERE queued.partition = lease.partition LIMIT {COUNTED_OF_PARTITION_MAX}) unsent) counted"
    );
    let rows = context.relay_session().await?.query(&text, &[]).await?;
    let read =
        |row| Ok((PartitionNo(get::<i32>(row, "partition")?.unsigned_abs()), get::<i64>(row, "rows")?.unsigned_abs()));
    rows.iter().map(read).collect::<StatementResult<_>>()
}
