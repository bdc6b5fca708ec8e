//! The tasks behind the wake-ups: one sends NOTIFY, one LISTENs, one repeats the wake-ups of writers in SQL. A notifying commit takes a lock of the
//! whole server, so wake-ups are coalesced: the first is sent at once, those of the next few milliseconds as one.
use std::sync::Arc;

use ports::partitions::wake::{SQL_WAKE_UP_COVERS, WakeUpSet, format_wake_ups};
use tokio_postgres::types::Type;

use crate::connection::background_tasks::BackgroundTasks;
use crate::connection::connector::Connector;
use crate::connection::sql_value::SqlValue;
use crate::store::context::StoreContext;
use crate::wake::wake_listener::WakeListener;

/// Most wake-ups in one notification: 1,000, because the server takes less than 8,000 bytes.
const WAKE_UPS_MAX: usize = 1_000;

/// The wake-ups to send and those received.
#[derive(Clone)]
pub(crate) struct WakeTasks {
    /// `None` if wake-ups are disabled.
    pub(crate) outgoing: Option<Arc<WakeUpSet>>,
    pub(crate) incoming: Arc<WakeUpSet>,
}

impl WakeTasks {
    /// Sends and receives nothing.
    pub(crate) fn disabled() -> Self {
        Self { outgoing: None, incoming: Arc::default() }
    }

    /// Starts the tasks that send, listen and repeat.
    pub(crate) fn start(connector: &Connector, context: &Arc<StoreContext>, tasks: &BackgroundTasks) -> Self {
        let (outgoing, incoming) = (Arc::<WakeUpSet>::default(), Arc::<WakeUpSet>::default());
        tasks.add(tokio::spawn(send(Arc::clone(context), Arc::clone(&outgoing))));
        let later = Arc::<WakeUpSet>::default();
        tasks.add(tokio::spawn(repeat_wake_ups(Arc::clone(&later), Arc::clone(&incoming))));
        let listener = WakeListener {
            connector: connector.clone(),
            context: Arc::clone(context),
            channel: channel(context),
            incoming: Arc::clone(&incoming),
            later,
        };
        tasks.add(tokio::spawn(listener.run()));
        Self { outgoing: Some(outgoing), incoming }
    }
}

/// The channel's name contains the installation's id, because two installations may share a database.
fn channel(context: &StoreContext) -> String {
    format!("posthaste_{}", context.installation.replace('-', "_"))
}

async fn send(context: Arc<StoreContext>, outgoing: Arc<WakeUpSet>) {
    let channel = channel(&context);
    loop {
        let wake_ups = outgoing.take().await;
        for chunk in wake_ups.chunks(WAKE_UPS_MAX) {
            let text = format_wake_ups(&context.options.instance, chunk);
            let values: [SqlValue<'_>; 2] = [(&channel, Type::TEXT), (&text, Type::TEXT)];
            let sent = async { context.relay_session().await?.execute("SELECT pg_notify($1, $2)", &values).await };
            // A lost wake-up only delays: the other instances poll.
            let _ = sent.await;
        }
        tokio::time::sleep(context.options.notify_interval).await;
    }
}

/// Repeats each wake-up of a writer in SQL after [`SQL_WAKE_UP_COVERS`]: until then, other writers in SQL send none for the same partition.
async fn repeat_wake_ups(later: Arc<WakeUpSet>, incoming: Arc<WakeUpSet>) {
    loop {
        let wake_ups = later.take().await;
        tokio::time::sleep(SQL_WAKE_UP_COVERS).await;
        incoming.add(wake_ups);
    }
}
