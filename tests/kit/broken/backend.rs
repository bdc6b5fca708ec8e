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
use ports::rate_limit::{RateLimitPolicy, RateLimiter};
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
    real: B,
    flaw: Flaw,
}

#[async_trait]
impl<B: Backend> Backend for BrokenBackend<B> {
    async fn fresh() -> Self {
        Self { real: B::fresh().await, flaw: FLAW.get() }
    }
    async fn advance(&self, by: Duration) {
        self.real.advance(by).await;
    }
    fn runtime() -> Runtime {
        B::runtime()
    }
    fn partitions(&self) -> u32 {
        self.real.partitions()
    }
    fn topic(&self) -> Arc<str> {
        self.real.topic()
    }
    fn settle(&self) {
        self.real.settle();
    }
    fn poll_timeout(&self) -> Duration {
        self.real.poll_timeout()
    }
    fn orders(&self) -> Arc<dyn OrderStore> {
        Arc::new(BrokenOrders { real: self.real.orders(), flaw: self.flaw })
    }
    fn outbox(&self) -> Arc<dyn OutboxStore> {
        Arc::new(BrokenOutbox { real: self.real.outbox(), leases: self.real.leases(), flaw: self.flaw })
    }
    fn events(&self) -> Arc<dyn EventStore> {
        Arc::new(BrokenEvents { real: self.real.events(), flaw: self.flaw })
    }
    fn operators(&self) -> Arc<dyn OutboxOperators> {
        Arc::new(BrokenOperators { real: self.real.operators(), flaw: self.flaw })
    }
    fn redrives(&self) -> Arc<dyn RedriveLedger> {
        Arc::new(BrokenRedrives { real: self.real.redrives(), flaw: self.flaw })
    }
    fn webhooks(&self) -> Arc<dyn WebhookStore> {
        Arc::new(BrokenWebhooks { real: self.real.webhooks(), flaw: self.flaw })
    }
    fn leases(&self) -> Arc<dyn PartitionLeases> {
        Arc::new(BrokenLeases { real: self.real.leases(), flaw: self.flaw })
    }
    fn inbox(&self) -> Arc<dyn Inbox> {
        Arc::new(BrokenInbox { real: self.real.inbox(), flaw: self.flaw })
    }
    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(BrokenBroker { real: self.real.broker(), flaw: self.flaw })
    }
    fn consumer_groups(&self) -> Arc<dyn ConsumerGroups> {
        Arc::new(BrokenConsumerGroups { real: self.real.consumer_groups(), flaw: self.flaw })
    }
    fn topics(&self) -> Arc<dyn TopicReader> {
        Arc::new(BrokenTopics { real: self.real.topics(), flaw: self.flaw })
    }
    fn idempotency(&self) -> Arc<dyn Idempotency> {
        Arc::new(BrokenIdempotency { real: self.real.idempotency(), flaw: self.flaw })
    }
    fn cache(&self) -> Arc<dyn OrderCache> {
        Arc::new(BrokenCache { real: self.real.cache(), flaw: self.flaw })
    }
    fn rate_limit(&self) -> Arc<dyn RateLimiter> {
        Arc::new(BrokenRateLimit { real: self.real.rate_limit(), flaw: self.flaw })
    }
    fn probes(&self) -> Vec<Arc<dyn Probe>> {
        let broken = |real| Arc::new(BrokenProbe { real, flaw: self.flaw }) as Arc<dyn Probe>;
        self.real.probes().into_iter().map(broken).collect()
    }
    async fn audits(&self) -> Vec<Audit> {
        self.real.audits().await
    }
    async fn lose_payload(&self, row: RowId) {
        self.real.lose_payload(row).await;
    }
    async fn set_policy(&self, tier: &str, class: &str, policy: &RateLimitPolicy) {
        self.real.set_policy(tier, class, policy).await;
    }
    async fn cut_off(&self) {
        self.real.cut_off().await;
    }
}
