//! The archive's days: made ahead, and forgotten as a whole.
//!
//! A day is emptied first, which locks that day alone and hinders no settlement, and then dropped, which needs the whole archive for a
//! moment: so briefly asked for that settlements behind it hardly notice. (DETACH CONCURRENTLY is not allowed beside a default
//! partition, and without one a missing day would fail every settlement.)
use tokio_postgres::Client;
use tokio_postgres::types::Type;

/// How long the archive may be asked for, and settlements be held up, at most.
const LOCK_WITHIN: &str = "SET LOCAL lock_timeout = '50ms'";

/// The days that should be there and are not, with the bounds of each in words of SQL.
const MISSING: &str =
    "SELECT to_char(d, 'YYYYMMDD'), to_char(d, 'YYYY-MM-DD'), to_char(d + interval '1 day', 'YYYY-MM-DD')
     FROM generate_series(date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC'),
       date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') + make_interval(days => $1), interval '1 day') d
     WHERE to_regclass('outbox_archive_' || to_char(d, 'YYYYMMDD')) IS NULL ORDER BY d";

/// Days that ended before so long ago, with whether they are empty.
const PAST: &str = "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = 'outbox_archive'::regclass AND c.relname ~ '^outbox_archive_[0-9]{8}$'
       AND to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= (clock_timestamp() AT TIME ZONE 'UTC') - make_interval(secs => $1)
     ORDER BY c.relname";

/// Bytes of the largest day that is still counted batch by batch before it is emptied; beyond, the planner's estimate will do.
const COUNTED_MAX: i64 = 1 << 30;

type Told<T> = Result<T, tokio_postgres::Error>;

/// Makes the days that are missing from today on. A day that finds rows of its own in the default partition stays there.
pub(crate) async fn make(client: &Client, ahead: u32) -> Told<()> {
    let ahead = ahead.min(366) as i32;
    for row in client.query_typed(MISSING, &[(&ahead, Type::INT4)]).await? {
        let (day, from, to): (String, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        // Attaching asks for less than creating in place: settlements go on meanwhile.
        let text = format!(
            "BEGIN; SET LOCAL lock_timeout = '1s';
             CREATE TABLE outbox_archive_{day} (LIKE outbox_archive INCLUDING ALL);
             ALTER TABLE outbox_archive ATTACH PARTITION outbox_archive_{day}
               FOR VALUES FROM ('{from} 00:00:00+00') TO ('{to} 00:00:00+00'); COMMIT"
        );
        if let Err(error) = client.batch_execute(&text).await {
            client.batch_execute("ROLLBACK").await?;
            // Another instance was quicker, a reader is in the way, or rows of this day stand in the default partition: all of that
            // is looked at again by the next sweep.
            tracing::debug!(event = "archive_day_not_made", day, error = %crate::error::words(&error), "a day is made later");
        }
    }
    Ok(())
}

/// Empties and drops the days that are wholly older than so many seconds; says how many events they held.
pub(crate) async fn drop_past(client: &Client, keep: f64) -> Told<u64> {
    let mut forgotten = 0;
    for row in client.query_typed(PAST, &[(&keep, Type::FLOAT8)]).await? {
        let day: String = row.try_get(0)?;
        match empty(client, &day).await {
            Ok(rows) => forgotten += rows,
            Err(error) => {
                client.batch_execute("ROLLBACK").await?;
                tracing::debug!(event = "archive_day_in_use", day, error = %crate::error::words(&error), "a day is dropped later");
                continue;
            }
        }
        if client.batch_execute(&format!("BEGIN; {LOCK_WITHIN}; DROP TABLE {day}; COMMIT")).await.is_err() {
            // Somebody reads the archive: an empty day does no harm until the next sweep.
            client.batch_execute("ROLLBACK").await?;
        }
    }
    Ok(forgotten)
}

/// The day's rows are counted and gone, or neither.
async fn empty(client: &Client, day: &str) -> Told<u64> {
    client
        .batch_execute(&format!(
            "BEGIN; {LOCK_WITHIN}; LOCK TABLE {day} IN ACCESS EXCLUSIVE MODE; SET LOCAL statement_timeout = 0"
        ))
        .await?;
    let count = format!(
        "SELECT CASE WHEN pg_relation_size('{day}') < {COUNTED_MAX} THEN (SELECT coalesce(sum(events), 0)::int8 FROM {day})
           ELSE (SELECT greatest(reltuples, 0)::int8 FROM pg_class WHERE oid = '{day}'::regclass)
             * (SELECT avg(events) FROM (SELECT events FROM {day} LIMIT 10000) s)::int8 END"
    );
    let rows: i64 = match client.query_typed(&count, &[]).await?.first() {
        Some(row) => row.try_get(0)?,
        None => 0,
    };
    if rows > 0 {
        client.batch_execute(&format!("TRUNCATE {day}")).await?;
        let text = "UPDATE installation SET archive_forgotten = archive_forgotten + $1";
        client.query_typed(text, &[(&rows, Type::INT8)]).await?;
    }
    client.batch_execute("COMMIT").await?;
    Ok(rows.unsigned_abs())
}
