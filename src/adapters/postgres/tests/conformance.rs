//! The conformance suite of every port: with sessions of the store's own, and behind a pooler in transaction mode.
use std::sync::Arc;
use std::time::Duration;

use kit::{Backend, conformance_suite};
use ports::endpoint::webhooks::WebhookStore;
use ports::inbox::Inbox;
use ports::operators::redrives::RedriveLedger;
use ports::operators::{Audit, OutboxOperators};
use ports::orders::OrderStore;
use ports::orders::idempotency::Idempotency;
use ports::outbox::events::EventStore;
use ports::outbox::{OutboxStore, RowId};
use ports::partitions::PartitionLeases;
use ports::probe::Probe;
use postgres::{Options, Postgres, PostgresProbe};
use tokio_postgres::Client;

use crate::support::{Database, PARTITIONS, advance, pooled};

struct TestStore {
    store: Postgres,
    client: Client,
    _database: Database,
}

impl TestStore {
    async fn open(pooler: bool) -> Self {
        let database = Database::migrated().await;
        let url = if pooler { pooled(&database.url) } else { database.url.clone() };
        let options = Options { url: url.into(), pooler, ..database.options("kit") };
        let store = Postgres::open(options).await.expect("a migrated database can be opened");
        let client = database.client().await;
        Self { store, client, _database: database }
    }

    async fn audits(&self) -> Vec<Audit> {
        let rows = self
            .client
            .query("SELECT operator, reason FROM outbox_audit ORDER BY id", &[])
            .await
            .expect("audits are read");
        rows.iter().map(|row| Audit { operator: row.get(0), reason: row.get(1) }).collect()
    }
}

macro_rules! backend {
    ($name:ident, $pooler:literal) => {
        struct $name(TestStore);

        #[async_trait::async_trait]
        impl Backend for $name {
            async fn fresh() -> Self {
                Self(TestStore::open($pooler).await)
            }
            async fn advance(&self, by: Duration) {
                advance(&self.0.client, by).await;
            }
            fn partitions(&self) -> u32 {
                PARTITIONS
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
            fn idempotency(&self) -> Arc<dyn Idempotency> {
                Arc::new(self.0.store.clone())
            }
            fn probes(&self) -> Vec<Arc<dyn Probe>> {
                vec![Arc::new(PostgresProbe(self.0.store.clone()))]
            }
            async fn audits(&self) -> Vec<Audit> {
                self.0.audits().await
            }
            async fn delete_payload(&self, row: RowId) {
                let lost = self.0.client.execute("DELETE FROM outbox_event WHERE id = $1", &[&row]).await;
                assert_eq!(lost.expect("an event can be deleted"), 1);
            }
            async fn disconnect(&self) {
                self.0.store.close().await.expect("the store closes");
            }
        }
    };
}

backend!(Sessions, false);
backend!(Pooled, true);

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
            conformance_suite!(idempotency, $backend);
            conformance_suite!(probe, $backend);
        }
    };
}

every_suite!(sessions, Sessions);
every_suite!(pooled, Pooled);
