//! Sweeper: removes expired records in bounded pages from the archive, the idempotency keys, the inbox and the broker's log. It never
//! touches an unsent row.
mod sweep_failures;

use std::sync::Arc;
use std::time::Duration;

use ports::Error;
use ports::broker::Broker;
use ports::inbox::Inbox;
use ports::orders::OrderStore;
use ports::outbox::OutboxStore;
use ports::partitions::{InstanceId, PartitionLeases};
use sweep_failures::SweepFailures;
use tokio::time::Instant;

use crate::system::dependencies::Dependencies;
use crate::system::options::Options;

/// The stores to sweep, and how long each keeps its records.
#[derive(Clone)]
pub struct Sweeper {
    outbox: Arc<dyn OutboxStore>,
    orders: Arc<dyn OrderStore>,
    inbox: Arc<dyn Inbox>,
    broker: Option<Arc<dyn Broker>>,
    archive_retention: Duration,
    key_retention: Duration,
    inbox_retention: Duration,
    page_rows: u32,
    leases: Arc<dyn PartitionLeases>,
    instance: InstanceId,
    failures: Arc<SweepFailures>,
    /// When the sessions of former members are removed the next time.
    next_removal: Option<Instant>,
}

/// The sweeps by name, as log lines and the metric have them.
const SWEEPS: [&str; 5] = ["archive", "keys", "inbox", "log", "sessions"];

/// Time between two rounds that remove the producer sessions of former members, and how many slots a round removes: tens of thousands a day, while
/// each fence takes the broker some milliseconds.
const REMOVAL_INTERVAL: Duration = Duration::from_secs(600);
const REMOVED_SESSIONS_MAX: u32 = 256;

impl Sweeper {
    /// A sweeper of all stores of this instance.
    pub fn new(dependencies: &Dependencies, options: &Options) -> Self {
        Self {
            outbox: Arc::clone(&dependencies.outbox),
            orders: Arc::clone(&dependencies.commands.orders),
            inbox: Arc::clone(&dependencies.inbox),
            broker: dependencies.broker.clone(),
            archive_retention: options.retention,
            key_retention: dependencies.commands.options.key_keep,
            inbox_retention: options.inbox_retention,
            page_rows: options.sweep_page,
            leases: Arc::clone(&dependencies.leases),
            instance: options.instance.clone(),
            failures: Arc::new(SweepFailures::new(Arc::clone(&dependencies.metrics), &SWEEPS)),
            next_removal: None,
        }
    }

    /// The next page of each store, as [`Sweeper::sweep_page`] sweeps it. `is_first`: this instance is the first of the live members, which alone
    /// removes the producer sessions of former members. It does so at most once in [`REMOVAL_INTERVAL`].
    pub fn next_page(&mut self, is_first: bool) -> impl Future<Output = bool> + use<> {
        let now = Instant::now();
        let removes_sessions = is_first && self.next_removal.is_none_or(|next| next <= now);
        if removes_sessions {
            self.next_removal = Some(now + REMOVAL_INTERVAL);
        }
        let sweeper = self.clone();
        async move {
            if removes_sessions {
                sweeper.failures.record("sessions", &sweeper.remove_sessions().await);
            }
            sweeper.sweep_page().await
        }
    }

    /// Removes the producer sessions of former members: otherwise the duration of a fence of all sessions grows with every instance that ever ran.
    /// Does nothing if the store does not list this instance: its list of members may be incomplete.
    async fn remove_sessions(&self) -> Result<(), Error> {
        let Some(broker) = &self.broker else { return Ok(()) };
        let members = self.leases.members().await?;
        if !members.contains(&self.instance) {
            return Ok(());
        }
        let forgotten = broker.remove_sessions(&members, REMOVED_SESSIONS_MAX).await?;
        if forgotten > 0 {
            tracing::info!(
                event = "sessions_forgotten",
                forgotten,
                "{forgotten} producer sessions of instances that are gone were fenced and forgotten"
            );
        }
        Ok(())
    }

    /// Sweeps one page of each store. Returns whether any page was full, so that the next page should follow at once: a sweep must keep up
    /// with the writes.
    async fn sweep_page(self) -> bool {
        let limit = self.page_rows;
        let broker = async {
            match &self.broker {
                Some(broker) => broker.sweep(limit).await,
                None => Ok(0),
            }
        };
        let pages = [
            ("archive", self.outbox.sweep(self.archive_retention, limit).await),
            ("keys", self.orders.sweep_idempotency_records(self.key_retention, limit).await),
            ("inbox", self.inbox.sweep(self.inbox_retention, limit).await),
            ("log", broker.await),
        ];
        let mut full = false;
        for (sweep, result) in pages {
            self.failures.record(sweep, &result);
            full |= result.is_ok_and(|rows| rows >= u64::from(limit));
        }
        full
    }
}
