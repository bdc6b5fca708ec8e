//! A fence of all sessions: those of every instance, with their open transactions, and the watermarks after it.
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kafka::DeliveryGuarantee;
use kit::wait::{scaled, until_answered};
use outbox::topics::WATERMARK_TOPIC;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::{Broker, PublishOutcome};
use ports::partitions::InstanceId;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::support::{
    Installation, P0, P1, P2, TIMEOUT, batch, servers, settle, transactional_id, watermark_partition,
};

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_every_instance_end_and_the_watermarks_are_final() {
    let installation = Installation::new().await;
    let other = installation.other_instance(DeliveryGuarantee::ExactlyOnce).await;
    let (own, unused) = (installation.session(0).await, installation.session(1).await);
    let foreign = other.session(0).await;
    installation.committed(&own, batch(P0, 5, installation.records(&[("a", "1")]))).await;
    other.committed(&foreign, batch(P1, 7, other.records(&[("b", "2")]))).await;

    let started = Instant::now();
    let watermarks = installation.fence_all().await;
    eprintln!("three ids were fenced in {:?}", started.elapsed());

    assert_eq!(watermarks, BTreeMap::from([(P0, 5), (P1, 7)]));
    for (instance, session) in [(&installation, &own), (&installation, &unused), (&other, &foreign)] {
        let late = instance.result(session, batch(P2, 9, instance.records(&[("c", "late")]))).await;
        assert!(matches!(late, PublishOutcome::SessionLost(_)), "{late:?}");
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
    // Much longer than the fence may take: the broker does not abort it by itself meanwhile.
    config.set("transaction.timeout.ms", "600000");
    let dead: BaseProducer = config.create().expect("a producer");
    dead.init_transactions(TIMEOUT).expect("initialised");
    dead.begin_transaction().expect("begun");
    let (topic, value) = (options.topic(WATERMARK_TOPIC), format!("6 {}", options.installation));
    let record = BaseRecord::to(&topic).partition(watermark_partition(&session)).key("0").payload(&value);
    dead.send(record).map_err(|(error, _)| error).expect("sent");
    dead.flush(TIMEOUT).expect("delivered");

    let other = installation.other_instance(DeliveryGuarantee::ExactlyOnce).await;
    let started = Instant::now();
    let watermarks = other.fence_all().await;

    assert_eq!(watermarks, BTreeMap::from([(P0, 5)]), "the token of the open transaction was never committed");
    assert!(started.elapsed() < scaled(Duration::from_secs(30)), "{:?}", started.elapsed());
    assert!(dead.commit_transaction(TIMEOUT).is_err(), "it was fenced");
    assert_eq!(other.fence_all().await, watermarks);
}

/// The transactional ids with a registration in the watermark topic, its last record considered.
async fn registered(installation: &Installation) -> BTreeSet<String> {
    let topic = installation.kafka.options().topic(WATERMARK_TOPIC);
    settle(std::slice::from_ref(&topic));
    let mut ids = BTreeSet::new();
    for partition in 0..installation.kafka.options().partitions {
        for ConsumerRecord { record, .. } in installation.read(&topic, partition).await {
            let Some(id) = record.key.strip_prefix("producer:") else { continue };
            if record.value.is_empty() {
                ids.remove(id)
            } else {
                ids.insert(id.to_owned())
            };
        }
    }
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn the_transactional_id_of_each_session_is_registered() {
    let installation = Installation::new().await;
    let first = installation.session(0).await;
    let again = installation.session(0).await;
    let second = installation.session(1).await;
    installation.append(installation.records(&[("a", "1")])).await;

    assert_eq!(transactional_id(&again), transactional_id(&first));
    let expected = [&first, &second].map(|session| transactional_id(session).to_owned());
    assert_eq!(registered(&installation).await, expected.into(), "the session that appends writes no watermarks");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_an_instance_that_is_no_member_are_fenced_and_forgotten() {
    let installation = Installation::new().await;
    let other = installation.other_instance(DeliveryGuarantee::ExactlyOnce).await;
    let (own, gone) = (installation.session(0).await, other.session(0).await);
    let [own_id, gone_id] = [&own, &gone].map(|session| transactional_id(session).to_owned());
    let members = [InstanceId("kit".into())];
    let forget = async || {
        let remove = || installation.kafka.remove_sessions(&members, 10);
        until_answered(TIMEOUT, remove).await.expect("forgotten")
    };
    assert_eq!(registered(&installation).await, [own_id.clone(), gone_id.clone()].into());

    assert_eq!(forget().await, 1);

    assert_eq!(registered(&installation).await, [own_id.clone()].into());
    assert_eq!(forget().await, 0);
    let late = other.result(&gone, batch(P1, 7, other.records(&[("b", "late")]))).await;
    assert!(matches!(late, PublishOutcome::SessionLost(_)), "{late:?}");
    installation.committed(&own, batch(P0, 5, installation.records(&[("a", "1")]))).await;
    // The instance lives after all: its next session is known, and a fence of all sessions ends it.
    let next = other.session(0).await;
    assert_eq!(registered(&installation).await, [own_id, gone_id].into());
    installation.fence_all().await;
    let fenced = other.result(&next, batch(P1, 8, other.records(&[("b", "2")]))).await;
    assert!(matches!(fenced, PublishOutcome::SessionLost(_)), "{fenced:?}");
}
