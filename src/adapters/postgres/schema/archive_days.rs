//! The daily partitions of the archive: created ahead, and dropped as a whole.
//!
//! A day is truncated first, which locks that day alone and blocks no settlement. Then it is dropped, which locks the whole archive, with
//! a lock timeout so short that settlements in the queue behind it hardly wait. (PostgreSQL does not allow DETACH CONCURRENTLY next to a
//! default partition, and without a default partition a missing day would fail every settlement.)
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::schema::own_schema;

/// Longest wait for a lock on the archive: 50 ms, during which settlements wait too.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '50ms'";

/// Selects the missing days from today on, with the bounds of each as SQL literals.
const MISSING: &str =
    "SELECT to_char(d, 'YYYYMMDD'), to_char(d, 'YYYY-MM-DD'), to_char(d + interval '1 day', 'YYYY-MM-DD')
     FROM generate_series(date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC'),
       date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') + make_interval(days => $1), interval '1 day') d
     WHERE to_regclass('outbox_archive_' || to_char(d, 'YYYYMMDD')) IS NULL ORDER BY d";

/// Selects the partitions of days that ended at least $1 seconds ago.
const PAST: &str = "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = 'outbox_archive'::regclass AND c.relname ~ '^outbox_archive_[0-9]{8}$'
       AND to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= (clock_timestamp() AT TIME ZONE 'UTC') - make_interval(secs => $1)
     ORDER BY c.relname";

/// Creates the missing days from today on. A day of which the default partition has rows is not created.
pub(crate) async fn create(client: &Client, ahead: u32) -> Result<(), tokio_postgres::Error> {
    let ahead = ahead.min(366) as i32;
    for row in client.query_typed(MISSING, &[(&ahead, Type::INT4)]).await? {
        let (day, from, to): (String, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        // ATTACH needs a weaker lock than CREATE … PARTITION OF: settlements continue meanwhile.
        let text = format!(
            "BEGIN; SET LOCAL lock_timeout = '1s'; {};
             CREATE TABLE outbox_archive_{day} (LIKE outbox_archive INCLUDING ALL);
             ALTER TABLE outbox_archive ATTACH PARTITION outbox_archive_{day}
               FOR VALUES FROM ('{from} 00:00:00+00') TO ('{to} 00:00:00+00'); COMMIT",
            own_schema::prepend_to_search_path("outbox_archive")
        );
        if let Err(error) = client.batch_execute(&text).await {
            client.batch_execute("ROLLBACK").await?;
            // Another instance created it, a reader holds a lock, or the default partition has rows of this day: the next sweep tries
            // again.
            tracing::debug!(event = "archive_partition_create_failed", day, error = %crate::connection::statement_error::describe(&error), "an archive partition could not be created; the next sweep tries again");
        }
    }
    Ok(())
}

/// The result of dropping past days.
#[derive(Default)]
pub(crate) struct DroppedDays {
    /// Number of events of the dropped days.
    pub(crate) events: u64,
    /// The error of the last day that could not be truncated because it is in use.
    pub(crate) in_use: Option<tokio_postgres::Error>,
}

/// Truncates and drops the days that ended at least `keep` seconds ago. A day that is in use does not prevent the deletion of the others. Of a day
/// with at least `counted_bytes_max` bytes the events are estimated.
pub(crate) async fn drop_past(
    client: &Client,
    keep: f64,
    counted_bytes_max: u64,
) -> Result<DroppedDays, tokio_postgres::Error> {
    let mut dropped = DroppedDays::default();
    for row in client.query_typed(PAST, &[(&keep, Type::FLOAT8)]).await? {
        let day: String = row.try_get(0)?;
        match truncate(client, &day, counted_bytes_max).await {
            Ok(events) => dropped.events += events,
            Err(error) => {
                client.batch_execute("ROLLBACK").await?;
                tracing::debug!(event = "archive_partition_in_use", day, error = %crate::connection::statement_error::describe(&error), "an archive partition is in use; the next sweep drops it");
                dropped.in_use = Some(error);
                continue;
            }
        }
        if client.batch_execute(&format!("BEGIN; {LOCK_TIMEOUT}; DROP TABLE {day}; COMMIT")).await.is_err() {
            // A reader holds a lock on the archive. The next sweep drops the empty day.
            client.batch_execute("ROLLBACK").await?;
        }
    }
    Ok(dropped)
}

/// Counts the day's events and truncates it, in one transaction.
async fn truncate(client: &Client, day: &str, counted_bytes_max: u64) -> Result<u64, tokio_postgres::Error> {
    client
        .batch_execute(&format!(
            "BEGIN; {LOCK_TIMEOUT}; LOCK TABLE {day} IN ACCESS EXCLUSIVE MODE; SET LOCAL statement_timeout = 0"
        ))
        .await?;
    let count = format!(
        "SELECT CASE WHEN pg_relation_size('{day}') < {counted_bytes_max} OR reltuples < 0
             THEN (SELECT coalesce(sum(events), 0)::int8 FROM {day})
           ELSE (reltuples::numeric * coalesce((SELECT avg(events) FROM (SELECT events FROM {day} LIMIT 10000) s), 0))::int8 END
         FROM pg_class WHERE oid = '{day}'::regclass"
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
