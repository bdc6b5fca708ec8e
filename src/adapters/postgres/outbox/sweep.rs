//! Deleting archived rows past their retention and payloads that no row needs, in bounded steps. Unsent rows are never touched.
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio_postgres::types::Type;

use crate::connection::sql_value::{get, seconds};
use crate::connection::statement_error::StatementResult;
use crate::schema::archive_days;
use crate::store::core::Core;

/// Below this retention whole days are too coarse, and daily partitions are swept batch by batch as well.
const DELETE_BATCHES_BELOW: Duration = Duration::from_secs(2 * 86_400);

/// Deletes batches of `table` until the limit of events is reached. No statement updates them, so their ctids do not change.
fn delete_batches(table: &str) -> String {
    format!(
        "WITH old AS MATERIALIZED (SELECT tableoid, ctid, sum(events) OVER (ROWS UNBOUNDED PRECEDING) - events AS before
           FROM (SELECT tableoid, ctid, events FROM {table} WHERE sent_at < statement_timestamp() - make_interval(secs => $1) LIMIT $2) o),
         gone AS (DELETE FROM {table} a USING old WHERE a.ctid = old.ctid AND a.tableoid = old.tableoid AND old.before < $2
           RETURNING a.events),
         n AS (SELECT coalesce(sum(events), 0)::int8 AS n FROM gone),
         recorded AS (UPDATE installation SET archive_forgotten = archive_forgotten + n.n FROM n WHERE n.n > 0)
         SELECT n FROM n"
    )
}

/// Deletes events below every unsent and every archived row. Ids are drawn before they are committed, but a transaction that may still
/// commit a lower id commits its event and its row together, and this statement sees neither before.
const DELETE_EVENTS: &str = "WITH floor AS MATERIALIZED (SELECT least((SELECT min(f.id) FROM outbox_lease l CROSS JOIN LATERAL
           (SELECT q.id FROM outbox q WHERE q.partition = l.partition ORDER BY q.id LIMIT 1) f),
         (SELECT min(first_id) FROM outbox_archive), (SELECT max(id) FROM outbox_event)) AS id),
     gone AS (DELETE FROM outbox_event WHERE id IN (SELECT e.id FROM outbox_event e WHERE e.id > $1 AND e.id < (SELECT id FROM floor)
         ORDER BY e.id LIMIT $2) RETURNING id)
     SELECT count(*), max(id) FROM gone";

/// Deletes archived rows older than `keep`, and returns their number.
pub(crate) async fn sweep(core: &Core, keep: Duration, limit: u32) -> StatementResult<u64> {
    let (age, limit) = (seconds(keep), i64::from(limit));
    let session = core.service_session().await?;
    let by_batch = keep < DELETE_BATCHES_BELOW;
    let mut deleted = 0;
    let ahead = core.options.days_ahead;
    session.with_client(async |client| archive_days::create(client, ahead).await).await?;
    if !by_batch {
        deleted += session.with_client(async |client| archive_days::drop_past(client, age).await).await?;
    }
    let table = if by_batch { "outbox_archive" } else { "outbox_archive_default" };
    let rows = session.execute(&delete_batches(table), &[(&age, Type::FLOAT8), (&limit, Type::INT8)]).await?;
    deleted += rows.first().map(|row| get::<i64>(row, 0)).transpose()?.unwrap_or_default().unsigned_abs();
    let from = core.swept_event_id.load(Relaxed);
    let rows = session.execute(DELETE_EVENTS, &[(&from, Type::INT8), (&limit, Type::INT8)]).await?;
    if let Some(last) = rows.first().map(|row| get::<Option<i64>>(row, 1)).transpose()?.flatten() {
        core.swept_event_id.fetch_max(last, Relaxed);
    }
    let events = rows.first().map(|row| get::<i64>(row, 0)).transpose()?.unwrap_or_default().unsigned_abs();
    // The caller continues as long as a full page is returned; a full page of events counts as one.
    Ok(deleted.max(if events >= limit.unsigned_abs() { events } else { 0 }))
}
