//! Resolving a COMMIT without a reply: waits until its transaction has ended, then reads whether its rows exist.
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use domain::{EventId, Hlc, OrderId};
use ports::Error;
use ports::orders::{Commit, CommitOutcome};
use tokio::time::Instant;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::session::PooledSession;
use crate::connection::sql_value::{event_id, event_uuid, get, order_id, order_uuid};
use crate::connection::statement_error::StatementResult;
use crate::store::context::StoreContext;

/// Time between two attempts: 100 ms.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(100);

/// Whether the transaction may still commit. One that the server does not know, or no longer remembers, cannot: after a failover the new
/// server may not know it. A transaction id drawn by this statement bounds the known ones. A snapshot's xmax does not: it is one past the
/// last transaction that has ended, and the one in question may be younger and still running.
const MAY_COMMIT: &str = "SELECT CASE WHEN $1 < pg_current_xact_id()::text::bigint
       THEN coalesce(pg_xact_status($1::text::xid8) = 'in progress', false) ELSE false END";

/// The result of each commit; `unknown` for all of them if [`crate::Options::resolve_timeout`] passes first.
pub(crate) async fn resolve(
    context: &StoreContext,
    xid: i64,
    commits: &[&Commit],
    unknown: &Error,
) -> Vec<Result<CommitOutcome, Error>> {
    let deadline = Instant::now() + context.options.resolve_timeout;
    loop {
        match try_resolve(context, xid, commits).await {
            Ok(Some(results)) => return results,
            Ok(None) | Err(_) if Instant::now() >= deadline => return vec![Err(unknown.clone()); commits.len()],
            Ok(None) | Err(_) => tokio::time::sleep(ATTEMPT_INTERVAL).await,
        }
    }
}

/// `None` while the transaction may still commit.
async fn try_resolve(
    context: &StoreContext,
    xid: i64,
    commits: &[&Commit],
) -> StatementResult<Option<Vec<Result<CommitOutcome, Error>>>> {
    let session = context.commit_session().await?;
    let rows = session.query(MAY_COMMIT, &[(&xid, Type::INT8)]).await?;
    if rows.first().map(|row| get::<bool>(row, 0)).transpose()? != Some(false) {
        return Ok(None);
    }
    let events = existing_events(&session, commits).await?;
    let orders = stored_orders(&session, commits).await?;
    let results = commits.iter().map(|commit| match commit.events.first() {
        // An event's id is never reused: its row exists only if this transaction committed.
        Some(event) if events.contains(&event.event_id) => committed(),
        Some(_) => rolled_back(),
        None => result_by_order(commit, orders.get(&commit.order.id)),
    });
    Ok(Some(results.collect()))
}

/// Which of the commits' first events exist.
async fn existing_events(session: &PooledSession, commits: &[&Commit]) -> StatementResult<HashSet<EventId>> {
    let events: Vec<Uuid> =
        commits.iter().filter_map(|commit| commit.events.first()).map(|event| event_uuid(event.event_id)).collect();
    let text = "SELECT event_id FROM outbox_event WHERE event_id = ANY($1)";
    let rows = session.query(text, &[(&events, Type::UUID_ARRAY)]).await?;
    rows.iter().map(|row| get(row, 0).map(event_id)).collect()
}

/// Version and stamp of an order in the table.
struct StoredOrder {
    version: u64,
    hlc: Hlc,
    region: String,
}

async fn stored_orders(session: &PooledSession, commits: &[&Commit]) -> StatementResult<HashMap<OrderId, StoredOrder>> {
    let orders: Vec<Uuid> = commits.iter().map(|commit| order_uuid(commit.order.id)).collect();
    let text = "SELECT id, version, hlc_millis, hlc_counter, region FROM orders WHERE id = ANY($1)";
    let rows = session.query(text, &[(&orders, Type::UUID_ARRAY)]).await?;
    let read = |row| {
        let hlc = Hlc { millis: get(row, 2)?, counter: get::<i64>(row, 3)? as u32 };
        let stored = StoredOrder { version: get::<i64>(row, 1)? as u64, hlc, region: get(row, 4)? };
        Ok((order_id(get(row, 0)?), stored))
    };
    rows.iter().map(read).collect()
}

/// The result of a commit without events, which left no trace but its order's version and stamp.
fn result_by_order(commit: &Commit, stored: Option<&StoredOrder>) -> Result<CommitOutcome, Error> {
    let order = &commit.order;
    match stored {
        None => rolled_back(),
        Some(stored) if stored.version < order.version => rolled_back(),
        Some(stored) if stored.version > order.version => {
            Err(Error::Unknown("the connection broke, and the order was changed again since".into()))
        }
        Some(stored) if (stored.hlc, stored.region.as_str()) == (order.hlc, order.region.as_str()) => committed(),
        Some(_) => rolled_back(),
    }
}

fn committed() -> Result<CommitOutcome, Error> {
    Ok(CommitOutcome::Done)
}

fn rolled_back() -> Result<CommitOutcome, Error> {
    Err(Error::Unreachable("the connection broke, and the transaction was rolled back".into()))
}
