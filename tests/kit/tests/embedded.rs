//! Every suite passes on the embedded adapter, with its writer inline, as in simulations, and on a thread, as in services.
use std::sync::Arc;
use std::time::Duration;

use embedded::{BrokerProbe, Embedded, Options, StoreProbe, WriterMode};
use kit::wait::scaled;
use kit::{Backend, TestClock, conformance_suite};
use memory::Memory;
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
use ports::partitions::{InstanceId, PartitionLeases};
use ports::probe::Probe;
use ports::rate_limit::RateLimiter;
use rusqlite::Connection;
use tempfile::TempDir;

struct Store {
    store: Embedded,
    memory: Memory,
    clock: TestClock,
    folder: TempDir,
}

impl Store {
    fn open(writing: WriterMode) -> Self {
        let folder = tempfile::tempdir().expect("a folder is created");
        let clock = TestClock::default();
        let mut options = Options::new(folder.path(), InstanceId("kit".into()), Arc::new(clock.clone()));
        options.writer_mode = writing;
        options.close_timeout = scaled(options.close_timeout);
        let store = Embedded::open(options).expect("a store opens in an empty folder");
        let memory = Memory::new(&memory::Options::default(), Arc::new(clock.clone()));
        Self { store, memory, clock, folder }
    }

    /// A connection to the store's file without its port.
    fn file(&self) -> Connection {
        let file = Connection::open(self.folder.path().join("posthaste.db")).expect("the file exists");
        file.busy_timeout(Duration::from_secs(5)).expect("a setting");
        file
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
            fn events(&self) -> Arc<dyn EventStore> {
                Arc::new(self.0.store.clone())
            }
            fn operators(&self) -> Arc<dyn OutboxOperators> {
                Arc::new(self.0.store.clone())
            }
            fn redrives(&self) -> Arc<dyn RedriveLedger> {
                Arc::new(self.0.store.clone())
            }
            fn webhooks(&self) -> Arc<dyn WebhookStore> {
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
            async fn audits(&self) -> Vec<Audit> {
                let file = self.0.file();
                let mut audits =
                    file.prepare("SELECT operator, reason FROM outbox_audit ORDER BY id").expect("the table exists");
                let audit = |row: &rusqlite::Row<'_>| Ok(Audit { operator: row.get(0)?, reason: row.get(1)? });
                audits.query_map([], audit).expect("a query").collect::<Result<_, _>>().expect("audit rows")
            }
            async fn delete_payload(&self, row: RowId) {
                let lost = self.0.file().execute("UPDATE outbox_event SET payload = NULL WHERE id = ?1", [row]);
                assert_eq!(lost.expect("an event can be changed"), 1);
            }
            async fn disconnect(&self) {
                self.0.store.close().await.expect("the store closes");
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
            conformance_suite!(events, $backend);
            conformance_suite!(operators, $backend);
            conformance_suite!(redrives, $backend);
            conformance_suite!(webhooks, $backend);
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
