//! Every suite passes on the embedded adapter, with its writer inline, as in simulations, and on a thread, as in services.
use std::sync::Arc;
use std::time::Duration;

use embedded::{BrokerProbe, Embedded, Options, StoreProbe, WriterMode};
use kit::{Backend, TestClock, conformance_suite};
use memory::Memory;
use ports::broker::Broker;
use ports::broker::consumer_groups::ConsumerGroups;
use ports::broker::topics::TopicReader;
use ports::inbox::Inbox;
use ports::operators::OutboxOperators;
use ports::operators::redrives::RedriveLedger;
use ports::orders::OrderStore;
use ports::orders::cache::OrderCache;
use ports::orders::idempotency::Idempotency;
use ports::outbox::OutboxStore;
use ports::partitions::{InstanceId, PartitionLeases};
use ports::probe::Probe;
use ports::rate_limit::RateLimiter;
use tempfile::TempDir;

struct Store {
    store: Embedded,
    memory: Memory,
    clock: TestClock,
    _folder: TempDir,
}

impl Store {
    fn open(writing: WriterMode) -> Self {
        let folder = tempfile::tempdir().expect("a folder is created");
        let clock = TestClock::default();
        let mut options = Options::new(folder.path(), InstanceId("kit".into()), Arc::new(clock.clone()));
        options.writing = writing;
        let store = Embedded::open(options).expect("a store opens in an empty folder");
        let memory = Memory::new(&memory::Options::default(), Arc::new(clock.clone()));
        Self { store, memory, clock, _folder: folder }
    }

    /// Advances the store's clock, and the runtime's clock, which measures a consumer's pause.
    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        tokio::time::pause();
        tokio::time::advance(by).await;
        tokio::time::resume();
    }
}

macro_rules! backend {
    ($name:ident, $writing:expr) => {
        struct $name(Store);

        #[async_trait::async_trait]
        impl Backend for $name {
            async fn fresh() -> Self {
                Self(Store::open($writing))
            }
            async fn advance(&self, by: Duration) {
                self.0.advance(by).await;
            }
            fn partitions(&self) -> u32 {
                self.0.store.partitions()
            }
            fn orders(&self) -> Arc<dyn OrderStore> {
                Arc::new(self.0.store.clone())
            }
            fn outbox(&self) -> Arc<dyn OutboxStore> {
                Arc::new(self.0.store.clone())
            }
            fn operators(&self) -> Arc<dyn OutboxOperators> {
                Arc::new(self.0.store.clone())
            }
            fn redrives(&self) -> Arc<dyn RedriveLedger> {
                Arc::new(self.0.store.clone())
            }
            fn leases(&self) -> Arc<dyn PartitionLeases> {
                Arc::new(self.0.store.clone())
            }
            fn inbox(&self) -> Arc<dyn Inbox> {
                Arc::new(self.0.store.clone())
            }
            fn broker(&self) -> Arc<dyn Broker> {
                Arc::new(self.0.store.clone())
            }
            fn consumer_groups(&self) -> Arc<dyn ConsumerGroups> {
                Arc::new(self.0.store.clone())
            }
            fn topics(&self) -> Arc<dyn TopicReader> {
                Arc::new(self.0.store.clone())
            }
            fn idempotency(&self) -> Arc<dyn Idempotency> {
                Arc::new(self.0.memory.clone())
            }
            fn cache(&self) -> Arc<dyn OrderCache> {
                Arc::new(self.0.memory.clone())
            }
            fn rate_limit(&self) -> Arc<dyn RateLimiter> {
                Arc::new(self.0.memory.clone())
            }
            fn probes(&self) -> Vec<Arc<dyn Probe>> {
                vec![Arc::new(StoreProbe(self.0.store.clone())), Arc::new(BrokerProbe(self.0.store.clone()))]
            }
            async fn cut_off(&self) -> bool {
                self.0.store.close().await.is_ok()
            }
        }
    };
}

backend!(Inline, WriterMode::Inline);
backend!(Threaded, WriterMode::Thread);

macro_rules! every_suite {
    ($mode:ident, $backend:ident) => {
        mod $mode {
            use super::*;
            conformance_suite!(orders, $backend);
            conformance_suite!(outbox, $backend);
            conformance_suite!(operators, $backend);
            conformance_suite!(redrives, $backend);
            conformance_suite!(partitions, $backend);
            conformance_suite!(inbox, $backend);
            conformance_suite!(broker, $backend);
            conformance_suite!(consumer_groups, $backend);
            conformance_suite!(topics, $backend);
            conformance_suite!(idempotency, $backend);
            conformance_suite!(cache, $backend);
            conformance_suite!(rate_limit, $backend);
            conformance_suite!(probe, $backend);
        }
    };
}

every_suite!(inline, Inline);
every_suite!(threaded, Threaded);

#[tokio::test]
async fn every_flaw_around_the_embedded_store_is_detected() {
    let report = kit::broken::check_all_flaws::<Inline>().await;

    assert!(report.undetected.is_empty(), "{report}");
}
