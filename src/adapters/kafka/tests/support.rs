//! A broker to test against, and an installation of its own for each case.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka::{Guarantee, Kafka, Options};
use kit::{Factory, TestClock};
use ports::broker::{Batch, Broker, Published, Record};
use ports::partitions::{InstanceId, PartitionNo, ProducerSessionId, Token};
use ports::topics::TopicReader;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;

/// Names the bootstrap servers of a real broker.
const KAFKA: &str = "POSTHASTE_TEST_KAFKA";
/// The partitions most tests use.
pub const P0: PartitionNo = PartitionNo(0);
pub const P1: PartitionNo = PartitionNo(1);
pub const P2: PartitionNo = PartitionNo(2);
/// Short of nothing.
pub const HOUR: Duration = Duration::from_secs(3_600);
/// Longer than anything here may take.
pub const SOON: Duration = Duration::from_secs(30);

/// Where the real broker is.
pub fn servers() -> String {
    std::env::var(KAFKA).unwrap_or_else(|_| panic!("{KAFKA} names no broker: run `make services`, or `make test`"))
}

/// A fresh prefix, and so an installation of its own on the shared broker.
pub fn options(servers: &str, clock: &TestClock) -> Options {
    let id = uuid::Uuid::new_v4().to_string();
    let mut options = Options::new(servers, id.as_str(), InstanceId("kit".into()), Arc::new(clock.clone()));
    options.topic_prefix = format!("t{}.", &id[..8]);
    // Small, because the broker keeps every case's topics.
    options.topic_partitions = 2;
    options.partitions = 4;
    // Cases write records of another year.
    options.retention = Some(Duration::from_secs(100 * 365 * 24 * 3600));
    options
}

/// An adapter whose topics are there.
pub async fn opened(options: Options) -> Kafka {
    let kafka = Kafka::open(options).expect("the options are legal");
    kafka.ensure_topics(&[]).await.expect("the topics are made");
    kafka
}

/// Deletes an installation's topics when its case is over: a broker that keeps those of a hundred runs answers nobody.
pub struct Sweep(Vec<String>);

impl Sweep {
    /// For this installation.
    pub fn after(kafka: &Kafka) -> Self {
        let mut topics = kafka.options().event_topics();
        topics.push(kafka.options().topic("relay-watermarks"));
        Self(topics)
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        let topics = std::mem::take(&mut self.0);
        // A case's runtime may be in use, or gone: the broom has its own.
        let sweep = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be built");
            let names: Vec<&str> = topics.iter().map(String::as_str).collect();
            // What stays costs the broker a little memory, and no case its verdict.
            drop(runtime.block_on(admin().delete_topics(&names, &AdminOptions::new())));
        });
        drop(sweep.join());
    }
}

/// An installation, and what its tests need.
pub struct World {
    pub kafka: Kafka,
    pub make: Factory,
    _sweep: Option<Sweep>,
}

impl World {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let mut options = options(&servers(), &TestClock::default());
        change(&mut options);
        Self::of(opened(options).await)
    }

    pub fn of(kafka: Kafka) -> Self {
        let sweep = Some(Sweep::after(&kafka));
        Self { _sweep: sweep, ..Self::beside(kafka) }
    }

    /// One whose topics are another's.
    fn beside(kafka: Kafka) -> Self {
        let make = Factory::seeded(1, kafka.options().topic("order.events").into());
        Self { kafka, make, _sweep: None }
    }

    /// Another process of the same installation, straight to the broker.
    pub async fn fellow(&self, guarantee: Guarantee) -> World {
        let mut options = self.kafka.options().clone();
        (options.bootstrap_servers, options.guarantee) = (servers(), guarantee);
        options.instance = InstanceId("fellow".into());
        Self::beside(opened(options).await)
    }

    pub async fn lane(&self, slot: u32) -> ProducerSessionId {
        self.kafka.open_session(slot).await.expect("a lane is opened")
    }

    pub fn records(&self, keys_and_values: &[(&str, &str)]) -> Vec<Record> {
        keys_and_values.iter().map(|(key, value)| self.make.record(key, value)).collect()
    }

    pub async fn publish(&self, lane: &ProducerSessionId, batch: Batch) -> Published {
        self.kafka.publish(lane, batch).await
    }

    pub async fn committed(&self, lane: &ProducerSessionId, batch: Batch) {
        let answer = self.publish(lane, batch).await;
        assert!(matches!(answer, Published::Committed(_)), "{answer:?}");
    }

    pub async fn watermark(&self, partition: PartitionNo) -> Option<Token> {
        self.kafka.watermark(partition).await.expect("a watermark is told")
    }

    /// The values that `read_committed` sees in the events' topic, per key in order.
    pub async fn by_key(&self) -> BTreeMap<String, Vec<String>> {
        let topic = self.kafka.options().topic("order.events");
        let views = self.kafka.list().await.expect("topics are listed");
        let view = views.iter().find(|view| view.name == topic).expect("the topic is there");
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (partition, (first, _)) in (0..).zip(&view.partitions) {
            for delivery in self.kafka.read(&topic, partition, *first, 10_000).await.expect("read") {
                let value = String::from_utf8_lossy(&delivery.record.value).into_owned();
                found.entry(delivery.record.key.to_string()).or_default().push(value);
            }
        }
        found
    }

    /// All values, sorted.
    pub async fn values(&self) -> Vec<String> {
        let mut values: Vec<String> = self.by_key().await.into_values().flatten().collect();
        values.sort();
        values
    }

    /// Changes a setting of the events' topic, and waits until the broker goes by it.
    pub async fn set(&self, name: &str, value: &str) {
        let (topic, options, admin) = (self.kafka.options().topic("order.events"), AdminOptions::new(), admin());
        let change = AlterConfig::new(ResourceSpecifier::Topic(&topic)).set(name, value);
        admin.alter_configs(&[change], &options).await.expect("altered")[0].as_ref().expect("altered");
        let begun = Instant::now();
        loop {
            let told = admin.describe_configs(&[ResourceSpecifier::Topic(&topic)], &options).await.expect("described");
            let config = told[0].as_ref().expect("described");
            if config.get(name).and_then(|entry| entry.value.as_deref()) == Some(value) {
                return;
            }
            assert!(begun.elapsed() < SOON, "{name} does not become {value}");
        }
    }
}

/// A batch of so many rows; their ids count from the token's thousands.
pub fn batch(partition: PartitionNo, token: Token, records: Vec<Record>) -> Batch {
    let rows = (1..).zip(records).map(|(at, record)| (token as i64 * 1_000 + at, record));
    Batch { partition, token, records: rows.collect(), time_left: HOUR }
}

pub fn admin() -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", servers()).create().expect("a client")
}

/// Makes a topic as somebody else would.
pub async fn make_topic(name: &str, partitions: i32, settings: &[(&str, &str)]) {
    let new = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    let new = settings.iter().fold(new, |new, (key, value)| new.set(key, value));
    let made = admin().create_topics(&[new], &AdminOptions::new()).await.expect("made");
    made[0].as_ref().expect("made");
}

/// So many characters that no compression makes much smaller.
pub fn noise(length: usize) -> String {
    let mut text = String::new();
    while text.len() < length {
        text.push_str(&uuid::Uuid::new_v4().simple().to_string());
    }
    text.truncate(length);
    text
}
