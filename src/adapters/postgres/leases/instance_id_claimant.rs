//! The process that takes the instance id: its identity, and the statements on its row in `instance` that both kinds of lock share.
use std::sync::Arc;

use tokio::sync::watch;
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::connector::Connector;
use crate::connection::open_error::PostgresOpenError;
use crate::connection::sql_value::{SqlValue, seconds};
use crate::store::options::Options;

/// Confirms that the process is alive; returns no row if another process has the instance id.
pub(crate) const HEARTBEAT: &str =
    "UPDATE instance SET seen_at = clock_timestamp() WHERE name = $1 AND session = $2 RETURNING 1";

/// Deletes the row of this process.
pub(crate) const DELETE_ROW: &str = "DELETE FROM instance WHERE name = $1 AND session = $2";

/// A process that takes or keeps the instance id.
#[derive(Clone)]
pub(crate) struct InstanceIdClaimant {
    pub(crate) connector: Connector,
    pub(crate) options: Arc<Options>,
    /// A UUID of this process, by which it recognises its own row.
    pub(crate) session: Uuid,
}

impl InstanceIdClaimant {
    /// The configured instance id.
    pub(crate) fn instance_id(&self) -> &str {
        &self.options.instance.0
    }

    /// Age in seconds after which a holder's heartbeat counts as dead.
    pub(crate) fn dead_after_seconds(&self) -> f64 {
        seconds(self.options.dead_after)
    }

    /// Runs [`HEARTBEAT`] on the lock's own connection. False means that the connection does not work.
    pub(crate) async fn heartbeat(&self, client: &Client) -> bool {
        let values: [SqlValue<'_>; 2] = [(&self.instance_id(), Type::TEXT), (&self.session, Type::UUID)];
        let limit = self.options.statement_timeout;
        matches!(tokio::time::timeout(limit, client.query_typed(HEARTBEAT, &values)).await, Ok(Ok(_)))
    }

    /// The error that names the holder, as far as its row describes it.
    pub(crate) fn held_error(&self, pid: Option<i32>, address: Option<String>) -> PostgresOpenError {
        let unknown = || "unknown".to_string();
        PostgresOpenError::Held {
            instance: self.instance_id().into(),
            pid: pid.map_or_else(unknown, |pid| pid.to_string()),
            address: address.filter(|address| !address.is_empty()).unwrap_or_else(unknown),
            location: self.connector.location().into(),
        }
    }
}

/// Waits until the store closes. Cancel-safe: the flag stays set.
pub(crate) async fn stop_requested(stopping: &mut watch::Receiver<bool>) {
    // An error means that the store's handle was dropped, which ends the lease as well.
    let _ = stopping.wait_for(|stop| *stop).await;
}
