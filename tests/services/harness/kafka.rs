//! A Kafka client that is independent of the service: reads committed records, appends records and manages topics.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::Timestamp;
use kit::wait::{scaled, until};
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::{Position, Record};
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, AlterConfigsResult, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::{Map, Value, json};

/// Longest duration of one call, and of an open transaction that blocks a reader.
const TIMEOUT: Duration = Duration::from_secs(60);

fn config(servers: &str, isolation: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", servers)
        .set("group.id", "an-independent-reader")
        .set("isolation.level", isolation)
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true");
    config
}

fn consumer(servers: &str, isolation: &str) -> BaseConsumer {
    config(servers, isolation).create().expect("a consumer")
}

fn partitions(consumer: &BaseConsumer, topic: &str) -> Vec<i32> {
    let metadata = until("Kafka describes the topic", TIMEOUT, || consumer.fetch_metadata(Some(topic), TIMEOUT).ok());
    metadata.topics().iter().flat_map(|topic| topic.partitions()).map(|partition| partition.id()).collect()
}

/// Every committed record of a topic, ordered by partition and offset; none when the topic does not exist. First waits until no
/// transaction is open, because a committed read stops before one.
pub fn read(servers: &str, topic: &str) -> Vec<ConsumerRecord> {
    let reader = consumer(servers, "read_committed");
    let partitions = partitions(&reader, topic);
    await_no_open_transaction(servers, topic, &partitions);
    let mut wanted = TopicPartitionList::new();
    for partition in &partitions {
        wanted.add_partition_offset(topic, *partition, Offset::Beginning).expect("a legal offset");
    }
    reader.assign(&wanted).expect("assigned");
    // A reader that fetches an end again reports it again.
    let (mut all, mut ended, started) = (Vec::new(), BTreeSet::new(), Instant::now());
    while ended.len() < partitions.len() {
        assert!(started.elapsed() < scaled(TIMEOUT), "{topic} was not read to its end within {:?}", scaled(TIMEOUT));
        match reader.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => all.push(consumer_record(&message)),
            Some(Err(KafkaError::PartitionEOF(partition))) => drop(ended.insert(partition)),
            // The client retries by itself.
            Some(Err(_)) | None => {}
        }
    }
    all.sort_by_key(|message| (message.position.partition, message.position.offset));
    all
}

fn await_no_open_transaction(servers: &str, topic: &str, partitions: &[i32]) {
    let ends = |isolation: &str| -> Vec<Option<i64>> {
        let consumer = consumer(servers, isolation);
        let end = |partition: &i32| consumer.fetch_watermarks(topic, *partition, TIMEOUT).ok().map(|(_, end)| end);
        partitions.iter().map(end).collect()
    };
    until("no transaction is open", TIMEOUT, || {
        let stable = ends("read_committed");
        (stable.iter().all(Option::is_some) && stable == ends("read_uncommitted")).then_some(())
    });
}

/// The addresses of the brokers, as Kafka states them to its clients.
pub fn brokers(servers: &str) -> Vec<String> {
    let client = consumer(servers, "read_committed");
    let metadata = until("Kafka responds", TIMEOUT, || client.fetch_metadata(None, TIMEOUT).ok());
    metadata.brokers().iter().map(|broker| format!("{}:{}", broker.host(), broker.port())).collect()
}

/// Sets one key of a topic's configuration; all others are reset to their defaults.
pub fn configure(servers: &str, topic: &str, key: &str, value: &str) {
    let admin: AdminClient<DefaultClientContext> = config(servers, "read_committed").create().expect("a client");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let change = AlterConfig::new(ResourceSpecifier::Topic(topic)).set(key, value);
    let is_done = |done: KafkaResult<Vec<AlterConfigsResult>>| done.is_ok_and(|done| done.iter().all(Result::is_ok));
    until("Kafka changes the topic", TIMEOUT, || {
        is_done(runtime.block_on(admin.alter_configs([&change], &AdminOptions::new()))).then_some(())
    });
}

/// Appends these records again, as a producer does that received no reply to its first attempt.
pub fn append_again(servers: &str, records: &[ConsumerRecord]) {
    let producer: BaseProducer = config(servers, "read_committed").create().expect("a producer");
    for ConsumerRecord { record, .. } in records {
        let headers = record.headers.iter().fold(OwnedHeaders::new(), |headers, (name, value)| {
            headers.insert(Header { key: name, value: Some(value) })
        });
        let again = BaseRecord::to(&record.topic).key(&*record.key).payload(&*record.value).headers(headers);
        producer.send(again).unwrap_or_else(|(error, _)| panic!("{error}"));
    }
    producer.flush(TIMEOUT).expect("Kafka accepts them");
}

/// Appends a record as another program would.
pub fn append_record(servers: &str, topic: &str, key: &str, value: &str) {
    let (topic, value) = (Arc::<str>::from(topic), value.as_bytes().into());
    let timestamp = Timestamp::from_millis(0);
    let record = Record { topic: Arc::clone(&topic), key: key.into(), headers: Default::default(), value, timestamp };
    append_again(servers, &[ConsumerRecord { position: Position { topic, partition: 0, offset: 0 }, record }]);
}

fn consumer_record(message: &BorrowedMessage<'_>) -> ConsumerRecord {
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec()).expect("UTF-8");
    let topic: Arc<str> = message.topic().into();
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    let record = Record {
        topic: Arc::clone(&topic),
        key: text(message.key()).into(),
        headers: headers.map(|header| (header.key, header.value.unwrap_or_default())).collect(),
        value: message.payload().unwrap_or_default().into(),
        timestamp: Timestamp::from_millis(message.timestamp().to_millis().unwrap_or_default()),
    };
    let partition = message.partition().try_into().expect("a partition");
    ConsumerRecord {
        position: Position { topic, partition, offset: message.offset().try_into().expect("an offset") },
        record,
    }
}

/// A record in the form of `posthaste topic tail --json`.
pub fn as_json(ConsumerRecord { position, record }: &ConsumerRecord) -> Value {
    let readable = |value: &[u8]| Value::String(String::from_utf8_lossy(value).into_owned());
    let headers: Map<String, Value> =
        record.headers.iter().map(|(name, value)| (name.to_string(), readable(value))).collect();
    json!({
        "topic": *position.topic, "partition": position.partition, "offset": position.offset, "key": *record.key,
        "headers": headers, "value": serde_json::from_slice(&record.value).unwrap_or_else(|_| readable(&record.value)),
    })
}

/// The topics whose names begin with a text; `None` where Kafka does not respond.
pub fn topics(servers: &str, prefix: &str) -> Option<Vec<String>> {
    let metadata = consumer(servers, "read_committed").fetch_metadata(None, TIMEOUT).ok()?;
    let names = metadata.topics().iter().map(|topic| topic.name().to_owned());
    Some(names.filter(|name| name.starts_with(prefix)).collect())
}

/// Deletes every topic with this prefix. Best effort.
pub fn delete_topics(servers: &str, prefix: &str) {
    let admin: AdminClient<DefaultClientContext> = config(servers, "read_committed").create().expect("a client");
    let Some(matching) = topics(servers, prefix) else { return };
    let matching: Vec<&str> = matching.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    // A topic that remains costs the next test only disk space.
    let _ = runtime.block_on(admin.delete_topics(&matching, &AdminOptions::new()));
}
