//! A backend that wraps every port of another one and applies one flaw.
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
use tokio::runtime::Runtime;

use crate::backend::Backend;
use crate::broken::broker::{BrokenBroker, BrokenTopics};
use crate::broken::cache::BrokenCache;
use crate::broken::consumer_groups::BrokenConsumerGroups;
use crate::broken::flaw::Flaw;
use crate::broken::idempotency::BrokenIdempotency;
use crate::broken::inbox::BrokenInbox;
use crate::broken::leases::BrokenLeases;
use crate::broken::operators::BrokenOperators;
use crate::broken::operators::webhooks::BrokenWebhooks;
use crate::broken::orders::BrokenOrders;
use crate::broken::outbox::BrokenOutbox;
use crate::broken::outbox::events::BrokenEvents;
use crate::broken::probe::BrokenProbe;
use crate::broken::rate_limit::BrokenRateLimit;
use crate::broken::redrives::BrokenRedrives;

tokio::task_local! {
    /// The flaw of the backends created in this task: a suite creates its backends itself and passes no argument.
    pub(crate) static FLAW: Flaw;
}

/// A backend with one flaw.
pub struct BrokenBackend<B> {
    inner: B,
    flaw: Flaw,
}

#[async_trait]
impl<B: Backend> Backend for BrokenBackend<B> {
    async fn fresh() -> Self {
        Self { inner: B::fresh().await, flaw: FLAW.get() }
    }
    async fn advance(&self, by: Duration) {
        self.inner.advance(by).await;
    }
    fn runtime() -> Runtime {
        B::runtime()
    }
    fn partitions(&self) -> u32 {
        self.inner.partitions()
    }
    fn topic(&self) -> Arc<str> {
        self.inner.topic()
    }
    fn settle(&self) {
        self.inner.settle();
    }
    fn poll_timeout(&self) -> Duration {
        self.inner.poll_timeout()
    }
    fn orders(&self) -> Arc<dyn OrderStore> {
        Arc::new(BrokenOrders { inner: self.inner.orders(), flaw: self.flaw })
    }
    fn outbox(&self) -> Arc<dyn OutboxStore> {
        Arc::new(BrokenOutbox { inner: self.inner.outbox(), leases: self.inner.leases(), flaw: self.flaw })
    }
    fn events(&self) -> Arc<dyn EventStore> {
        Arc::new(BrokenEvents { inner: self.inner.events(), flaw: self.flaw })
    }
    fn operators(&self) -> Arc<dyn OutboxOperators> {
        Arc::new(BrokenOperators { inner: self.inner.operators(), flaw: self.flaw })
    }
    fn redrives(&self) -> Arc<dyn RedriveLedger> {
        Arc::new(BrokenRedrives { inner: self.inner.redrives(), flaw: self.flaw })
    }
    fn webhooks(&self) -> Arc<dyn WebhookStore> {
        Arc::new(BrokenWebhooks { inner: self.inner.webhooks(), flaw: self.flaw })
    }
    fn leases(&self) -> Arc<dyn PartitionLeases> {
        Arc::new(BrokenLeases { inner: self.inner.leases(), flaw: self.flaw })
    }
    fn inbox(&self) -> Arc<dyn Inbox> {
        Arc::new(BrokenInbox { inner: self.inner.inbox(), flaw: self.flaw })
    }
    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(BrokenBroker { inner: self.inner.broker(), flaw: self.flaw })
    }
    fn consumer_groups(&self) -> Arc<dyn ConsumerGroups> {
        Arc::new(BrokenConsumerGroups { inner: self.inner.consumer_groups(), flaw: self.flaw })
    }
    fn topics(&self) -> Arc<dyn TopicReader> {
        Arc::new(BrokenTopics { inner: self.inner.topics(), flaw: self.flaw })
    }
    fn idempotency(&self) -> Arc<dyn Idempotency> {
        Arc::new(BrokenIdempotency { inner: self.inner.idempotency(), flaw: self.flaw })
    }
    fn cache(&self) -> Arc<dyn OrderCache> {
        Arc::new(BrokenCache { inner: self.inner.cache(), flaw: self.flaw })
    }
    fn rate_limit(&self) -> Arc<dyn RateLimiter> {
        Arc::new(BrokenRateLimit { inner: self.inner.rate_limit(), flaw: self.flaw })
    }
    fn probes(&self) -> Vec<Arc<dyn Probe>> {
        let broken = |inner| Arc::new(BrokenProbe { inner, flaw: self.flaw }) as Arc<dyn Probe>;
        self.inner.probes().into_iter().map(broken).collect()
    }
    async fn audits(&self) -> Vec<Audit> {
        self.inner.audits().await
    }
    async fn delete_payload(&self, row: RowId) {
        self.inner.delete_payload(row).await;
    }
    async fn disconnect(&self) {
        self.inner.disconnect().await;
    }
}
