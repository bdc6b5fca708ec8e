//! How much waits. Nothing is counted along with each write: a counter that every creator raises would make them wait for each other.
//! The table holds only what has not left, so counting it is cheap while it is short; and when it is long, near enough is good enough.
use std::collections::HashMap;
use std::time::Duration;

use ports::outbox::Depth;
use ports::partitions::PartitionNo;

use crate::error::{Answer, Trouble};
use crate::store::Core;
use crate::value::get;

/// Rows that are counted one by one; twice the backlog that stops writers by default. Beyond, the server's own statistics say how many.
const COUNTED_MAX: &str = "500000";

/// Counts by status, the archive's rows, and the age of the first row that is neither sent nor parked.
fn question() -> String {
    format!(
        "WITH s AS MATERIALIZED (SELECT status, count(*) AS n FROM (SELECT status FROM outbox LIMIT {COUNTED_MAX}) o GROUP BY status),
         t AS (SELECT coalesce(sum(n), 0)::int8 AS n, coalesce(sum(n) FILTER (WHERE status = 1), 0)::int8 AS in_flight,
             coalesce(sum(n) FILTER (WHERE status = 2), 0)::int8 AS failed, coalesce(sum(n) FILTER (WHERE status > 2), 0)::int8 AS parked FROM s),
         m AS (SELECT t.*, CASE WHEN n < {COUNTED_MAX} THEN n ELSE greatest(n, pg_stat_get_live_tuples('outbox'::regclass)) END AS alive FROM t)
         SELECT m.alive - m.in_flight - m.failed - m.parked, m.in_flight, m.failed, m.parked,
           greatest((SELECT sum(archived) FROM outbox_lease)::int8 - (SELECT archive_forgotten FROM installation), 0),
           (SELECT extract(epoch FROM clock_timestamp() - e.created_at)::float8 FROM outbox_event e WHERE e.id = (SELECT min(f.id)
             FROM outbox_lease l CROSS JOIN LATERAL (SELECT q.id FROM outbox q WHERE q.partition = l.partition AND q.status <= 2
               ORDER BY q.id LIMIT 1) f))
         FROM m"
    )
}

/// How much waits.
pub(crate) async fn depth(core: &Core) -> Answer<Depth> {
    let rows = core.relay().await?.read(&question(), &[]).await?;
    let row = rows.first().ok_or_else(|| crate::error::broken("the depth has no row"))?;
    let count = |column| get::<i64>(row, column).map(i64::unsigned_abs);
    let age: Option<f64> = get(row, 5)?;
    Ok(Depth {
        pending: count(0)?,
        in_flight: count(1)?,
        failed: count(2)?,
        parked: count(3)?,
        sent: count(4)?,
        oldest_unsent: age.map(|age| Duration::try_from_secs_f64(age).unwrap_or_default()),
    })
}

/// Rows that have not left, by partition; of a very long table the first ones only.
pub(crate) async fn by_partition(core: &Core) -> Answer<HashMap<PartitionNo, u64>> {
    let text = format!(
        "SELECT partition, count(*) FROM (SELECT partition FROM outbox LIMIT {COUNTED_MAX}) o GROUP BY partition"
    );
    let rows = core.relay().await?.read(&text, &[]).await?;
    let read = |row| Ok((PartitionNo(get::<i32>(row, 0)?.unsigned_abs()), get::<i64>(row, 1)?.unsigned_abs()));
    rows.iter().map(read).collect::<Result<_, Trouble>>()
}
