//! The lock on the instance id as a row with a heartbeat, for databases behind a pooler, where no session belongs to one client.
use tokio::sync::watch;
use tokio_postgres::types::Type;

use crate::connection::open_error::PostgresOpenError;
use crate::connection::sql_value::{SqlValue, get};
use crate::connection::statement_error::StatementError;
use crate::leases::instance_id_claimant::{DELETE_ROW, HEARTBEAT, InstanceIdClaimant, stop_requested};
use crate::store::context::StoreContext;

/// Writes the row if the instance id is free, belongs to this process, or its holder's heartbeat expired.
const WRITE_ROW_IF_FREE: &str = "INSERT INTO instance (name, session, pid, address, taken_at, seen_at)
     VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp())
     ON CONFLICT (name) DO UPDATE SET session = excluded.session, pid = excluded.pid, backend = NULL, address = excluded.address,
       taken_at = excluded.taken_at, seen_at = excluded.seen_at
     WHERE instance.session = excluded.session OR instance.seen_at + make_interval(secs => $5) <= clock_timestamp() RETURNING 1";

impl InstanceIdClaimant {
    /// Takes the row, or returns the error that names its holder.
    pub(crate) async fn take_row(&self, context: &StoreContext) -> Result<(), PostgresOpenError> {
        let failed =
            |error: StatementError| PostgresOpenError::from_port(self.connector.location(), &error.into_port());
        let session = context.service_session().await.map_err(|error| failed(error.into()))?;
        let pid = std::process::id() as i32;
        let values: [SqlValue<'_>; 5] = [
            (&self.instance_id(), Type::TEXT),
            (&self.session, Type::UUID),
            (&pid, Type::INT4),
            (&self.options.address, Type::TEXT),
            (&self.dead_after_seconds(), Type::FLOAT8),
        ];
        if !session.execute(WRITE_ROW_IF_FREE, &values).await.map_err(failed)?.is_empty() {
            return Ok(());
        }
        let text = "SELECT pid, address FROM instance WHERE name = $1";
        let rows = session.query(text, &[(&self.instance_id(), Type::TEXT)]).await.map_err(failed)?;
        let holder = rows.first();
        Err(self.held_error(holder.and_then(|row| get(row, 0).ok()), holder.and_then(|row| get(row, 1).ok())))
    }

    /// Sends heartbeats until the store closes (`Ok`) or another process has the instance id (its description).
    pub(crate) async fn keep_row(
        &self,
        context: &StoreContext,
        stopping: &mut watch::Receiver<bool>,
    ) -> Result<(), String> {
        let own: [SqlValue<'_>; 2] = [(&self.instance_id(), Type::TEXT), (&self.session, Type::UUID)];
        loop {
            // Dropping the sleep loses nothing.
            tokio::select! {
                () = stop_requested(stopping) => break,
                () = tokio::time::sleep(self.options.heartbeat_interval) => {}
            }
            let heartbeat = async { context.service_session().await?.execute(HEARTBEAT, &own).await };
            // A heartbeat that fails is repeated. The instance id is lost only when the row belongs to another session.
            let row_is_foreign = heartbeat.await.is_ok_and(|rows| rows.is_empty());
            if row_is_foreign && matches!(self.take_row(context).await, Err(PostgresOpenError::Held { .. })) {
                return Err("a process that took the id after this one's heartbeat expired".into());
            }
        }
        let delete = async { context.service_session().await?.execute(DELETE_ROW, &own).await };
        // If the row stays, its heartbeat expires.
        let _ = delete.await;
        Ok(())
    }
}
