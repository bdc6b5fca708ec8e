//! A backend in memory that passes every suite: it shows that the suites demand nothing impossible, and broken backends wrap it.
//! It follows the protocol's text and imports no rule of crate `outbox`, so that the two implementations check each other.
//! It is slow, stores nothing on disk and serves one process.
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

use crate::backend::Backend;
use crate::clock::TestClock;

mod broker;
mod cache;
mod claims;
mod consumer_groups;
mod idempotency;
mod inbox;
mod leases;
mod operators;
mod orders;
mod outbox;
mod probe;
mod rate_limit;
mod redrives;
mod server;
mod state;

pub use self::server::ReferenceSnapshot;
pub use self::state::{PARTITIONS, Reference};

#[async_trait]
impl Backend for Reference {
    async fn fresh() -> Self {
        Self::new(TestClock::default())
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn partitions(&self) -> u32 {
        PARTITIONS
    }

    fn orders(&self) -> Arc<dyn OrderStore> {
        Arc::new(self.clone())
    }
    fn outbox(&self) -> Arc<dyn OutboxStore> {
        Arc::new(self.clone())
    }
    fn events(&self) -> Arc<dyn EventStore> {
        Arc::new(self.clone())
    }
    fn operators(&self) -> Arc<dyn OutboxOperators> {
        Arc::new(self.clone())
    }
    fn redrives(&self) -> Arc<dyn RedriveLedger> {
        Arc::new(self.clone())
    }
    fn webhooks(&self) -> Arc<dyn WebhookStore> {
        Arc::new(self.clone())
    }
    fn leases(&self) -> Arc<dyn PartitionLeases> {
        Arc::new(self.clone())
    }
    fn inbox(&self) -> Arc<dyn Inbox> {
        Arc::new(self.clone())
    }
    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(self.clone())
    }
    fn consumer_groups(&self) -> Arc<dyn ConsumerGroups> {
        Arc::new(self.clone())
    }
    fn topics(&self) -> Arc<dyn TopicReader> {
        Arc::new(self.clone())
    }
    fn idempotency(&self) -> Arc<dyn Idempotency> {
        Arc::new(self.clone())
    }
    fn cache(&self) -> Arc<dyn OrderCache> {
        Arc::new(self.clone())
    }
    fn rate_limit(&self) -> Arc<dyn RateLimiter> {
        Arc::new(self.clone())
    }
    fn probes(&self) -> Vec<Arc<dyn Probe>> {
        vec![Arc::new(self.clone())]
    }

    async fn audits(&self) -> Vec<Audit> {
        self.state.lock().audits.iter().map(|entry| entry.audit.clone()).collect()
    }
    async fn delete_payload(&self, row: RowId) {
        let lost = self.state.lock().rows.get_mut(&row).and_then(|row| row.payload.take());
        assert!(lost.is_some(), "row {row} has no payload");
    }
    async fn disconnect(&self) {
        self.state.lock().is_disconnected = true;
    }
}
