//! Sweeper: removes expired records in bounded pages from the archive, the idempotency keys, the inbox and the broker's log. It never
//! touches an unsent row.
use std::sync::Arc;
use std::time::Duration;

use ports::broker::Broker;
use ports::inbox::Inbox;
use ports::orders::OrderStore;
use ports::outbox::OutboxStore;

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
}

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
        }
    }

    /// Sweeps one page of each store. Returns whether any page was full, so that the next page should follow at once: a sweep must keep up
    /// with the writes.
    pub async fn sweep_page(self) -> bool {
        let limit = self.page_rows;
        let broker = async {
            match &self.broker {
                Some(broker) => broker.sweep(limit).await,
                None => Ok(0),
            }
        };
        let pages = [
            ("archive", self.outbox.sweep(self.archive_retention, limit).await),
            ("keys", self.orders.sweep_marks(self.key_retention, limit).await),
            ("inbox", self.inbox.sweep(self.inbox_retention, limit).await),
            ("log", broker.await),
        ];
        let mut full = false;
        for (what, result) in pages {
            match result {
                Ok(rows) => full |= rows >= u64::from(limit),
                Err(error) => {
                    tracing::debug!(event = "sweep_failed", what, error = %error, "a sweep failed and will be repeated")
                }
            }
        }
        full
    }
}
