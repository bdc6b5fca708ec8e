//! The backend of one test on real services: a PostgreSQL database, Kafka topics and a Redis database of its own.
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kit::wait::until;
use ports::broker::consumer_groups::ConsumerRecord;
use serde_json::Value;

use crate::harness::database::Database;
use crate::harness::kafka;
use crate::harness::service_control::{ServiceControl, SharedUse, required_variable};

/// Redis databases that running tests use.
static REDIS_DATABASES: Mutex<BTreeSet<u8>> = Mutex::new(BTreeSet::new());

/// Durable state of a service; outlives its process. Dropped, it is deleted from the services.
pub struct Backend {
    name: String,
    kafka: String,
    redis: String,
    redis_database: u8,
    pub database: Database,
    control: Option<ServiceControl>,
    _shared: Option<SharedUse>,
}

impl Backend {
    /// Longest from the start of the process until it is ready, also after kill -9.
    pub const START_MAX: Duration = Duration::from_secs(20);

    /// Number of partitions of the outbox: fewer than the default, because each one is a partition of the watermark topic in a Kafka that
    /// all tests share.
    pub const PARTITIONS: usize = 16;

    /// For a test that leaves the services running: other tests may run at the same time.
    pub fn new() -> Self {
        Self::build(Some(SharedUse::acquire()), None)
    }

    /// For a test that breaks the services: no other test runs meanwhile.
    pub fn exclusive() -> Self {
        Self::build(None, Some(ServiceControl::acquire()))
    }

    /// A further backend of a test that has one: it relies on that one's use of the services, because a thread that takes the lock twice can
    /// wait for itself.
    pub fn another(&self) -> Self {
        Self::build(None, None)
    }

    fn build(shared: Option<SharedUse>, control: Option<ServiceControl>) -> Self {
        let [postgres, redis, kafka] =
            ["POSTGRES", "REDIS", "KAFKA"].map(|name| required_variable(&format!("POSTHASTE_TEST_{name}")));
        let name = format!("story_{:016x}", rand::random::<u64>());
        let redis_database = reserve_redis_database();
        flush(&redis, redis_database);
        let database = Database::create(&postgres, &name);
        Self { database, name, kafka, redis, redis_database, control, _shared: shared }
    }

    /// Stops and starts the services. Panics unless the backend is exclusive.
    pub fn services(&self) -> &ServiceControl {
        self.control.as_ref().expect("an exclusive backend")
    }

