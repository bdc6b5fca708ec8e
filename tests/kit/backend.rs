//! What a backend shows the suites: its ports, and a hand on its clock. It implements what it offers and leaves the rest.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::broker::Broker;
use ports::cache::OrderCache;
use ports::idempotency::Idempotency;
use ports::inbox::Inbox;
use ports::operators::{Audit, OutboxOperators};
use ports::orders::OrderStore;
use ports::outbox::{OutboxStore, RowId};
use ports::partitions::PartitionLeases;
use ports::probe::Probe;
use ports::rate_limit::{RateLimitPolicy, RateLimiter};
use ports::redrives::RedriveLedger;
use ports::source::ConsumerGroups;
use ports::topics::TopicReader;
use tokio::runtime::{Builder, Runtime};

/// A backend under test. A case gets one to itself: nothing of another case may show in it.
#[async_trait]
pub trait Backend: Send + Sync + Sized + 'static {
    /// An empty one.
    async fn fresh() -> Self;

    /// Lets the store's clock run on: by setting it, by shifting what is stored into the past, or by waiting.
    async fn advance(&self, by: Duration);

    /// The runtime a case runs in.
    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().expect("a runtime can be built")
    }

    /// How many partitions the outbox has; at least two.
    fn partitions(&self) -> u32 {
        64
    }

    /// A topic that exists, is empty and has at least two partitions.
    fn topic(&self) -> Arc<str> {
        "orders".into()
    }

    /// How long a poll must wait to be sure of what is there; a broker that answers at once needs no time.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    /// Its orders.
    fn orders(&self) -> Arc<dyn OrderStore> {
        not_offered("orders")
    }
    /// Its outbox.
    fn outbox(&self) -> Arc<dyn OutboxStore> {
        not_offered("outbox")
    }
    /// The operators' side of its outbox.
    fn operators(&self) -> Arc<dyn OutboxOperators> {
        not_offered("operators")
    }
    /// Its memory of dead letters that were sent back.
    fn redrives(&self) -> Arc<dyn RedriveLedger> {
        not_offered("redrives")
    }
    /// Its partition leases.
    fn leases(&self) -> Arc<dyn PartitionLeases> {
        not_offered("leases")
    }
    /// Its inbox.
    fn inbox(&self) -> Arc<dyn Inbox> {
        not_offered("inbox")
    }
    /// Its broker.
    fn broker(&self) -> Arc<dyn Broker> {
        not_offered("broker")
    }
    /// Its consumers' side.
    fn sources(&self) -> Arc<dyn ConsumerGroups> {
        not_offered("sources")
    }
    /// The look into its topics.
    fn topics(&self) -> Arc<dyn TopicReader> {
        not_offered("topics")
    }
    /// Its idempotency keys.
    fn idempotency(&self) -> Arc<dyn Idempotency> {
        not_offered("idempotency")
    }
    /// Its cache, large enough for a case and not about to forget.
    fn cache(&self) -> Arc<dyn OrderCache> {
        not_offered("cache")
    }
    /// Its token buckets.
    fn rate_limit(&self) -> Arc<dyn RateLimiter> {
        not_offered("rate_limit")
    }
    /// The probes of its dependencies, all of them well.
    fn probes(&self) -> Vec<Arc<dyn Probe>> {
        not_offered("probes")
    }

    /// What operators left in the audit table, oldest first; `None` where a test cannot look.
    async fn audits(&self) -> Option<Vec<Audit>> {
        None
    }
    /// Loses a row's payload behind the port's back; `false` where a test cannot.
    async fn lose_payload(&self, _row: RowId) -> bool {
        false
    }
    /// Sets a policy aside for a tier and endpoint class; `false` where a test cannot.
    async fn set_policy(&self, _tier: &str, _class: &str, _policy: &RateLimitPolicy) -> bool {
        false
    }
    /// Makes every probed dependency unreachable; `false` where a test cannot.
    async fn cut_off(&self) -> bool {
        false
    }
}

fn not_offered<T>(port: &str) -> T {
    panic!("this backend does not offer {port}: take its suite away, or offer it")
}
