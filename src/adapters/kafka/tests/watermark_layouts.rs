//! The partitions of watermarks: all those of a transactional id are in one partition of the watermark topic, those of earlier versions in
//! the partition with the outbox partition's number.
use std::time::Instant;

use kit::wait::{scaled, until_answered};
use outbox::topics::WATERMARK_TOPIC;
use ports::broker::Broker;
use ports::partitions::{PartitionNo, ProducerSessionId, Token};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::support::{
    Installation, P0, P1, P2, TIMEOUT, batch, create_topic, delete_topic, opened, servers, settle, transactional_id,
    watermark_partition,
};

const P3: PartitionNo = PartitionNo(3);

/// A producer of the test, with its own transactional id.
struct OtherProducer {
    producer: BaseProducer,
    id: String,
}

impl OtherProducer {
    fn new(installation: &Installation, name: &str) -> Self {
        let id = format!("{}-{name}", installation.kafka.options().installation);
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", servers()).set("transactional.id", &id);
        // Much longer than a test: the broker does not abort it by itself meanwhile.
        config.set("transaction.timeout.ms", "600000");
        let producer: BaseProducer = config.create().expect("a producer");
        producer.init_transactions(TIMEOUT).expect("the id is initialised");
        Self { producer, id }
    }

    /// The id of its session as versions before the one with a partition in it wrote it.
    fn old_session(&self) -> ProducerSessionId {
        ProducerSessionId(format!("{}#0123456789abcdef", self.id).into())
    }

    /// Begins a transaction with one event and one watermark for each of these (topic partition, outbox partition, token).
    fn begin(&self, installation: &Installation, watermarks: &[(i32, u32, Token)]) {
        let options = installation.kafka.options();
        let (events, topic) = (options.topic("order.events"), options.topic(WATERMARK_TOPIC));
        self.producer.begin_transaction().expect("begun");
        for (topic_partition, outbox_partition, token) in watermarks {
            let (key, event) = (outbox_partition.to_string(), format!("{outbox_partition}:{token}"));
            let watermark = format!("{token} {}", options.installation);
            let record = BaseRecord::to(&topic).partition(*topic_partition).key(&key).payload(&watermark);
            self.producer.send(record).map_err(|(error, _)| error).expect("sent");
            let record = BaseRecord::to(&events).key(&key).payload(&event);
            self.producer.send(record).map_err(|(error, _)| error).expect("sent");
        }
        self.producer.flush(TIMEOUT).expect("delivered");
    }

    fn commit(&self) {
        self.producer.commit_transaction(TIMEOUT).expect("committed");
    }
}

