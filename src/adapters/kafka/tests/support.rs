//! The broker under test, and a fresh installation for each test.
pub mod acls;
pub mod listeners;
pub mod log_reports;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka::{DeliveryGuarantee, Kafka, Options};
use kit::wait::{scaled, until, until_accepted, until_answered};
use kit::{Factory, TestClock};
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::topics::{TopicReader, TopicView};
use ports::broker::{Batch, Broker, Position, PublishOutcome, Record};
use ports::outbox::RowId;
use ports::partitions::{InstanceId, PartitionNo, ProducerSessionId, Token};
use ports::{Error, FaultClass};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};

/// Environment variable with the bootstrap servers of a real broker.
const KAFKA: &str = "POSTHASTE_TEST_KAFKA";
/// The outbox partitions that most tests use.
pub const P0: PartitionNo = PartitionNo(0);
pub const P1: PartitionNo = PartitionNo(1);
pub const P2: PartitionNo = PartitionNo(2);
/// A lease that does not expire during a test.
pub const HOUR: Duration = Duration::from_secs(3_600);
/// Longest time that any step of a test may take, also on a machine that is busy with other tests.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// The bootstrap servers of the real broker.
pub fn servers() -> String {
    std::env::var(KAFKA).unwrap_or_else(|_| panic!("{KAFKA} names no broker: run `make services`, or `make test`"))
}

/// Options of a new installation on the shared broker: with a prefix of its own.
pub fn options(servers: &str, clock: &TestClock) -> Options {
    let id = uuid::Uuid::new_v4().to_string();
    let mut options = Options::new(servers, id.as_str(), InstanceId("kit".into()), Arc::new(clock.clone()));
    options.topic_prefix = format!("t{}.", &id[..8]);
    // Few, because the broker holds the topics of all running tests.
    options.topic_partitions = 2;
    options.partitions = 4;
    // Tests write records with old timestamps.
    options.retention = Some(Duration::from_secs(100 * 365 * 24 * 3600));
    // A broker that is paused for longer than the product waits for it would fail tests of something else.
    for limit in [&mut options.delivery_timeout, &mut options.connect_timeout, &mut options.transaction_timeout] {
        *limit = scaled(*limit);
    }
    options
}

/// An adapter whose topics exist.
pub async fn opened(options: Options) -> Kafka {
    let kafka = Kafka::open(options).expect("the options are legal");
    until_answered(TIMEOUT, || kafka.ensure_topics(&[])).await.expect("the topics are made");
    kafka
}

/// Deletes an installation's topics when its test ends: a broker with the topics of a hundred runs stops responding.
pub struct TopicCleanup(Vec<String>);

impl TopicCleanup {
    /// Deletes the topics of this installation when dropped.
    pub fn after(kafka: &Kafka) -> Self {
        Self(kafka.options().all_topics())
    }
}

impl Drop for TopicCleanup {
    fn drop(&mut self) {
        let topics = std::mem::take(&mut self.0);
        // The test's runtime may be blocked or gone, so the cleanup runs in its own.
        let cleanup = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be built");
            let names: Vec<&str> = topics.iter().map(String::as_str).collect();
            // Remaining topics cost the broker some memory and change no test result.
            drop(runtime.block_on(admin().delete_topics(&names, &AdminOptions::new())));
        });
        drop(cleanup.join());
    }
}

/// An installation with an open adapter, and a factory for records.
pub struct Installation {
    pub kafka: Kafka,
    pub factory: Factory,
    _cleanup: Option<TopicCleanup>,
}

