//! The interface of the program that the bench measures; the composition root implements it.
#![allow(async_fn_in_trait, reason = "every implementation runs on the one thread of the bench's actix system")]
use std::path::Path;
use std::sync::Arc;

use app::commands;
use app::operators::outbox::OutboxOperations;
use ports::broker::Broker;
use ports::broker::consumer_groups::ConsumerGroups;
use ports::broker::topics::TopicReader;
use ports::clock::{Clock, Rng};
use ports::inbox::Inbox;
use ports::orders::OrderStore;
use ports::outbox::OutboxStore;
use ports::partitions::PartitionLeases;
use serde_json::Value;
use tokio::process::Command;

use crate::error::Error;

/// Whether the throwaway data include the configured broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerUse {
    /// Topics on the configured broker.
    Configured,
    /// No topics outside the store: the embedded store's own log, or none.
    StoreOnly,
}

/// A transaction on PostgreSQL that stays open during a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionKind {
    /// It has written a table of another application.
    UnrelatedWriter,
    /// It has written an event and its outbox row.
    OutboxWriter,
    /// It has read under REPEATABLE READ.
    SnapshotReader,
}

/// The program under measurement, with its configured backends.
pub trait Program {
    /// Data that only one measurement uses.
    type Data: ThrowawayData;

    /// Settings of the program that figures depend on.
    fn settings(&self) -> Value;

    /// Settings of the store's server that figures depend on; an object.
    async fn server_settings(&self) -> Result<Value, Error>;

    /// Whether the store is PostgreSQL, so that pgbench can be compared with it.
    fn has_pgbench(&self) -> bool;

    /// Whether broker and consumers write to the store's own file, so that they belong to what is measured.
    fn store_is_broker(&self) -> bool;

    /// Addresses of the Kafka brokers; `None` where the broker is another one.
    fn kafka_brokers(&self) -> Option<String>;

    /// Creates data on the configured backends.
    async fn create_data(&self, broker: BrokerUse) -> Result<Self::Data, Error>;

    /// Resolves when the operator interrupts the bench.
    async fn interrupted(&self) -> Result<(), Error>;
}

/// A folder, a database and topics that exist for one measurement.
pub trait ThrowawayData {
    /// The opened store, closed by [`OpenStore::close`].
    type Store: OpenStore;

    /// The command that starts the service on these data, on a free port, without rate limit and request log.
    fn service(&self) -> Result<Command, Error>;

    /// A token for the service that [`ThrowawayData::service`] starts.
    fn token(&self, subject: &str, role: &str) -> Result<String, Error>;

    /// The folder, for files of the measurement's own.
    fn folder(&self) -> &Path;

    /// The full name of the event topic.
    fn topic(&self) -> String;

    /// The full name of a topic that is removed with these data.
    fn topic_named(&self, name: &str) -> String;

    /// Number of outbox partitions.
    fn partitions(&self) -> u32;

    /// Largest number of rows of a claim.
    fn batch(&self) -> u32;

    /// Largest number of batches that the relay has in flight.
    fn batches_in_flight(&self) -> usize;

    /// Variables under which PostgreSQL's own programs find the database; `None` where the store is another one.
    fn pgbench_environment(&self) -> Result<Option<Vec<(&'static str, String)>>, Error>;

    /// An open transaction on the store's database; dropped, it is rolled back.
    type HeldTransaction;

    /// Opens a transaction and leaves it open, while the service runs.
    async fn hold(&self, transaction: TransactionKind) -> Result<Self::HeldTransaction, Error>;

    /// A session on the store's database.
    type SqlSession: SqlSession;

    /// Opens a session as a service has one that publishes from SQL; `None` where the store is not PostgreSQL.
    async fn sql_session(&self) -> Result<Option<Self::SqlSession>, Error>;

    /// Opens the store as the only instance.
    async fn open_store(&self, instance: &str) -> Result<Self::Store, Error>;

    /// Opens the store that is its own broker, without relay and consumers; `None` where the store is not a broker.
    async fn open_store_and_broker(&self) -> Result<Option<StoreAndBroker>, Error>;

    /// The options with which orders are turned into outbox rows.
    fn row_options(&self) -> commands::Options;

    /// Time and randomness for the bench's own orders.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Randomness for ids; not for secrets.
    fn rng(&self) -> Arc<dyn Rng>;

    /// The topics, while the service is stopped.
    async fn topics(&self) -> Result<Arc<dyn TopicReader>, Error>;

    /// The operators' queries, also while the service runs.
    async fn operations(&self) -> Result<OutboxOperations, Error>;

    /// Removes the data. The error names what could not be removed.
    async fn remove(self) -> Result<(), Error>;
}

/// A session of a service that writes the database itself.
pub trait SqlSession: 'static {
    /// The schema of the functions that publish.
    fn functions(&self) -> &str;

    /// Executes a script of several statements; each outcome is known, as long as the server runs.
    async fn execute(&mut self, script: &str) -> Result<(), Error>;
}

/// The ports of an opened store.
pub trait OpenStore {
    /// The store's order port.
    fn orders(&self) -> Arc<dyn OrderStore>;

    /// The store's outbox port.
    fn outbox(&self) -> Arc<dyn OutboxStore>;

    /// The store's port of partition leases.
    fn leases(&self) -> Arc<dyn PartitionLeases>;

    /// Closes the store gracefully.
    async fn close(&self);
}

/// A store that is a broker too, as one value for each port.
pub struct StoreAndBroker {
    /// Claims and settles outbox rows.
    pub outbox: Arc<dyn OutboxStore>,
    /// Grants leases of partitions.
    pub leases: Arc<dyn PartitionLeases>,
    /// Records the events that the consumer has processed.
    pub inbox: Arc<dyn Inbox>,
    /// Publishes batches of records.
    pub broker: Arc<dyn Broker>,
    /// Joins consumer groups of the topics.
    pub groups: Arc<dyn ConsumerGroups>,
}
