//! The lease of the instance id: one live process holds it. With sessions of its own the process holds an advisory lock
//! (`instance_id_lock`), behind a pooler a row with a heartbeat (`instance_id_row`).
use std::sync::Arc;
use std::time::Duration;

use ports::partitions::InstanceIdTakenOver;
use tokio::runtime::Handle;
use tokio::sync::watch;
use uuid::Uuid;

use crate::connection::background_tasks::BackgroundTasks;
use crate::connection::connector::Connector;
use crate::connection::open_error::PostgresOpenError;
use crate::connection::sql_value::get;
use crate::connection::statement_error::{StatementResult, broken};
use crate::leases::instance_id_claimant::InstanceIdClaimant;
use crate::store::context::StoreContext;

/// Longest wait for the release of the instance id when the store closes.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(2);

/// The held instance id, and the task that keeps it.
pub(crate) struct InstanceIdLease {
    taken_over: watch::Receiver<Option<InstanceIdTakenOver>>,
    stop: watch::Sender<bool>,
    stopped: watch::Receiver<bool>,
}

impl InstanceIdLease {
    /// Takes the instance id, or returns the error that names its holder.
    pub(crate) async fn acquire(
        connector: &Connector,
        context: &Arc<StoreContext>,
        tasks: &BackgroundTasks,
    ) -> Result<Self, PostgresOpenError> {
        let session = generate_session_id(context)
            .await
            .map_err(|error| PostgresOpenError::from_port(connector.location(), &error.into_port()))?;
        let claimant =
            InstanceIdClaimant { connector: connector.clone(), options: Arc::clone(&context.options), session };
        let (taken_over_sender, taken_over) = watch::channel(None);
        let (stop, mut stopping) = watch::channel(false);
        let (stopped_sender, stopped) = watch::channel(false);
        let lock = if claimant.options.pooler {
            claimant.take_row(context).await?;
            None
        } else {
            Some(claimant.take_lock(None).await?)
        };
        let context = Arc::clone(context);
        tasks.add(tokio::spawn(async move {
            let kept = match lock {
                Some(lock) => claimant.keep_lock(lock, &mut stopping).await,
                None => claimant.keep_row(&context, &mut stopping).await,
            };
            if let Err(by) = kept {
                taken_over_sender
                    .send_replace(Some(InstanceIdTakenOver { instance: claimant.instance_id().into(), by }));
            }
            // Fails if the store was dropped meanwhile.
            let _ = stopped_sender.send(true);
        }));
        Ok(Self { taken_over, stop, stopped })
    }

    /// Waits until another process has the instance id. Cancel-safe.
    pub(crate) async fn taken_over(&self) -> InstanceIdTakenOver {
        let mut receiver = self.taken_over.clone();
        let taken_over = receiver.wait_for(Option::is_some).await.ok().and_then(|value| value.clone());
        match taken_over {
            Some(taken_over) => taken_over,
            None => std::future::pending().await,
        }
    }

    /// Releases the instance id, and waits for that at most [`RELEASE_WAIT_MAX`]: it is released with the connection anyway.
    pub(crate) async fn release(&self, handle: &Handle) {
        self.stop.send_replace(true);
        let mut stopped = self.stopped.clone();
        let waited = handle.spawn(async move {
            tokio::time::timeout(RELEASE_WAIT_MAX, stopped.wait_for(|stopped| *stopped)).await.is_ok()
        });
        // The close continues whether or not the instance id was released in time.
        let _ = waited.await;
    }
}

async fn generate_session_id(context: &StoreContext) -> StatementResult<Uuid> {
    let rows = context.service_session().await?.query("SELECT gen_random_uuid()", &[]).await?;
    rows.first().map_or_else(|| Err(broken("gen_random_uuid() returned no row")), |row| get(row, 0))
}
