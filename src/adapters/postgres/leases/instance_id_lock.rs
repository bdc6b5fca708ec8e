//! The lock on the instance id as an advisory lock of a session: the server releases it when the process or its connection ends.
use std::time::Duration;

use tokio::sync::watch;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::connector::DedicatedConnection;
use crate::connection::open_error::PostgresOpenError;
use crate::connection::retry_backoff::RetryBackoff;
use crate::connection::sql_value::SqlValue;
use crate::leases::instance_id_claimant::{DELETE_ROW, InstanceIdClaimant, stop_requested};

/// The lock's key. It contains the schema: two installations in one database may have instances with the same id.
macro_rules! key {
    () => {
        "hashtextextended('posthaste:' || (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE c.oid = 'instance'::regclass) || ':' || $1, 0)"
    };
}

const TRY: &str = concat!("SELECT pg_try_advisory_lock(", key!(), "), pg_backend_pid()");

const WAIT: &str = concat!("SELECT pg_advisory_lock(", key!(), ")");

/// The backend that holds the lock, and the row of its process. A row of another backend belongs to the previous holder and is left out:
/// a process that has just taken the instance id must not be ended for the old heartbeat of its predecessor.
const HOLDER: &str = concat!(
    "SELECT l.pid, i.pid, i.address, i.session, coalesce(i.seen_at + make_interval(secs => $2) <= clock_timestamp(), false)
     FROM (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
             AND ((classid::bigint << 32) | objid::bigint) = ",
    key!(),
    ") l LEFT JOIN instance i ON i.name = $1 AND i.backend = l.pid"
);

const WRITE_ROW: &str = "INSERT INTO instance (name, session, pid, address, backend, taken_at, seen_at)
     VALUES ($1, $2, $3, $4, $5, clock_timestamp(), clock_timestamp())
     ON CONFLICT (name) DO UPDATE SET session = excluded.session, pid = excluded.pid, backend = excluded.backend,
       address = CASE WHEN instance.session = excluded.session THEN instance.address ELSE excluded.address END,
       taken_at = excluded.taken_at, seen_at = excluded.seen_at";

/// Longest wait for a holder that was ended, or that has not written its row yet.
const HOLDER_WAIT_MAX: Duration = Duration::from_secs(2);
/// Time between two attempts to take the lock.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(50);

/// The connection whose session holds the lock.
pub(crate) struct InstanceIdLock {
    connection: DedicatedConnection,
    backend: i32,
}

/// The result of one attempt to take the lock.
enum LockAttempt {
    Acquired {
        backend: i32,
    },
    Held {
        backend: i32,
        /// `None` while the holder has not written its row.
        pid: Option<i32>,
        address: Option<String>,
        session: Option<Uuid>,
        heartbeat_expired: bool,
    },
    /// The holder released it between the two statements.
    Released,
}

impl InstanceIdClaimant {
    /// Takes the lock. Terminates the backend of a holder whose heartbeat expired, and `former_backend` of this process, whose end the
    /// server has not detected yet. A process that had the instance id waits for a holder without a row, however long it takes: the holder may
    /// be a connection of this process that broke before it wrote its row, while another process writes its row at once.
    pub(crate) async fn take_lock(&self, former_backend: Option<i32>) -> Result<InstanceIdLock, PostgresOpenError> {
        let connection = self.connector.connect("lock").await?;
        let client = &connection.client;
        let open_error =
            |error: tokio_postgres::Error| PostgresOpenError::from_client(self.connector.location(), &error);
        let started = tokio::time::Instant::now();
        let gives_up = || former_backend.is_none() && started.elapsed() > HOLDER_WAIT_MAX;
        loop {
            match self.try_lock(client).await.map_err(open_error)? {
                LockAttempt::Acquired { backend } => {
                    self.write_row(client, backend).await.map_err(open_error)?;
                    return Ok(InstanceIdLock { connection, backend });
                }
                LockAttempt::Held { backend, session, heartbeat_expired, .. }
                    if heartbeat_expired || (Some(backend) == former_backend && session == Some(self.session)) =>
                {
                    if gives_up() {
                        return Err(self.held_error(None, None));
                    }
                    self.end_holder(client, backend).await.map_err(open_error)?;
                    continue;
                }
                LockAttempt::Held { pid: Some(pid), address, .. } => return Err(self.held_error(Some(pid), address)),
                LockAttempt::Held { .. } if gives_up() => return Err(self.held_error(None, None)),
                LockAttempt::Held { .. } | LockAttempt::Released => {}
            }
            tokio::time::sleep(ATTEMPT_INTERVAL).await;
        }
    }

    async fn try_lock(&self, client: &Client) -> Result<LockAttempt, tokio_postgres::Error> {
        let name = self.instance_id();
        let rows = client.query_typed(TRY, &[(&name, Type::TEXT)]).await?;
        let Some(row) = rows.first() else { return Ok(LockAttempt::Released) };
        if row.try_get(0)? {
            return Ok(LockAttempt::Acquired { backend: row.try_get(1)? });
        }
        let values: [SqlValue<'_>; 2] = [(&name, Type::TEXT), (&self.dead_after_seconds(), Type::FLOAT8)];
        let rows = client.query_typed(HOLDER, &values).await?;
        let Some(row) = rows.first() else { return Ok(LockAttempt::Released) };
        Ok(LockAttempt::Held {
            backend: row.try_get(0)?,
            pid: row.try_get(1)?,
            address: row.try_get(2)?,
            session: row.try_get(3)?,
            heartbeat_expired: row.try_get(4)?,
        })
    }

    async fn write_row(&self, client: &Client, backend: i32) -> Result<(), tokio_postgres::Error> {
        let pid = std::process::id() as i32;
        let values: [SqlValue<'_>; 5] = [
            (&self.instance_id(), Type::TEXT),
            (&self.session, Type::UUID),
            (&pid, Type::INT4),
            (&self.options.address, Type::TEXT),
            (&backend, Type::INT4),
        ];
        client.query_typed(WRITE_ROW, &values).await.map(|_| ())
    }

    /// Ends the holder's session and waits in the lock's queue, so that a holder that was only slow reconnects behind this process.
    async fn end_holder(&self, client: &Client, backend: i32) -> Result<(), tokio_postgres::Error> {
        client.query_typed("SELECT pg_terminate_backend($1)", &[(&backend, Type::INT4)]).await?;
        match client.query_typed(WAIT, &[(&self.instance_id(), Type::TEXT)]).await {
            Err(error) if error.code() != Some(&SqlState::LOCK_NOT_AVAILABLE) => Err(error),
            _ => Ok(()),
        }
    }

    /// Sends heartbeats and re-takes the lock when its connection breaks, until the store closes (`Ok`) or another process has the id
    /// (its description).
    pub(crate) async fn keep_lock(
        &self,
        mut lock: InstanceIdLock,
        stopping: &mut watch::Receiver<bool>,
    ) -> Result<(), String> {
        loop {
            // Whichever branch is dropped starts anew in the next iteration; a cancelled heartbeat is repeated by the next one.
            tokio::select! {
                () = stop_requested(stopping) => {
                    let row: [SqlValue<'_>; 2] = [(&self.instance_id(), Type::TEXT), (&self.session, Type::UUID)];
                    // The row only informs operators; the server releases the lock with the connection.
                    let _ = lock.connection.client.query_typed(DELETE_ROW, &row).await;
                    return Ok(());
                }
                _ = &mut lock.connection.driver => {}
                () = tokio::time::sleep(self.options.heartbeat_interval) => {
                    if self.heartbeat(&lock.connection.client).await {
                        continue;
                    }
                }
            }
            tracing::warn!(
                event = "instance_lock_interrupted",
                instance = self.instance_id(),
                "the connection that holds the lock on the instance id broke; the lock is taken again"
            );
            lock = self.retake_lock(lock.backend).await?;
            tracing::info!(
                event = "instance_lock_regained",
                instance = self.instance_id(),
                "the lock on the instance id is held again"
            );
        }
    }

    /// Takes the lock again, however long the server is away. The error describes the process that has it instead.
    async fn retake_lock(&self, former_backend: i32) -> Result<InstanceIdLock, String> {
        let mut backoff = RetryBackoff::new();
        loop {
            match self.take_lock(Some(former_backend)).await {
                Ok(lock) => return Ok(lock),
                Err(PostgresOpenError::Held { pid, address, .. }) => {
                    return Err(format!("pid {pid}, listening on {address}"));
                }
                Err(error) => tracing::debug!(
                    event = "instance_lock_retry_failed",
                    error = %error,
                    "the lock on the instance id could not be taken; it is tried again"
                ),
            }
            backoff.wait().await;
        }
    }
}
