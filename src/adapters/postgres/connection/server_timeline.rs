//! The server's timeline, compared with the one in `store_timeline`: at each new connection of the relay, and at each acquisition. After a
//! change every lease gets a new epoch, which ends the sessions of the former timeline in all processes, and no partition can be acquired
//! until the change is accepted.
use deadpool_postgres::{ClientWrapper, Hook, HookError};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::connection::open_error::PostgresOpenError;
use crate::connection::session::PooledSession;
use crate::connection::sql_value::get;
use crate::connection::statement_error::StatementResult;

/// The current timeline: the cluster, and the timeline in its newest WAL file's name. The control file shows a new timeline only after the
/// next checkpoint. A server in recovery returns an error.
macro_rules! current {
    () => {
        "((SELECT system_identifier FROM pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8))"
    };
}

/// Whether the current timeline is known and accepted, as an expression.
macro_rules! is_accepted {
    () => {
        concat!(
            "(SELECT s.adopted AND s.timeline = ",
            $crate::connection::server_timeline::current!(),
            " FROM store_timeline s)"
        )
    };
}

pub(crate) use {current, is_accepted};

const CURRENT: &str = concat!("SELECT ", current!());

const IS_KNOWN: &str = concat!(
    "SELECT coalesce(s.timeline = p.timeline, false) FROM (SELECT ",
    current!(),
    " AS timeline) p LEFT JOIN store_timeline s ON true"
);

/// Writes a timeline that is not the known one, and raises all epochs, unless it is the first that is ever written. Locks the lease rows in
/// the order of their numbers. The last transaction that the server replayed is complete; without one the last heartbeat is the newest known commit.
const RECORD_CHANGE: &str = concat!(
    "WITH written AS (INSERT INTO store_timeline AS s (timeline, adopted, complete_until) SELECT ",
    current!(),
    ", true, coalesce(pg_last_xact_replay_timestamp(), (SELECT max(seen_at) FROM relay_instance))
       ON CONFLICT (one) DO UPDATE SET timeline = excluded.timeline, adopted = false, noticed_at = clock_timestamp(),
         complete_until = CASE WHEN s.adopted THEN excluded.complete_until ELSE least(s.complete_until, excluded.complete_until) END
       WHERE s.timeline <> excluded.timeline RETURNING adopted),
     held AS MATERIALIZED (SELECT l.partition FROM written w, outbox_lease l WHERE NOT w.adopted ORDER BY l.partition FOR UPDATE OF l)
     UPDATE outbox_lease l SET epoch = l.epoch + 1 FROM held WHERE l.partition = held.partition"
);

/// Whether the role may read the server's timeline, on a server that has one.
///
/// # Errors
/// Fails as a connection does, and if the server is in recovery.
pub(crate) async fn is_readable(client: &Client, location: &str) -> Result<bool, PostgresOpenError> {
    match client.query_typed(CURRENT, &[]).await {
        Ok(_) => Ok(true),
        Err(error) if error.code().is_some_and(is_refusal) => {
            tracing::warn!(
                event = "store_timeline_unreadable",
                error = %error,
                "the server does not show its timeline: a fail-over to a standby that lagged is recognised only by the broker's watermarks"
            );
            Ok(false)
        }
        Err(error) => Err(PostgresOpenError::from_client(location, &error)),
    }
}

fn is_refusal(state: &SqlState) -> bool {
    [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::UNDEFINED_FUNCTION, SqlState::FEATURE_NOT_SUPPORTED].contains(state)
}

/// Compares the timeline on each new connection, before any statement of the relay runs on it. A connection never sees another timeline
/// later: a server changes its timeline only when it leaves recovery, and one in recovery is refused here.
pub(crate) fn compare_on_connect() -> Hook {
    Hook::async_fn(|client: &mut ClientWrapper, _| {
        Box::pin(async move {
            let rows = client.query_typed(IS_KNOWN, &[]).await.map_err(HookError::Backend)?;
            if !rows.first().is_some_and(|row| row.get(0)) {
                client.query_typed(RECORD_CHANGE, &[]).await.map_err(HookError::Backend)?;
            }
            Ok(())
        })
    })
}

/// Compares the timeline now: behind a pooler a connection may reach another server at any time.
pub(crate) async fn compare(session: &PooledSession) -> StatementResult<()> {
    let rows = session.query(IS_KNOWN, &[]).await?;
    if !rows.first().map(|row| get(row, 0)).transpose()?.unwrap_or(false) {
        session.execute(RECORD_CHANGE, &[]).await?;
    }
    Ok(())
}
