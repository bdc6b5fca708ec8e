//! A fence of all sessions: those of every instance, with their open transactions, and the watermarks after it.
use std::collections::BTreeMap;
use std::time::Instant;

use kafka::Guarantee;
use outbox::topics::WATERMARK_TOPIC;
use ports::broker::topics::TopicReader;
use ports::broker::{Broker, Published};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::support::{Installation, P0, P1, P2, TIMEOUT, batch, servers, transactional_id, watermark_partition};

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_every_instance_end_and_the_watermarks_are_final() {
    let installation = Installation::new().await;
    let other = installation.other_instance(Guarantee::ExactlyOnce).await;
    let (own, unused) = (installation.session(0).await, installation.session(1).await);
    let foreign = other.session(0).await;
    installation.committed(&own, batch(P0, 5, installation.records(&[("a", "1")]))).await;
    other.committed(&foreign, batch(P1, 7, other.records(&[("b", "2")]))).await;

    let begun = Instant::now();
    let watermarks = installation.kafka.fence_all().await.expect("fenced");
    eprintln!("three ids were fenced in {:?}", begun.elapsed());

    assert_eq!(watermarks, BTreeMap::from([(P0, 5), (P1, 7)]));
    for (instance, session) in [(&installation, &own), (&installation, &unused), (&other, &foreign)] {
        let late = instance.publish(session, batch(P2, 9, instance.records(&[("c", "late")]))).await;
        assert!(matches!(late, Published::SessionLost(_)), "{late:?}");
    }
    let next = other.session(0).await;
    other.committed(&next, batch(P2, 10, other.records(&[("c", "3")]))).await;
    assert_eq!(other.values().await, ["1", "2", "3"]);
}

/// A process died with a transaction open, and the store has forgotten its session.
#[tokio::test(flavor = "multi_thread")]
async fn open_transaction_of_a_forgotten_session_is_aborted() {
    let installation = Installation::new().await;
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 5, installation.records(&[("a", "1")]))).await;
    let options = installation.kafka.options();
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers()).set("transactional.id", transactional_id(&session));
    let dead: BaseProducer = config.create().expect("a producer");
    dead.init_transactions(TIMEOUT).expect("initialised");
    dead.begin_transaction().expect("begun");
    let (topic, value) = (options.topic(WATERMARK_TOPIC), format!("6 {}", options.installation));
    let record = BaseRecord::to(&topic).partition(watermark_partition(&session)).key("0").payload(&value);
    dead.send(record).map_err(|(error, _)| error).expect("sent");
    dead.flush(TIMEOUT).expect("delivered");

    let other = installation.other_instance(Guarantee::ExactlyOnce).await;
    let begun = Instant::now();
    let watermarks = other.kafka.fence_all().await.expect("fenced");

    assert_eq!(watermarks, BTreeMap::from([(P0, 5)]), "the token of the open transaction was never committed");
    assert!(begun.elapsed() < TIMEOUT);
    assert!(dead.commit_transaction(TIMEOUT).is_err(), "it was fenced");
    assert_eq!(other.kafka.fence_all().await.expect("fenced"), watermarks);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_transactional_id_is_registered_once_for_each_process() {
    let installation = Installation::new().await;
    let registered = async || {
        let topic = installation.kafka.options().topic(WATERMARK_TOPIC);
        let mut keys = Vec::new();
        for partition in 0..installation.kafka.options().partitions {
            let read = installation.kafka.read(&topic, partition, 0, 1_000).await.expect("read");
            keys.extend(read.into_iter().map(|delivery| delivery.record.key.to_string()));
        }
        keys.sort_unstable();
        keys
    };

    let first = installation.session(0).await;
    let mut expected = vec![format!("producer:{}", transactional_id(&first))];
    assert_eq!(registered().await, expected);
    let again = installation.session(0).await;
    assert_eq!((transactional_id(&again), registered().await), (transactional_id(&first), expected.clone()));
    let second = installation.session(1).await;
    installation.kafka.append(installation.records(&[("a", "1")])).await.expect("appended");

    expected.push(format!("producer:{}", transactional_id(&second)));
    expected.sort_unstable();
    assert_eq!(registered().await, expected, "the session that appends writes no watermarks");
}
