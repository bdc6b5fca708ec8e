//! `examples/consume/rust` on Kafka: each event takes effect once, however often its record comes.
use std::time::Duration;

use kit::wait::scaled;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};

use crate::relay::inbox_consumer::{Consumed, InboxConsumer};
use crate::support::Database;

/// Longest wait for a new group to receive its partition.
const WAIT_MAX: Duration = Duration::from_secs(60);

fn kafka() -> ClientConfig {
    let servers = std::env::var("POSTHASTE_TEST_KAFKA");
    let mut config = ClientConfig::new();
    config.set(
        "bootstrap.servers",
        servers.expect("POSTHASTE_TEST_KAFKA names a broker: run `make services`, or `make test`"),
    );
    config
}

/// Appends records, each with its key and the id of its event.
fn append(topic: &str, records: &[(&str, Option<&str>)]) {
    let producer: ThreadedProducer<_> = kafka().create().unwrap();
    for (key, event_id) in records {
        let id = event_id.map(|id| OwnedHeaders::new().insert(Header { key: "ce_id", value: Some(id) }));
        let record = BaseRecord::to(topic).key(*key).payload("{}").headers(id.unwrap_or_default());
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(WAIT_MAX).unwrap();
}

/// Consumes until `count` outcomes are `wanted`, and returns those.
async fn consume(consumer: &mut InboxConsumer, count: usize, wanted: fn(&Consumed) -> bool) -> Vec<Consumed> {
    let mut consumed = Vec::new();
    let all = async {
        while consumed.len() < count {
            consumed.extend(consumer.consume_next().await.unwrap().filter(wanted));
        }
    };
    tokio::time::timeout(scaled(WAIT_MAX), all).await.unwrap();
    consumed
}

/// On a busy machine the client may report passing errors before and between the records.
fn is_record(consumed: &Consumed) -> bool {
    !matches!(consumed, Consumed::Interrupted(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn example_applies_each_event_once_and_publishes_what_follows() {
    let database = Database::own().await;
    let topic = format!("inbox-example-{}", uuid::Uuid::new_v4());
    let admin: AdminClient<DefaultClientContext> = kafka().create().unwrap();
    let one = NewTopic::new(&topic, 1, TopicReplication::Fixed(1));
    admin.create_topics(&[one], &AdminOptions::new()).await.unwrap();
    let servers = kafka().get("bootstrap.servers").unwrap().to_owned();
    append(&topic, &[("ann", Some("e-1")), ("ann", Some("e-1")), ("bob", Some("e-2")), ("bob", None)]);

    let mut consumer = InboxConsumer::open(&servers, &database.url, &topic, &topic).await.unwrap();
    let first = consume(&mut consumer, 4, is_record).await;
    drop(consumer);
    // Another member of the group continues after the acknowledged records, and knows what its predecessor consumed.
    append(&topic, &[("bob", Some("e-2")), ("ann", Some("e-3"))]);
    let mut successor = InboxConsumer::open(&servers, &database.url, &topic, &topic).await.unwrap();
    let second = consume(&mut successor, 2, is_record).await;
    admin.delete_topics(&[&topic], &AdminOptions::new()).await.unwrap();

    assert_eq!(first, [Consumed::New, Consumed::Duplicate, Consumed::New, Consumed::WithoutEventId]);
    assert_eq!(second, [Consumed::Duplicate, Consumed::New]);
    let client = database.client().await;
    let moves = client.query("SELECT customer, moves FROM customer_moves ORDER BY customer", &[]).await.unwrap();
    let moves: Vec<(&str, i64)> = moves.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(moves, [("ann", 2), ("bob", 1)]);
    let events = "SELECT key_text, sequence FROM outbox_event WHERE topic = 'customer.moves' ORDER BY id";
    let events = client.query(events, &[]).await.unwrap();
    let events: Vec<(&str, i64)> = events.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(events, [("ann", 1), ("bob", 1), ("ann", 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn example_continues_after_the_broker_was_unavailable() {
    let database = Database::own().await;
    let mut consumer = InboxConsumer::open("127.0.0.1:1", &database.url, "away", "away").await.unwrap();

    let consumed = consume(&mut consumer, 2, |_| true).await;

    assert!(consumed.iter().all(|one| matches!(one, Consumed::Interrupted(_))), "{consumed:?}");
}