impl Installation {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let mut options = options(&servers(), &TestClock::default());
        change(&mut options);
        Self::of(opened(options).await)
    }

    /// An installation with an event topic that takes batches of at most 3,000 bytes. The topic is created so, because a broker applies a
    /// change of the limit later than it reports it.
    pub async fn with_small_batches(guarantee: DeliveryGuarantee) -> Self {
        let options = Options { guarantee, ..options(&servers(), &TestClock::default()) };
        let settings = [("max.message.bytes", "3000"), ("retention.ms", "-1")];
        create_topic(&options.topic("order.events"), options.topic_partitions as i32, &settings).await;
        Self::of(opened(options).await)
    }

    pub fn of(kafka: Kafka) -> Self {
        let cleanup = Some(TopicCleanup::after(&kafka));
        Self { _cleanup: cleanup, ..Self::without_cleanup(kafka) }
    }

    /// An installation whose topics another value deletes.
    fn without_cleanup(kafka: Kafka) -> Self {
        let factory = Factory::seeded(1, kafka.options().topic("order.events").into());
        Self { kafka, factory, _cleanup: None }
    }

    /// Another instance of the same installation, connected without a proxy.
    pub async fn other_instance(&self, guarantee: DeliveryGuarantee) -> Installation {
        let mut options = self.kafka.options().clone();
        (options.bootstrap_servers, options.guarantee) = (servers(), guarantee);
        options.instance = InstanceId("other".into());
        Self::without_cleanup(opened(options).await)
    }

    /// A new session of this slot. A busy broker may need longer than the product waits for the leaders of new topics.
    pub async fn session(&self, slot: u32) -> ProducerSessionId {
        until_answered(TIMEOUT, || self.kafka.open_session(slot)).await.expect("the session opens")
    }

    pub fn records(&self, keys_and_values: &[(&str, &str)]) -> Vec<Record> {
        keys_and_values.iter().map(|(key, value)| self.factory.record(key, value)).collect()
    }

    pub async fn publish(&self, session: &ProducerSessionId, batch: Batch) -> PublishOutcome {
        self.kafka.publish(session, batch).await
    }

    /// The result of a batch. Publishes it again after an abort for a reason that passes by itself, as that of a broker that was too slow.
    pub async fn result(&self, session: &ProducerSessionId, batch: Batch) -> PublishOutcome {
        let started = Instant::now();
        loop {
            let result = self.publish(session, batch.clone()).await;
            if !is_aborted_for_now(&result) || started.elapsed() > scaled(TIMEOUT) {
                return result;
            }
        }
    }

    /// Publishes a batch, as [`Self::result`] does.
    pub async fn committed(&self, session: &ProducerSessionId, mut batch: Batch) {
        let started = Instant::now();
        loop {
            match self.result(session, batch.clone()).await {
                PublishOutcome::Committed(_) => return,
                // At least once, the records of a partition wait alone if its leader begins later than those of the others.
                PublishOutcome::Partial { sent, refused }
                    if refused.iter().all(may_pass) && started.elapsed() < scaled(TIMEOUT) =>
                {
                    batch.records.retain(|(row, _)| sent.iter().all(|(other, _)| other != row));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// The result of an append. Repeats the call after an error that says that the broker was too slow and has stored no record.
    pub async fn append_result(&self, records: Vec<Record>) -> Result<Vec<Position>, Error> {
        until_accepted(TIMEOUT, || self.kafka.append(records.clone())).await
    }

    /// Appends records, as [`Self::append_result`] does.
    pub async fn append(&self, records: Vec<Record>) -> Vec<Position> {
        self.append_result(records).await.expect("the records are appended")
    }

    pub async fn fence(&self, session: &ProducerSessionId) {
        until_answered(TIMEOUT, || self.kafka.fence(session)).await.expect("the session is fenced");
    }

    /// The topics of the installation.
    pub async fn topics(&self) -> Vec<TopicView> {
        until_answered(TIMEOUT, || self.kafka.list()).await.expect("topics are listed")
    }

    /// The committed records of a topic partition.
    pub async fn read(&self, topic: &str, partition: u32) -> Vec<ConsumerRecord> {
        until_answered(TIMEOUT, || self.kafka.read(topic, partition, 0, 10_000)).await.expect("the partition is read")
    }

    /// The watermark once every transaction of this session is decided.
    pub async fn watermark(&self, session: &ProducerSessionId, partition: PartitionNo) -> Option<Token> {
        let read = || self.kafka.watermark(partition, Some(session));
        until_answered(TIMEOUT, read).await.expect("the watermark is read")
    }

    /// The watermark as an acquisition without an open batch reads it.
    pub async fn present_watermark(&self, partition: PartitionNo) -> Option<Token> {
        let read = || self.kafka.watermark(partition, None);
        until_answered(TIMEOUT, read).await.expect("the watermark is read")
    }

    /// Fences every session of the installation; returns the watermarks.
    pub async fn fence_all(&self) -> BTreeMap<PartitionNo, Token> {
        until_answered(TIMEOUT, || self.kafka.fence_all()).await.expect("all sessions are fenced")
    }

    /// The committed values in the event topic, by key and in order, once no transaction is open in it.
    pub async fn by_key(&self) -> BTreeMap<String, Vec<String>> {
        settle(&[self.kafka.options().topic("order.events")]);
        self.present_by_key().await
    }

    /// The values in the event topic up to the first open transaction, by key and in order.
    pub async fn present_by_key(&self) -> BTreeMap<String, Vec<String>> {
        let topic = self.kafka.options().topic("order.events");
        let views = self.topics().await;
        let view = views.iter().find(|view| view.name == topic).expect("the topic exists");
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for partition in 0..view.partitions.len() as u32 {
            for message in self.read(&topic, partition).await {
                let value = String::from_utf8_lossy(&message.record.value).into_owned();
                found.entry(message.record.key.to_string()).or_default().push(value);
            }
        }
        found
    }

    /// The committed values of all keys, sorted.
    pub async fn values(&self) -> Vec<String> {
        let mut values: Vec<String> = self.by_key().await.into_values().flatten().collect();
        values.sort();
        values
    }

    /// Changes a setting of the event topic. The broker applies it later: a caller repeats what it waits for.
    pub async fn set(&self, name: &str, value: &str) {
        let topic = self.kafka.options().topic("order.events");
        let change = AlterConfig::new(ResourceSpecifier::Topic(&topic)).set(name, value);
        let altered = admin().alter_configs(&[change], &AdminOptions::new()).await.expect("altered");
        altered[0].as_ref().expect("altered");
    }
}

/// Whether the error of a record passes by itself.
fn may_pass((_, error): &(RowId, Error)) -> bool {
    error.fault() == FaultClass::Transient
}

/// Whether a batch was aborted for a reason that passes by itself. It may be published again under its token.
pub fn is_aborted_for_now(result: &PublishOutcome) -> bool {
    match result {
        PublishOutcome::RowsRefused(refused) => refused.iter().all(may_pass),
        PublishOutcome::Aborted { cause, .. } => cause.error.fault() != FaultClass::Permanent,
        _ => false,
    }
}

/// Waits until the transactions that are open in a topic have ended. The coordinator acknowledges a commit before it writes the markers that
/// make the records visible. Blocks.
///
/// # Panics
/// When a transaction stays open.
pub fn settle(topics: &[String]) {
    let consumer = |isolation| {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", servers()).set("group.id", "none").set("isolation.level", isolation);
        config.create::<BaseConsumer>().expect("a consumer")
    };
    let (all, stable) = (consumer("read_uncommitted"), consumer("read_committed"));
    for topic in topics {
        let partitions = until("the partitions of the topic", TIMEOUT, || {
            let metadata = all.fetch_metadata(Some(topic), TIMEOUT).ok()?;
            let ids = metadata.topics().iter().flat_map(|topic| topic.partitions()).map(|partition| partition.id());
            Some(ids.collect::<Vec<_>>()).filter(|ids| !ids.is_empty())
        });
        for partition in partitions {
            let end = |consumer: &BaseConsumer| Some(consumer.fetch_watermarks(topic, partition, TIMEOUT).ok()?.1);
            let high = until("the end of the partition", TIMEOUT, || end(&all));
            until("no transaction is open", TIMEOUT, || end(&stable).filter(|stable| *stable >= high));
        }
    }
}

/// The transactional id of a session.
pub fn transactional_id(session: &ProducerSessionId) -> &str {
    session.0.rsplit_once('#').expect("the id of a session with transactions").0
}

/// The partition of the watermark topic that a session writes to.
pub fn watermark_partition(session: &ProducerSessionId) -> i32 {
    let (_, partition) = session.0.rsplit_once('@').expect("the id names the partition");
    partition.parse().expect("a partition")
}

/// A batch of these records. Row ids count from the token times 1,000.
pub fn batch(partition: PartitionNo, token: Token, records: Vec<Record>) -> Batch {
    let rows = (1..).zip(records).map(|(at, record)| (token as i64 * 1_000 + at, record));
    Batch { partition, token, records: rows.collect(), time_left: HOUR, expected_batches: 0 }
}

pub fn admin() -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", servers()).create().expect("a client")
}

/// Deletes a topic, which a running adapter may create again at once.
pub async fn request_deletion(name: &str) {
    admin().delete_topics(&[name], &AdminOptions::new()).await.expect("deleted");
}

/// Deletes a topic, and waits until the broker lists it no more.
pub async fn delete_topic(name: &str) {
    let (admin, started) = (admin(), Instant::now());
    request_deletion(name).await;
    let is_listed = || {
        let metadata = admin.inner().fetch_metadata(None, TIMEOUT).expect("the broker answers");
        metadata.topics().iter().any(|topic| topic.name() == name)
    };
    while is_listed() {
        assert!(started.elapsed() < scaled(TIMEOUT), "{name} is still listed");
    }
}

/// Creates a topic without the adapter, and waits until the broker lists it with its leaders, and without records of a deleted topic of this
/// name.
pub async fn create_topic(name: &str, partitions: i32, settings: &[(&str, &str)]) {
    let new = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    let new = settings.iter().fold(new, |new, (key, value)| new.set(key, value));
    let created = admin().create_topics(&[new], &AdminOptions::new()).await.expect("created");
    created[0].as_ref().expect("created");
    until_empty(name, partitions).await;
}

/// Waits until the broker lists a new topic with its leaders, and without records of a deleted topic of this name.
pub async fn until_empty(name: &str, partitions: i32) {
    let (admin, started) = (admin(), Instant::now());
    loop {
        let metadata = admin.inner().fetch_metadata(Some(name), TIMEOUT).expect("the broker answers");
        let [topic] = metadata.topics() else { panic!("one topic was requested") };
        let has_leaders = topic.partitions().iter().all(|partition| partition.leader() >= 0);
        let is_complete = topic.error().is_none() && has_leaders && topic.partitions().len() == partitions as usize;
        let is_empty = |partition| matches!(admin.inner().fetch_watermarks(name, partition, TIMEOUT), Ok((0, 0)));
        if is_complete && (0..partitions).all(is_empty) {
            return;
        }
        assert!(started.elapsed() < scaled(TIMEOUT), "{name} is not listed");
    }
}

/// A text of this length that compresses badly.
pub fn noise(length: usize) -> String {
    let mut text = String::new();
    while text.len() < length {
        text.push_str(&uuid::Uuid::new_v4().simple().to_string());
    }
    text.truncate(length);
    text
}
