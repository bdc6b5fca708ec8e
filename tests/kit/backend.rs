//! The interface of a backend to the suites: its ports, and control of its clock. A backend implements the methods of the ports it offers.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::broker::Broker;
use ports::broker::consumer_groups::ConsumerGroups;
use ports::broker::topics::TopicReader;
use ports::endpoint::webhooks::WebhookStore;
use ports::inbox::Inbox;
use ports::operators::redrives::RedriveLedger;
use ports::operators::{Audit, OutboxOperators};
use ports::orders::OrderStore;
use ports::orders::cache::OrderCache;
use ports::orders::idempotency::Idempotency;
use ports::outbox::events::EventStore;
use ports::outbox::{OutboxStore, RowId};
use ports::partitions::PartitionLeases;
use ports::probe::Probe;
use ports::rate_limit::RateLimiter;
use tokio::runtime::{Builder, Runtime};

/// A backend under test. Each case gets a fresh one: no data of another case may be visible in it.
#[async_trait]
pub trait Backend: Send + Sync + Sized + 'static {
    /// Cases that do not apply to the backend, each with its reason. A run prints them; `tests/tidy/coverage/conformance.rs` lists them all.
    const SKIPPED: &'static [(&'static str, &'static str)] = &[];

    /// A backend without data, for one case.
    async fn fresh() -> Self;

    /// Advances the store's clock: by setting it, by shifting stored times into the past, or by waiting.
    async fn advance(&self, by: Duration);

    /// The tokio runtime that a case runs in.
    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().expect("a runtime can be built")
    }

    /// The number of the outbox's partitions; at least two.
    fn partitions(&self) -> u32 {
        64
    }

    /// A topic that exists, is empty and has at least two partitions.
    fn topic(&self) -> Arc<str> {
        "orders".into()
    }

    /// Blocks until the acknowledged records of all topics are visible to readers: some brokers acknowledge a record before it is visible.
    fn settle(&self) {}

    /// How long a poll waits for messages that exist; zero where the broker delivers them at once, also to a member that has just joined.
    fn poll_timeout(&self) -> Duration {
        Duration::ZERO
    }

    /// The backend's order store.
    fn orders(&self) -> Arc<dyn OrderStore> {
        not_offered("orders")
    }
    /// The backend's outbox, read and written by workers.
    fn outbox(&self) -> Arc<dyn OutboxStore> {
        not_offered("outbox")
    }
    /// The backend's outbox for the events of other services.
    fn events(&self) -> Arc<dyn EventStore> {
        not_offered("events")
    }
    /// The operators' access to the backend's outbox.
    fn operators(&self) -> Arc<dyn OutboxOperators> {
        not_offered("operators")
    }
    /// The ledger of redriven dead letters.
    fn redrives(&self) -> Arc<dyn RedriveLedger> {
        not_offered("redrives")
    }
    /// The backend's store of webhooks and their deliveries.
    fn webhooks(&self) -> Arc<dyn WebhookStore> {
        not_offered("webhooks")
    }
    /// The backend's membership and partition leases.
    fn leases(&self) -> Arc<dyn PartitionLeases> {
        not_offered("leases")
    }
    /// The backend's inbox of consumed events.
    fn inbox(&self) -> Arc<dyn Inbox> {
        not_offered("inbox")
    }
    /// The backend's broker, for publishing.
    fn broker(&self) -> Arc<dyn Broker> {
        not_offered("broker")
    }
    /// The consumer groups of the backend's broker.
    fn consumer_groups(&self) -> Arc<dyn ConsumerGroups> {
        not_offered("consumer_groups")
    }
    /// The reader of the broker's topics.
    fn topics(&self) -> Arc<dyn TopicReader> {
        not_offered("topics")
    }
    /// The backend's store of idempotency keys.
    fn idempotency(&self) -> Arc<dyn Idempotency> {
        not_offered("idempotency")
    }
    /// The backend's cache, large enough that a case causes no eviction.
    fn cache(&self) -> Arc<dyn OrderCache> {
        not_offered("cache")
    }
    /// The backend's rate limiter.
    fn rate_limit(&self) -> Arc<dyn RateLimiter> {
        not_offered("rate_limit")
    }
    /// The probes of the backend's dependencies, all of them healthy.
    fn probes(&self) -> Vec<Arc<dyn Probe>> {
        not_offered("probes")
    }

    /// The audit table, oldest entry first.
    async fn audits(&self) -> Vec<Audit> {
        not_offered("operators")
    }
    /// Deletes a row's payload without the port.
    async fn delete_payload(&self, _row: RowId) {
        not_offered("outbox")
    }
    /// Makes every probed dependency unreachable.
    async fn disconnect(&self) {
        not_offered("probes")
    }
}

fn not_offered<T>(port: &str) -> T {
    panic!("this backend does not offer the port {port}: remove the suite of that port, or implement its methods")
}
