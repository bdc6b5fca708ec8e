//! Accepting a new timeline of the server: reading the change, and raising the counters of the leases to the broker's watermarks.
use std::collections::BTreeMap;

use outbox::{PartitionNo, Token};
use ports::partitions::{TimelineAcceptance, TimelineChange};
use tokio_postgres::types::Type;

use crate::connection::server_timeline::{compare, current};
use crate::connection::sql_value::{SqlValue, get, get_time_opt};
use crate::connection::statement_error::{StatementResult, broken};
use crate::leases::unanswered_acceptance::UnansweredAcceptance;
use crate::store::context::StoreContext;

const CHANGE: &str = "SELECT timeline, complete_until FROM store_timeline WHERE NOT adopted";

/// Locks the change. Without a row it is accepted, or it is not the current one any more.
const LOCK_CHANGE: &str = concat!(
    "SELECT 1 FROM store_timeline WHERE timeline = $1 AND timeline = ",
    current!(),
    " AND NOT adopted FOR UPDATE"
);

const LOCK_LEASES: &str = "SELECT partition FROM outbox_lease ORDER BY partition FOR UPDATE";

const RAISE_COUNTERS: &str =
    "UPDATE outbox_lease l SET counter = w.token FROM unnest($1::int4[], $2::int8[]) w (partition, token)
     WHERE l.partition = w.partition AND l.counter < w.token RETURNING l.partition";

/// Returns the number of the transaction: after a lost reply it shows whether the transaction was committed.
const ACCEPT: &str = "UPDATE store_timeline SET adopted = true RETURNING pg_current_xact_id()::text";

/// Whether this transaction of the current timeline was committed. On another timeline the number may be another transaction's.
const IS_COMMITTED: &str = concat!(
    "SELECT pg_xact_status($2::text::xid8) = 'committed' FROM store_timeline WHERE timeline = $1 AND adopted AND timeline = ",
    current!()
);

/// The change that must be accepted before a partition can be acquired; `None` if it was accepted meanwhile.
pub(crate) async fn unaccepted_change(context: &StoreContext) -> StatementResult<Option<TimelineChange>> {
    let session = context.relay_session().await?;
    compare(&session).await?;
    let rows = session.query(CHANGE, &[]).await?;
    let change = |row| Ok(TimelineChange { timeline: get(row, 0)?, complete_until: get_time_opt(row, 1)? });
    rows.first().map(change).transpose()
}

/// Raises the counters to the watermarks, and permits acquisitions again.
pub(crate) async fn accept_timeline(
    context: &StoreContext,
    change: &TimelineChange,
    watermarks: &BTreeMap<PartitionNo, Token>,
) -> StatementResult<TimelineAcceptance> {
    let session = context.relay_session().await?;
    let (transaction, rows) = session.begin_with(LOCK_CHANGE, &[(&change.timeline, Type::TEXT)]).await?;
    if rows.is_empty() {
        transaction.rollback().await?;
        return earlier_acceptance(context, change).await;
    }
    transaction.query(LOCK_LEASES, &[]).await?;
    let partitions: Vec<i32> = watermarks.keys().map(|partition| partition.0 as i32).collect();
    let tokens: Vec<i64> = watermarks.values().map(|token| *token as i64).collect();
    let values: [SqlValue<'_>; 2] = [(&partitions, Type::INT4_ARRAY), (&tokens, Type::INT8_ARRAY)];
    let behind = transaction.query(RAISE_COUNTERS, &values).await?.len();
    let rows = transaction.query(ACCEPT, &[]).await?;
    let number = rows.first().map(|row| get::<&str>(row, 0)).transpose()?.unwrap_or_default().to_owned();
    let partitions_behind = u32::try_from(behind).map_err(|_| broken("more lease rows than partitions"))?;
    let acceptance = TimelineAcceptance::Accepted { partitions_behind };
    let unanswered = UnansweredAcceptance { timeline: change.timeline.clone(), transaction: number, acceptance };
    *context.unanswered_acceptance.lock() = Some(unanswered);
    transaction.commit().await?;
    Ok(acceptance)
}

/// The result of this process's own acceptance, if no caller has received it and its transaction was committed.
async fn earlier_acceptance(context: &StoreContext, change: &TimelineChange) -> StatementResult<TimelineAcceptance> {
    let unanswered = context.unanswered_acceptance.lock().clone();
    let Some(unanswered) = unanswered.filter(|unanswered| unanswered.timeline == change.timeline) else {
        return Ok(TimelineAcceptance::AlreadyDone);
    };
    let values: [SqlValue<'_>; 2] = [(&unanswered.timeline, Type::TEXT), (&unanswered.transaction, Type::TEXT)];
    let rows = context.relay_session().await?.query(IS_COMMITTED, &values).await?;
    let is_committed = rows.first().map(|row| get::<Option<bool>>(row, 0)).transpose()?.flatten();
    Ok(if is_committed == Some(true) { unanswered.acceptance } else { TimelineAcceptance::AlreadyDone })
}
