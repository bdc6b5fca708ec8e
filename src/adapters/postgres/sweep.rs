//! Forgetting, in bounded bites: archived rows past their time, and payloads nobody needs. What has not left is never touched.
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio_postgres::types::Type;

use crate::days;
use crate::error::Answer;
use crate::store::Core;
use crate::value::{get, seconds};

/// A retention so short that whole days are too coarse for it; then days are forgotten row by row as well.
const BY_ROW_BELOW: Duration = Duration::from_secs(2 * 86_400);

/// Batches of the default partition, which has no day to be dropped with, or of all, until so many events are reached. Nobody changes
/// them, so their places stay theirs.
fn forget(table: &str) -> String {
    format!(
        "WITH old AS MATERIALIZED (SELECT tableoid, ctid, sum(events) OVER (ROWS UNBOUNDED PRECEDING) - events AS before
           FROM (SELECT tableoid, ctid, events FROM {table} WHERE sent_at < statement_timestamp() - make_interval(secs => $1) LIMIT $2) o),
         gone AS (DELETE FROM {table} a USING old WHERE a.ctid = old.ctid AND a.tableoid = old.tableoid AND old.before < $2
           RETURNING a.events),
         n AS (SELECT coalesce(sum(events), 0)::int8 AS n FROM gone),
         told AS (UPDATE installation SET archive_forgotten = archive_forgotten + n.n FROM n WHERE n.n > 0)
         SELECT n FROM n"
    )
}

/// Events below everything that lives or is archived. Ids are drawn before they are committed, but whoever may still commit one below
/// brings its event and its row together, and neither is seen here before.
const FORGET_EVENTS: &str = "WITH floor AS MATERIALIZED (SELECT least((SELECT min(f.id) FROM outbox_lease l CROSS JOIN LATERAL
           (SELECT q.id FROM outbox q WHERE q.partition = l.partition ORDER BY q.id LIMIT 1) f),
         (SELECT min(first_id) FROM outbox_archive), (SELECT max(id) FROM outbox_event)) AS id),
     gone AS (DELETE FROM outbox_event WHERE id IN (SELECT e.id FROM outbox_event e WHERE e.id > $1 AND e.id < (SELECT id FROM floor)
         ORDER BY e.id LIMIT $2) RETURNING id)
     SELECT count(*), max(id) FROM gone";

/// Forgets what is older than `keep`; says how many archived rows that were.
pub(crate) async fn sweep(core: &Core, keep: Duration, limit: u32) -> Answer<u64> {
    let (age, limit) = (seconds(keep), i64::from(limit));
    let session = core.others().await?;
    let by_row = keep < BY_ROW_BELOW;
    let mut forgotten = 0;
    let ahead = core.options.days_ahead;
    session.by_hand(async |client| days::make(client, ahead).await).await?;
    if !by_row {
        forgotten += session.by_hand(async |client| days::drop_past(client, age).await).await?;
    }
    let table = if by_row { "outbox_archive" } else { "outbox_archive_default" };
    let rows = session.once(&forget(table), &[(&age, Type::FLOAT8), (&limit, Type::INT8)]).await?;
    forgotten += rows.first().map(|row| get::<i64>(row, 0)).transpose()?.unwrap_or_default().unsigned_abs();
    let from = core.swept.load(Relaxed);
    let rows = session.once(FORGET_EVENTS, &[(&from, Type::INT8), (&limit, Type::INT8)]).await?;
    if let Some(last) = rows.first().map(|row| get::<Option<i64>>(row, 1)).transpose()?.flatten() {
        core.swept.fetch_max(last, Relaxed);
    }
    let events = rows.first().map(|row| get::<i64>(row, 0)).transpose()?.unwrap_or_default().unsigned_abs();
    // Whoever sweeps goes on as long as a page comes back full; a page of events counts as one.
    Ok(forgotten.max(if events >= limit.unsigned_abs() { events } else { 0 }))
}
