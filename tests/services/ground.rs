//! What a service of these stories stands on, as in production: a PostgreSQL database, Kafka topics and a Redis database of its own.
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ports::source::Delivery;
use serde_json::Value;

use crate::reader;
use crate::services::{Peace, War, found};
use crate::sql::Database;

/// Redis databases that a story has.
static TAKEN: Mutex<BTreeSet<u8>> = Mutex::new(BTreeSet::new());

/// Where a service keeps what it must not forget; outlives the process. What it costs the services ends with it.
pub struct Ground {
    name: String,
    kafka: String,
    redis: String,
    redis_database: u8,
    pub database: Database,
    war: Option<War>,
    _peace: Option<Peace>,
}

impl Ground {
    /// Longest from the start of the process until it is ready, also after kill -9.
    pub const START_MAX: Duration = Duration::from_secs(10);

    /// Partitions of the outbox: fewer than usual, because each is a watermark's partition in a Kafka that all stories share.
    pub const PARTITIONS: usize = 16;

    /// Beside other stories: the services stay as they are.
    pub fn new() -> Self {
        Self::made(Some(Peace::hold()), None)
    }

    /// Alone with the services, to break them.
    pub fn alone() -> Self {
        Self::made(None, Some(War::declare()))
    }

    fn made(peace: Option<Peace>, war: Option<War>) -> Self {
        let [postgres, redis, kafka] =
            ["POSTGRES", "REDIS", "KAFKA"].map(|name| found(&format!("POSTHASTE_TEST_{name}")));
        let name = format!("story_{:016x}", rand::random::<u64>());
        let redis_database = take_database();
        flush(&redis, redis_database);
        Self { database: Database::create(&postgres, &name), name, kafka, redis, redis_database, war, _peace: peace }
    }

    /// How to break the services under it.
    pub fn war(&self) -> &War {
        self.war.as_ref().expect("a ground that is alone with the services")
    }

    /// The environment of every process on this ground. Leases are short, so that who died is missed soon, and
    /// a broker that was away is tried again soon.
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

    /// A topic's name here.
    pub fn topic(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    /// Every record of `order.events`, in the form of `topic tail`, read without the service.
    pub fn events(&self) -> Vec<Value> {
        self.read("order.events").iter().map(reader::as_json).collect()
    }

    /// Every committed record of a topic.
    pub fn read(&self, topic: &str) -> Vec<Delivery> {
        reader::read(&self.kafka, &self.topic(topic))
    }

    /// Sets one key of a topic's configuration.
    pub fn configure(&self, topic: &str, key: &str, value: &str) {
        reader::configure(&self.kafka, &self.topic(topic), key, value);
    }

    /// Appends a record, as somebody else's program does.
    pub fn put(&self, topic: &str, key: &str, value: &str) {
        reader::put(&self.kafka, &self.topic(topic), key, value);
    }

    /// Appends records to their topic once more.
    pub fn repeat(&self, records: &[Delivery]) {
        reader::repeat(&self.kafka, records);
    }

    /// What our Redis database answers to one command in its inline form.
    pub fn ask_redis(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(host(&self.redis)).expect("Redis answers");
        stream.write_all(format!("SELECT {}\r\n{command}\r\nQUIT\r\n", self.redis_database).as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("Redis answers");
        answer.lines().nth(1).expect("one answer a command").to_owned()
    }

    /// The database's address with another host and port.
    pub fn postgres_url(&self, address: &str) -> String {
        let url = self.database.url();
        url.replacen(&host(&url), address, 1)
    }

    /// Our Redis database at this host and port.
    pub fn redis_url(&self, address: &str) -> String {
        format!("redis://{address}/{}", self.redis_database)
    }

    /// Host and port of PostgreSQL and of Redis.
    pub fn addresses(&self) -> (String, String) {
        (host(&self.database.url()), host(&self.redis))
    }

    /// Empties our Redis database.
    pub fn flush_redis(&self) {
        flush(&self.redis, self.redis_database);
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Mended first, because what follows needs the services; nobody else may break them until the database is gone, too.
        if let Some(war) = &self.war {
            war.mend();
        }
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.redis_database);
        reader::forget(&self.kafka, &self.topic(""));
    }
}

fn take_database() -> u8 {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    // Redis has 16 unless told otherwise; the first is left to whoever looks.
    let free = (1..16).find(|database| !taken.contains(database)).expect("fewer than 15 stories at once");
    taken.insert(free);
    free
}

/// Best effort: a Redis that is away holds nothing that lives.
fn flush(redis: &str, database: u8) {
    let Ok(mut stream) = TcpStream::connect(host(redis)) else { return };
    let done = stream.write_all(format!("SELECT {database}\r\nFLUSHDB\r\n").as_bytes());
    if done.is_ok() {
        // Two short answers; whether they come as one does not matter.
        let _ = stream.read(&mut [0; 64]);
    }
}

/// Host and port of an address of the form scheme://[user@]host:port[/…].
fn host(url: &str) -> String {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.split('/').next().unwrap_or(rest);
    rest.rsplit('@').next().unwrap_or(rest).to_owned()
}