/// The watermark records of one topic partition: outbox partitions and tokens.
async fn watermarks_in(installation: &Installation, partition: u32) -> Vec<(String, String)> {
    let topic = installation.kafka.options().topic(WATERMARK_TOPIC);
    settle(std::slice::from_ref(&topic));
    let read = installation.read(&topic, partition).await;
    let parts = |message: ports::broker::consumer_groups::ConsumerRecord| {
        let value = String::from_utf8_lossy(&message.record.value).into_owned();
        (message.record.key.to_string(), value.split(' ').next().expect("a token").to_owned())
    };
    let is_watermark = |(key, _): &(String, String)| key.parse::<u32>().is_ok();
    read.into_iter().map(parts).filter(is_watermark).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_writes_all_its_watermarks_to_the_partition_of_its_id() {
    let installation = Installation::new().await;
    let session = installation.session(0).await;
    let own_partition = watermark_partition(&session).unsigned_abs();
    assert_eq!(own_partition, outbox::partition::topic_partition(transactional_id(&session).as_bytes(), 4));

    for partition in [P0, P1, P2, P3] {
        installation.committed(&session, batch(partition, 5, installation.records(&[("a", "1")]))).await;
    }

    let others = [0, 1, 2, 3].into_iter().filter(|partition| *partition != own_partition);
    for partition in others {
        assert_eq!(watermarks_in(&installation, partition).await, []);
    }
    let expected = ["0", "1", "2", "3"].map(|key| (key.to_owned(), "5".to_owned()));
    assert_eq!(watermarks_in(&installation, own_partition).await, expected);
    let next = installation.session(0).await;
    assert_eq!(watermark_partition(&next), watermark_partition(&session), "the id decides, not the session");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_batches_of_the_old_layout_are_resolved_and_the_new_layout_goes_on() {
    let installation = Installation::new().await;
    let old = OtherProducer::new(&installation, "old");
    old.begin(&installation, &[(0, 0, 7), (1, 1, 5)]);
    old.commit();
    // The batches of P2 and P3 are open: nothing of them was committed.
    old.begin(&installation, &[(2, 2, 9), (3, 3, 11)]);
    let session = old.old_session();

    installation.fence(&session).await;

    assert!(old.producer.commit_transaction(TIMEOUT).is_err(), "the old producer is fenced");
    assert_eq!(installation.watermark(&session, P0).await, Some(7), "published");
    assert_eq!(installation.watermark(&session, P1).await, Some(5), "published");
    assert_eq!(installation.watermark(&session, P2).await, None, "not published");
    assert_eq!(installation.watermark(&session, P3).await, None, "not published");
    assert_eq!(installation.values().await, ["0:7", "1:5"]);

    let new = installation.session(0).await;
    for (partition, token) in [(P0, 8), (P2, 10)] {
        let value = format!("{}:{token}", partition.0);
        installation.committed(&new, batch(partition, token, installation.records(&[("a", &value)]))).await;
    }
    installation.fence(&new).await;
    let expected = [(P0, Some(8)), (P1, Some(5)), (P2, Some(10)), (P3, None)];
    for (partition, token) in expected {
        assert_eq!(installation.watermark(&new, partition).await, token, "{partition:?}");
        assert_eq!(installation.present_watermark(partition).await, token, "{partition:?}");
    }
    assert_eq!(installation.values().await, ["0:7", "0:8", "1:5", "2:10"]);
}

/// While instances are replaced one after another, some partitions were last published in the old layout and some in the new one.
#[tokio::test(flavor = "multi_thread")]
async fn watermarks_of_both_layouts_count_at_the_same_time() {
    let installation = Installation::new().await;
    let (old, new) = (OtherProducer::new(&installation, "old"), installation.session(0).await);
    for token in 1..=3 {
        installation.committed(&new, batch(P0, token * 10, installation.records(&[("a", "new")]))).await;
        old.begin(&installation, &[(1, 1, token * 10 + 1), (0, 0, token * 10 + 5)]);
        old.commit();
        let session = old.old_session();
        assert_eq!(installation.watermark(&session, P0).await, Some(token * 10 + 5));
        assert_eq!(installation.watermark(&session, P1).await, Some(token * 10 + 1));
    }
    old.begin(&installation, &[(0, 0, 99)]);
    installation.fence(&old.old_session()).await;
    assert_eq!(installation.watermark(&old.old_session(), P0).await, Some(35), "99 was not published");

    installation.committed(&new, batch(P0, 100, installation.records(&[("a", "new")]))).await;

    assert_eq!(installation.watermark(&new, P0).await, Some(100));
    assert_eq!(installation.watermark(&new, P1).await, Some(31));
}

/// One partition of the watermark topic for all ids: a resolution waits for the other ids' transactions, and only for those.
#[tokio::test(flavor = "multi_thread")]
async fn resolution_waits_for_another_id_that_shares_its_partition() {
    let installation = Installation::with(|options| options.partitions = 1).await;
    let other = OtherProducer::new(&installation, "other");
    other.begin(&installation, &[(0, 3, 9)]);
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;
    installation.fence(&session).await;

    let kafka = installation.kafka.clone();
    let fenced = session.clone();
    let resolution = tokio::spawn(async move {
        let started = Instant::now();
        loop {
            match kafka.watermark(P0, Some(&fenced)).await {
                // It waits for some seconds, which a busy machine may need for what follows.
                Err(_) if started.elapsed() < scaled(TIMEOUT) => {}
                result => return result,
            }
        }
    });
    // An acquisition without an open batch waits for no transaction and no resolution.
    assert_eq!(installation.present_watermark(P0).await, None);
    // The list waits half a second for open transactions.
    installation.topics().await;
    assert!(!resolution.is_finished(), "the last stable offset is still below the batch's watermark");
    other.commit();

    assert_eq!(resolution.await.expect("no panic").expect("read"), Some(1));
    assert_eq!(installation.present_watermark(P3).await, Some(9));
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_that_stays_open_makes_the_resolution_unreachable() {
    let installation = Installation::with(|options| options.partitions = 1).await;
    let other = OtherProducer::new(&installation, "other");
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;
    assert_eq!(installation.watermark(&session, P0).await, Some(1));
    other.begin(&installation, &[(0, 3, 9)]);

    let result = installation.kafka.watermark(P0, Some(&session)).await;

    assert!(matches!(result, Err(ports::Error::Unreachable(_))), "{result:?}");
    other.commit();
    assert_eq!(installation.watermark(&session, P3).await, Some(9));
}

#[tokio::test(flavor = "multi_thread")]
async fn watermarks_of_a_deleted_topic_are_forgotten() {
    let installation = Installation::new().await;
    let session = installation.session(0).await;
    for token in 1..=3 {
        installation.committed(&session, batch(P0, token, installation.records(&[("a", "1")]))).await;
        installation.committed(&session, batch(P1, token, installation.records(&[("b", "1")]))).await;
    }
    assert_eq!(installation.watermark(&session, P0).await, Some(3));
    let topic = installation.kafka.options().topic(WATERMARK_TOPIC);
    delete_topic(&topic).await;
    create_topic(&topic, 4, &[("cleanup.policy", "compact")]).await;
    let ensure = || installation.kafka.ensure_topics(&[]);
    until_answered(TIMEOUT, ensure).await.expect("the topic has its leaders");

    // More records than before, so that only their contents differ.
    let own_partition = watermark_partition(&session);
    let other = OtherProducer::new(&installation, "other");
    for token in 1..=8 {
        other.begin(&installation, &[(own_partition, 0, token)]);
        other.commit();
    }

    assert_eq!(installation.watermark(&session, P0).await, Some(8));
    assert_eq!(installation.present_watermark(P1).await, None);
}

#[tokio::test]
async fn batch_of_a_session_with_another_topic_prefix_is_not_resolved() {
    let former = Installation::new().await;
    let session = former.session(0).await;
    former.committed(&session, batch(P0, 9, former.records(&[("a", "1")]))).await;
    let mut options = former.kafka.options().clone();
    options.topic_prefix = format!("renamed-{}", options.topic_prefix);

    let renamed = Installation::of(opened(options).await);

    until_answered(TIMEOUT, || renamed.kafka.fence(&session)).await.expect("the session is fenced");
    let refused = renamed.kafka.watermark(P0, Some(&session)).await.unwrap_err();
    assert!(refused.to_string().contains("broker.topic_prefix"), "{refused}");
    assert_eq!(renamed.present_watermark(P0).await, None);
    assert_eq!(former.watermark(&session, P0).await, Some(9));
}
