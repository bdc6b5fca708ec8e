//! Deleting archived rows past their retention and payloads that no row needs, in bounded steps. Unsent rows are never touched.
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio_postgres::types::Type;

use crate::connection::session::PooledSession;
use crate::connection::sql_value::{get, seconds};
use crate::connection::statement_error::{CommitStage, StatementResult, broken, statement_error};
use crate::schema::archive_days::{self, DroppedDays};
use crate::store::context::StoreContext;

/// Below this retention whole days are too coarse, and the rows of daily partitions are deleted batch by batch as well.
const DELETE_BATCHES_BELOW: Duration = Duration::from_secs(2 * 86_400);

/// A day is dropped this long after its end at the earliest: a settlement that began before its end may still add a row.
const DROP_DAYS_AFTER: Duration = Duration::from_secs(3_600);

/// Deletes batches of `table` until the limit of events is reached. No statement updates them, so their ctids do not change.
fn delete_batches(table: &str) -> String {
    format!(
        "WITH old AS MATERIALIZED (SELECT tableoid, ctid, sum(events) OVER (ROWS UNBOUNDED PRECEDING) - events AS before
           FROM (SELECT tableoid, ctid, events FROM {table} WHERE sent_at < statement_timestamp() - make_interval(secs => $1) LIMIT $2) o),
         gone AS (DELETE FROM {table} a USING old WHERE a.ctid = old.ctid AND a.tableoid = old.tableoid AND old.before < $2
           RETURNING a.events),
         forgotten AS (SELECT coalesce(sum(events), 0)::int8 AS events FROM gone),
         recorded AS (UPDATE installation SET archive_forgotten = archive_forgotten + forgotten.events FROM forgotten
           WHERE forgotten.events > 0)
         SELECT events FROM forgotten"
    )
}

/// Reads a page of the events below every archived row, and deletes those that are not unsent: a row that stays parked keeps its event alone.
/// Ids are drawn before they are committed, but a transaction that may still commit a lower id commits its event and its row together, and this
/// statement sees neither before. A subquery for each event, because a join may read the whole outbox. Returns the lowest id still needed too.
const DELETE_EVENTS: &str = "WITH floor AS MATERIALIZED (SELECT least((SELECT min(first_id) FROM outbox_archive),
         (SELECT max(id) FROM outbox_event)) AS id),
     page AS MATERIALIZED (SELECT e.id, (SELECT q.id FROM outbox q WHERE q.partition = e.partition AND q.id = e.id) IS NULL AS settled
       FROM outbox_event e WHERE e.id > $1 AND e.id < (SELECT id FROM floor) ORDER BY e.id LIMIT $2),
     gone AS (DELETE FROM outbox_event WHERE id = ANY (ARRAY (SELECT id FROM page WHERE settled)) RETURNING id)
     SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM page), (SELECT max(id) FROM page),
       least((SELECT id FROM floor), (SELECT min(f.id) FROM outbox_lease l CROSS JOIN LATERAL
         (SELECT q.id FROM outbox q WHERE q.partition = l.partition ORDER BY q.id LIMIT 1) f))";

/// Deletes archived rows older than `keep`, and events that no row needs. Returns the number of the deleted rows, or `limit` if more events follow.
///
/// # Errors
/// Returns the error of a statement, or, after everything else has been deleted, that a past day of the archive is in use.
pub(crate) async fn sweep(context: &StoreContext, keep: Duration, limit: u32) -> StatementResult<u64> {
    let (age, limit) = (seconds(keep), i64::from(limit));
    let session = context.service_session().await?;
    let by_batch = keep < DELETE_BATCHES_BELOW;
    let ahead = context.options.days_ahead;
    session.with_client(async |client| archive_days::create(client, ahead).await).await?;
    let (past, counted) = (seconds(keep.max(DROP_DAYS_AFTER)), context.options.archive_counted_bytes_max);
    let DroppedDays { events: mut deleted, in_use } =
        session.with_client(async |client| archive_days::drop_past(client, past, counted).await).await?;
    let table = if by_batch { "outbox_archive" } else { "outbox_archive_default" };
    let rows = session.execute(&delete_batches(table), &[(&age, Type::FLOAT8), (&limit, Type::INT8)]).await?;
    deleted += rows.first().map(|row| get::<i64>(row, 0)).transpose()?.unwrap_or_default().unsigned_abs();
    let swept = delete_events(context, &session, limit).await?;
    // The caller continues as long as a full page is returned; a full page of events counts as one.
    let page = deleted.max(if swept { limit.unsigned_abs() } else { 0 });
    match in_use {
        // Everything else is swept. The caller counts how long the day stays.
        Some(error) if page < limit.unsigned_abs() => Err(statement_error(&error, CommitStage::BeforeCommit)),
        _ => Ok(page),
    }
}

/// Deletes events of one page. Returns whether the next page should follow at once.
async fn delete_events(context: &StoreContext, session: &PooledSession, limit: i64) -> StatementResult<bool> {
    let from = context.swept_event_id.load(Relaxed);
    let rows = session.execute(DELETE_EVENTS, &[(&from, Type::INT8), (&limit, Type::INT8)]).await?;
    let row = rows.first().ok_or_else(|| broken("the sweep of events returned no row"))?;
    let (deleted, read): (i64, i64) = (get(row, 0)?, get(row, 1)?);
    let is_full = read >= limit;
    context.swept_event_id.store(next_start(from, get(row, 2)?, get(row, 3)?, is_full), Relaxed);
    Ok(is_full && deleted > 0)
}

/// The id after which the next page begins. Within a pass that is the last one read. The next pass begins below the lowest id that is still
/// needed, a parked row or a transaction that has committed late for example, and does not read the deleted ones again.
fn next_start(from: i64, last_read: Option<i64>, needed: Option<i64>, is_full: bool) -> i64 {
    let reached = last_read.unwrap_or(from);
    if is_full { reached } else { needed.map_or(reached, |needed| reached.min(needed - 1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_pass_begins_below_the_lowest_event_that_is_needed() {
        assert_eq!(next_start(10, Some(20), Some(5), true), 20);
        assert_eq!(next_start(20, Some(25), Some(15), false), 14);
        assert_eq!(next_start(20, Some(25), Some(30), false), 25);
        assert_eq!(next_start(20, None, Some(12), false), 11);
        assert_eq!(next_start(20, None, None, false), 20);
    }
}
