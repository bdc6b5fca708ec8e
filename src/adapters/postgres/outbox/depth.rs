//! Counting the rows of the outbox. Writes maintain no counter, because creators would wait for each other on its row. The table contains
//! only unsent rows, so counting it is cheap while it is short; when it is long an estimate suffices.
use std::collections::HashMap;
use std::time::Duration;

use outbox::PartitionNo;
use ports::outbox::RowCounts;

use crate::connection::sql_value::get;
use crate::connection::statement_error::StatementResult;
use crate::store::core::Core;

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
        "WITH s AS MATERIALIZED (SELECT status, count(*) AS n FROM (SELECT status FROM outbox LIMIT {COUNTED_MAX}) o GROUP BY status),
         w AS (SELECT count(due) AS failed, count(*) - count(due) AS parked FROM outbox_waiting),
         b AS (SELECT coalesce(sum(cardinality(open_ids)), 0)::int8 AS rows FROM outbox_lease),
         h AS (SELECT count(*) AS rows FROM outbox_waiting w JOIN outbox_lease l ON l.partition = w.partition
             AND w.id BETWEEN l.first_id AND l.last_id AND w.id = ANY (l.open_ids) WHERE w.due IS NOT NULL),
         t AS (SELECT coalesce(sum(n), 0)::int8 AS n, coalesce(sum(n) FILTER (WHERE status = 1), 0)::int8 + min(b.rows) AS in_flight,
             coalesce(sum(n) FILTER (WHERE status = 2), 0)::int8 AS failed, min(h.rows) AS failed_in_flight,
             coalesce(sum(n) FILTER (WHERE status > 2), 0)::int8 AS parked FROM b CROSS JOIN h LEFT JOIN s ON true),
         c AS (SELECT n, in_flight, failed_in_flight, failed, parked, n AS alive FROM t WHERE n < {COUNTED_MAX}
           UNION ALL SELECT n, in_flight, failed_in_flight, w.failed, w.parked, greatest(n, pg_stat_get_live_tuples('outbox'::regclass))
             FROM t CROSS JOIN w WHERE n >= {COUNTED_MAX}),
         m AS (SELECT in_flight, greatest(failed - failed_in_flight, 0) AS failed, parked, alive FROM c)
         SELECT greatest(m.alive - m.in_flight - m.failed - m.parked, 0), m.in_flight, m.failed, m.parked,
           greatest((SELECT sum(archived) FROM outbox_lease)::int8 - (SELECT archive_forgotten FROM installation), 0),
           (SELECT extract(epoch FROM clock_timestamp() - e.created_at)::float8 FROM outbox_event e WHERE e.id = (SELECT min(f.id)
             FROM outbox_lease l CROSS JOIN LATERAL (SELECT q.id FROM outbox q WHERE q.partition = l.partition AND q.status <= 2
               AND NOT EXISTS (SELECT FROM outbox_waiting w
                 WHERE w.partition = q.partition AND w.key = q.key AND w.id < q.id AND w.blocks AND w.due IS NULL)
               ORDER BY q.id LIMIT 1) f))
         FROM m"
    )
}

/// The number of rows by status, and the age of the oldest unsent one.
pub(crate) async fn depth(core: &Core) -> StatementResult<RowCounts> {
    let rows = core.relay_session().await?.query(&depth_text(), &[]).await?;
    let row = rows
        .first()
        .ok_or_else(|| crate::connection::statement_error::broken("the depth statement returned no row"))?;
    let count = |column| get::<i64>(row, column).map(i64::unsigned_abs);
    let age: Option<f64> = get(row, 5)?;
    Ok(RowCounts {
        pending: count(0)?,
        in_flight: count(1)?,
        failed: count(2)?,
        parked: count(3)?,
        sent: count(4)?,
        oldest_unsent: age.map(|age| Duration::try_from_secs_f64(age).unwrap_or_default()),
    })
}

/// Unsent rows by partition, up to [`COUNTED_OF_PARTITION_MAX`] of each.
pub(crate) async fn by_partition(core: &Core) -> StatementResult<HashMap<PartitionNo, u64>> {
    let text = format!(
        "SELECT l.partition, n.rows FROM outbox_lease l CROSS JOIN LATERAL (
           SELECT count(*) AS rows FROM (SELECT FROM outbox o WHERE o.partition = l.partition LIMIT {COUNTED_OF_PARTITION_MAX}) q) n"
    );
    let rows = core.relay_session().await?.query(&text, &[]).await?;
    let read = |row| Ok((PartitionNo(get::<i32>(row, 0)?.unsigned_abs()), get::<i64>(row, 1)?.unsigned_abs()));
    rows.iter().map(read).collect::<StatementResult<_>>()
}