    /// Environment variables of every process that uses this backend. Leases and the open time of the breaker are short, so that tests need
    /// not wait long for a take-over or for the next probe.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let settings = [
            ("POSTHASTE__STORE__KIND", "postgres".to_owned()),
            ("POSTHASTE__STORE__URL", self.database.url()),
            ("POSTHASTE__BROKER__KIND", "kafka".to_owned()),
            ("POSTHASTE__BROKER__BOOTSTRAP_SERVERS", self.kafka.clone()),
            ("POSTHASTE__BROKER__TOPIC_PREFIX", self.topic("")),
            ("POSTHASTE__BROKER__TOPIC_PARTITIONS", "6".to_owned()),
            ("POSTHASTE__CACHE__KIND", "redis".to_owned()),
            ("POSTHASTE__REDIS__URL", self.redis_url(self.redis.trim_start_matches("redis://"))),
            ("POSTHASTE__INSTANCE__ID", "one".to_owned()),
            ("POSTHASTE__OUTBOX__PARTITIONS", Self::PARTITIONS.to_string()),
            ("POSTHASTE__OUTBOX__LEASE", "3s".to_owned()),
            ("POSTHASTE__PARTITIONS__HEARTBEAT", "500ms".to_owned()),
            ("POSTHASTE__PARTITIONS__DEAD_AFTER", "2s".to_owned()),
            ("POSTHASTE__BROKER__BREAKER__OPEN", "2s".to_owned()),
        ];
        settings.into()
    }

    /// Full name of a topic on this backend.
    pub fn topic(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    /// Every record of `order.events`, in the form of `topic tail`, read without the service.
    pub fn events(&self) -> Vec<Value> {
        self.read("order.events").iter().map(kafka::as_json).collect()
    }

    /// Every committed record of a topic.
    pub fn read(&self, topic: &str) -> Vec<ConsumerRecord> {
        kafka::read(&self.kafka, &self.topic(topic))
    }

    /// Sets one key of a topic's configuration.
    pub fn configure(&self, topic: &str, key: &str, value: &str) {
        kafka::configure(&self.kafka, &self.topic(topic), key, value);
    }

    /// Deletes the topics whose names begin with this text, and waits until Kafka has none of them.
    pub fn delete_topics(&self, beginning: &str) {
        let beginning = self.topic(beginning);
        kafka::delete_topics(&self.kafka, &beginning);
        until("the topics are deleted", Duration::from_secs(30), || {
            kafka::topics(&self.kafka, &beginning)?.is_empty().then_some(())
        });
    }

    /// Deletes the topics whose names begin with this text, while a service runs that creates them again.
    pub fn request_deletion(&self, beginning: &str) {
        kafka::delete_topics(&self.kafka, &self.topic(beginning));
    }

    /// Gives every event in the outbox a value that breaks its contract.
    pub fn break_event_values(&self) {
        self.database.rows("UPDATE outbox_event SET payload = '{}'");
    }

    /// Gives the events of a type a content type that no record may have.
    pub fn break_content_types(&self, kind: &str) {
        self.database.rows(&format!("UPDATE outbox_event SET content_type = chr(1) WHERE type = '{kind}'"));
    }

    /// Appends a record as another program would.
    pub fn append_record(&self, topic: &str, key: &str, value: &str) {
        kafka::append_record(&self.kafka, &self.topic(topic), key, value);
    }

    /// Appends records to their topic once more.
    pub fn repeat(&self, records: &[ConsumerRecord]) {
        kafka::append_again(&self.kafka, records);
    }

    /// Sends one inline command to the Redis database and returns the first line of the reply.
    pub fn redis_command(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(host(&self.redis)).expect("Redis listens");
        stream.write_all(format!("SELECT {}\r\n{command}\r\nQUIT\r\n", self.redis_database).as_bytes()).expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("Redis responds");
        reply.lines().nth(1).expect("one reply for each command").to_owned()
    }

    /// The database's address with another host and port.
    pub fn postgres_url(&self, address: &str) -> String {
        let url = self.database.url();
        url.replacen(&host(&url), address, 1)
    }

    /// The Redis database at this host and port.
    pub fn redis_url(&self, address: &str) -> String {
        format!("redis://{address}/{}", self.redis_database)
    }

    /// Host and port of PostgreSQL and of Redis.
    pub fn addresses(&self) -> (String, String) {
        (host(&self.database.url()), host(&self.redis))
    }

    /// Host and port of Kafka.
    pub fn broker_address(&self) -> &str {
        &self.kafka
    }

    /// Empties the Redis database of this backend.
    pub fn flush_redis(&self) {
        flush(&self.redis, self.redis_database);
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        // The services are repaired first, because the clean-up needs them. `control` is dropped last: no other test may break a service
        // before the database is dropped.
        if let Some(control) = &self.control {
            control.restore();
        }
        REDIS_DATABASES.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.redis_database);
        kafka::delete_topics(&self.kafka, &self.topic(""));
    }
}

fn reserve_redis_database() -> u8 {
    let mut reserved = REDIS_DATABASES.lock().unwrap_or_else(PoisonError::into_inner);
    // Redis has 16 databases by default; database 0 stays free for inspection by hand.
    let free = (1..16).find(|database| !reserved.contains(database)).expect("fewer than 15 tests at once");
    reserved.insert(free);
    free
}

/// Best effort: a Redis that is down has no data of a running test.
fn flush(redis: &str, database: u8) {
    let Ok(mut stream) = TcpStream::connect(host(redis)) else { return };
    let sent = stream.write_all(format!("SELECT {database}\r\nFLUSHDB\r\n").as_bytes());
    if sent.is_ok() {
        // Two short replies; it does not matter whether one read returns both.
        let _ = stream.read(&mut [0; 64]);
    }
}

/// Host and port of an address of the form scheme://[user@]host:port[/…].
fn host(url: &str) -> String {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.split('/').next().unwrap_or(rest);
    rest.rsplit('@').next().unwrap_or(rest).to_owned()
}
