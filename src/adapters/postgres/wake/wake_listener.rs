//! The connection that LISTENs for the wake-ups of other instances, and opens itself again when it breaks.
use std::fmt::Display;
use std::sync::Arc;

use ports::partitions::wake::{WakeUpSet, is_from_sql, parse_wake_ups};
use telemetry::Metrics;
use tokio_postgres::Notification;

use crate::connection::connector::{Connector, DedicatedConnection};
use crate::connection::retry_backoff::RetryBackoff;
use crate::connection::statement_error::describe;
use crate::store::context::StoreContext;

/// Receives the wake-ups for this instance.
pub(crate) struct WakeListener {
    pub(crate) connector: Connector,
    pub(crate) context: Arc<StoreContext>,
    /// The name to LISTEN to.
    pub(crate) channel: String,
    pub(crate) incoming: Arc<WakeUpSet>,
    /// Wake-ups of writers in SQL, which are repeated later.
    pub(crate) later: Arc<WakeUpSet>,
}

impl WakeListener {
    /// Listens until the task is aborted.
    pub(crate) async fn run(self) {
        let mut state = ListenerState { metrics: self.context.options.metrics.clone(), is_lost: false };
        let mut backoff = RetryBackoff::new();
        loop {
            match self.connect().await {
                Ok(mut connection) => {
                    state.record_up();
                    backoff.reset();
                    // Returns when the connection breaks. Wake-ups until the next LISTEN are lost, and found by polls.
                    let _ = (&mut connection.driver).await;
                    state.record_down("the connection broke");
                }
                Err(error) => state.record_down(error),
            }
            backoff.wait().await;
        }
    }

    async fn connect(&self) -> Result<DedicatedConnection, String> {
        let (incoming, later) = (Arc::clone(&self.incoming), Arc::clone(&self.later));
        let (instance, partitions) = (self.context.options.instance.clone(), self.context.partitions);
        let receive = move |notification: Notification| {
            let wake_ups = parse_wake_ups(notification.payload(), &instance, partitions);
            if is_from_sql(notification.payload()) {
                later.add(wake_ups.iter().copied());
            }
            incoming.add(wake_ups);
        };
        let connection = self.connector.connect_listening("wakes", receive).await.map_err(|error| error.to_string())?;
        let listen = format!("LISTEN {}", self.channel);
        connection.client.batch_execute(&listen).await.map_err(|error| describe(&error))?;
        Ok(connection)
    }
}

/// Whether the listener is up, as the metric and the log show it: the first failure and the recovery.
struct ListenerState {
    metrics: Option<Arc<Metrics>>,
    is_lost: bool,
}

impl ListenerState {
    fn record_up(&mut self) {
        self.set_gauge(1);
        if std::mem::take(&mut self.is_lost) {
            tracing::info!(event = "wake_listener_regained", "the instance listens for wake-ups again");
        }
    }

    fn record_down(&mut self, error: impl Display) {
        self.set_gauge(0);
        if !std::mem::replace(&mut self.is_lost, true) {
            tracing::warn!(
                event = "wake_listener_interrupted",
                %error,
                "the connection that listens for wake-ups failed and is opened again; until then events of other writers wait for the poll: {error}"
            );
        }
    }

    fn set_gauge(&self, value: i64) {
        if let Some(metrics) = &self.metrics {
            metrics.outbox_wake_listener_up.set(value);
        }
    }
}
