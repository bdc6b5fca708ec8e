//! The simulated servers pass the conformance suites of their ports: an unintended flaw would hide violations or report false ones.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kit::Backend;
use kit::conformance::suite::SuiteReport;
use kit::conformance::{broker, consumer_groups, events, inbox, orders, outbox, partitions};
use ports::Error;
use ports::broker::Broker;
use ports::broker::consumer_groups::{ConsumerGroups, ConsumerRecord};
use ports::broker::topics::{TopicReader, TopicView};
use ports::inbox::Inbox;
use ports::operators::OutboxOperators;
use ports::orders::OrderStore;
use ports::outbox::events::EventStore;
use ports::outbox::{OutboxStore, RowId};
use ports::partitions::PartitionLeases;
use tokio::task::LocalSet;

use crate::cluster::instance::clock;
use crate::cluster::kafka::broker::{SimulatedKafka, TOPIC_PARTITIONS};
use crate::cluster::kafka::client::KafkaClient;
use crate::cluster::kafka::delivery_guarantee::DeliveryGuarantee;
use crate::cluster::kafka::groups::client::GroupClient;
use crate::cluster::kafka::refusals::Refusals;
use crate::cluster::network::{Network, Server};
use crate::cluster::postgres::client::PostgresClient;
use crate::cluster::postgres::server::SimulatedPostgres;
use crate::cluster::trace::Trace;
use crate::support::process::TOPIC;

/// As many as the reference serves.
const PARTITIONS: u32 = kit::reference::PARTITIONS;
/// Longer than the markers of a transaction need.
const MARKER_TIME: Duration = Duration::from_secs(2);

/// Longer than a member needs to join its group and to receive what a topic has, markers included.
const POLL_TIMEOUT: Duration = Duration::from_secs(4);

/// The servers and the clients of one instance, without faults.
struct SimulatedBackend {
    postgres: SimulatedPostgres,
    kafka: SimulatedKafka,
    store: Arc<PostgresClient>,
    broker: Arc<KafkaClient>,
    groups: Arc<GroupClient>,
}

#[async_trait]
impl Backend for SimulatedBackend {
    async fn fresh() -> Self {
        let trace = Trace::new();
        let network = Network::new(1, trace.clone());
        let kafka = SimulatedKafka::new(network.clone(), None, Refusals::new(1));
        let postgres = SimulatedPostgres::new(PARTITIONS, kafka.clone(), network.clone(), None, trace);
        let store = PostgresClient::new(postgres.clone(), network.link(0, Server::Postgres), 0.0);
        let broker =
            KafkaClient::new(kafka.clone(), network.link(0, Server::Kafka), DeliveryGuarantee::ExactlyOnce, "suite");
        let groups = GroupClient::new(kafka.clone(), network.link(0, Server::Kafka), clock());
        Self { postgres, kafka, store: Arc::new(store), broker: Arc::new(broker), groups: Arc::new(groups) }
    }
    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }
    fn topic(&self) -> Arc<str> {
        TOPIC.into()
    }
    fn partitions(&self) -> u32 {
        PARTITIONS
    }
    fn orders(&self) -> Arc<dyn OrderStore> {
        self.store.clone()
    }
    fn outbox(&self) -> Arc<dyn OutboxStore> {
        self.store.clone()
    }
    fn events(&self) -> Arc<dyn EventStore> {
        self.store.clone()
    }
    fn operators(&self) -> Arc<dyn OutboxOperators> {
        Arc::new(self.postgres.data().clone())
    }
    async fn delete_payload(&self, row: RowId) {
        self.postgres.data().delete_payload(row).await;
    }
    fn leases(&self) -> Arc<dyn PartitionLeases> {
        self.store.clone()
    }
    fn broker(&self) -> Arc<dyn Broker> {
        self.broker.clone()
    }
    fn inbox(&self) -> Arc<dyn Inbox> {
        self.store.clone()
    }
    fn consumer_groups(&self) -> Arc<dyn ConsumerGroups> {
        self.groups.clone()
    }
    fn poll_timeout(&self) -> Duration {
        POLL_TIMEOUT
    }
    fn topics(&self) -> Arc<dyn TopicReader> {
        Arc::new(CommittedRecords(self.kafka.clone()))
    }
}

/// The records that consumers of the simulated Kafka read, once all markers are written.
struct CommittedRecords(SimulatedKafka);

#[async_trait]
impl TopicReader for CommittedRecords {
    async fn list(&self) -> Result<Vec<TopicView>, Error> {
        let partitions = vec![0..u64::from(u32::MAX); TOPIC_PARTITIONS as usize];
        Ok(vec![TopicView { name: TOPIC.to_owned(), partitions }])
    }
    async fn read(&self, topic: &str, partition: u32, offset: u64, limit: u32) -> Result<Vec<ConsumerRecord>, Error> {
        tokio::time::sleep(MARKER_TIME).await;
        let is_wanted = |message: &ConsumerRecord| {
            message.position.partition == partition && message.position.offset >= offset && partition < TOPIC_PARTITIONS
        };
        Ok(self.0.read(topic).into_iter().filter(is_wanted).take(limit as usize).collect())
    }
    async fn group_offsets(&self, _: &str, _: &str) -> Result<Vec<Option<u64>>, Error> {
        Ok(vec![None; TOPIC_PARTITIONS as usize])
    }
}

async fn in_an_instance(suite: impl Future<Output = SuiteReport>) {
    LocalSet::new().run_until(suite).await.assert_green();
}

#[tokio::test(start_paused = true)]
async fn simulated_postgres_passes_the_suites_of_its_ports() {
    in_an_instance(orders::all::<SimulatedBackend>()).await;
    in_an_instance(outbox::all::<SimulatedBackend>()).await;
    in_an_instance(events::all::<SimulatedBackend>()).await;
    in_an_instance(partitions::all::<SimulatedBackend>()).await;
    in_an_instance(inbox::all::<SimulatedBackend>()).await;
}

#[tokio::test(start_paused = true)]
async fn simulated_kafka_passes_the_suites_of_its_ports() {
    in_an_instance(broker::all::<SimulatedBackend>()).await;
    in_an_instance(consumer_groups::all::<SimulatedBackend>()).await;
}
