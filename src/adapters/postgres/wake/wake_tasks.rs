//! The tasks behind the wake-ups: one sends NOTIFY, one LISTENs, one repeats those of writers in SQL. A notifying commit takes a lock of the whole server, so wake-ups are
//! coalesced: the first is sent at once, those of the next few milliseconds as one.
use std::sync::Arc;
use std::time::Duration;

use ports::partitions::wake::{CoalescedSet, SQL_WAKE_UP_COVERS, format_wake_ups, is_from_sql, parse_wake_ups};
use tokio_postgres::Notification;
use tokio_postgres::types::Type;

use crate::connection::background_tasks::BackgroundTasks;
use crate::connection::connector::Connector;
use crate::connection::sql_value::SqlValue;
use crate::store::context::StoreContext;

/// Most wake-ups in one notification: 1,000, because the server takes less than 8,000 bytes.
const WAKE_UPS_MAX: usize = 1_000;

/// First and longest pause between two attempts to listen again.
const RECONNECT_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The wake-ups to send and those received.
#[derive(Clone)]
pub(crate) struct WakeTasks {
    /// `None` if wake-ups are disabled.
    pub(crate) outgoing: Option<Arc<CoalescedSet>>,
    pub(crate) incoming: Arc<CoalescedSet>,
}

impl WakeTasks {
    /// Sends and receives nothing.
    pub(crate) fn disabled() -> Self {
        Self { outgoing: None, incoming: Arc::default() }
    }

    /// Starts the sending and the listening task.
    pub(crate) fn start(connector: &Connector, context: &Arc<StoreContext>, tasks: &BackgroundTasks) -> Self {
        let (outgoing, incoming) = (Arc::<CoalescedSet>::default(), Arc::<CoalescedSet>::default());
        tasks.add(tokio::spawn(send(Arc::clone(context), Arc::clone(&outgoing))));
        let later = Arc::<CoalescedSet>::default();
        tasks.add(tokio::spawn(repeat(Arc::clone(&later), Arc::clone(&incoming))));
        tasks.add(tokio::spawn(listen(connector.clone(), Arc::clone(context), Arc::clone(&incoming), later)));
        Self { outgoing: Some(outgoing), incoming }
    }
}

/// The channel's name contains the installation's id, because two installations may share a database.
fn channel(context: &StoreContext) -> String {
    format!("posthaste_{}", context.installation.replace('-', "_"))
}

async fn send(context: Arc<StoreContext>, outgoing: Arc<CoalescedSet>) {
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

/// Repeats the wake-ups of writers in SQL when the time is over in which the others send none.
async fn repeat(later: Arc<CoalescedSet>, incoming: Arc<CoalescedSet>) {
    loop {
        let wake_ups = later.take().await;
        tokio::time::sleep(SQL_WAKE_UP_COVERS).await;
        incoming.add(wake_ups);
    }
}

async fn listen(
    connector: Connector,
    context: Arc<StoreContext>,
    incoming: Arc<CoalescedSet>,
    later: Arc<CoalescedSet>,
) {
    let command = format!("LISTEN {}", channel(&context));
    let mut pause = RECONNECT_PAUSES.0;
    loop {
        let (set, instance, partitions) = (Arc::clone(&incoming), context.options.instance.clone(), context.partitions);
        let covers = Arc::clone(&later);
        let receive = move |notification: Notification| {
            let wake_ups = parse_wake_ups(notification.payload(), &instance, partitions);
            if is_from_sql(notification.payload()) {
                covers.add(wake_ups.iter().copied());
            }
            set.add(wake_ups);
        };
        if let Ok(mut connection) = connector.connect_listening("wakes", receive).await
            && connection.client.batch_execute(&command).await.is_ok()
        {
            pause = RECONNECT_PAUSES.0;
            // Returns when the connection breaks. Wake-ups until the next LISTEN are lost, and found by polls.
            let _ = (&mut connection.driver).await;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RECONNECT_PAUSES.1);
    }
}
