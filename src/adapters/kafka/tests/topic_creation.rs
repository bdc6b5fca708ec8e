//! The topics of an installation: created when they are missing, refused with the reason and the remedy when their settings are wrong.
mod deleted_topics;

use futures::join;
use kafka::{Kafka, KafkaProbe};
use kit::TestClock;
use kit::wait::until_answered;
use outbox::topics::WATERMARK_TOPIC;
use ports::broker::consumer_groups::ConsumerGroups;
use ports::broker::topics::TopicReader;
use ports::broker::{Broker, PublishOutcome};
use ports::probe::Probe;
use ports::{Error, FaultClass};

use crate::support::{Installation, P0, P1, TIMEOUT, batch, create_topic, opened, options, servers};

async fn refused(settings: &[(&str, &str)], partitions: i32) -> String {
    let options = options(&servers(), &TestClock::default());
    create_topic(&options.topic(WATERMARK_TOPIC), partitions, settings).await;
    let kafka = Kafka::open(options).expect("the options are legal");

    let reason = match until_answered(TIMEOUT, || kafka.ensure_topics(&[])).await {
        Err(Error::Broken(reason)) => reason,
        other => panic!("the topic must be refused: {other:?}"),
    };
    let session = until_answered(TIMEOUT, || kafka.open_session(0)).await;
    assert!(matches!(session, Err(Error::Broken(_))), "no session opens without a watermark topic");
    let probe = KafkaProbe(kafka);
    let probed = until_answered(TIMEOUT, || probe.check()).await;
    assert!(matches!(probed, Err(Error::Broken(_))), "the probe reports it");
    reason
}

#[tokio::test]
async fn watermark_topic_without_compaction_is_refused() {
    for policy in ["delete", "compact,delete"] {
        let reason = refused(&[("cleanup.policy", policy)], 4).await;

        assert!(reason.contains(WATERMARK_TOPIC) && reason.contains("kafka-configs.sh"), "{reason}");
    }
}

#[tokio::test]
async fn watermark_topic_with_another_number_of_partitions_is_refused() {
    let reason = refused(&[("cleanup.policy", "compact")], 3).await;

    assert!(reason.contains(WATERMARK_TOPIC) && reason.contains("outbox.partitions"), "{reason}");
}

#[tokio::test]
async fn missing_topics_are_reported_with_their_command_when_creation_is_off() {
    let mut options = options(&servers(), &TestClock::default());
    options.create_topics = false;
    let names = [options.topic("order.events-retry-3"), options.topic(WATERMARK_TOPIC)];
    let kafka = Kafka::open(options).expect("opened");

    let ensured = until_answered(TIMEOUT, || kafka.ensure_topics(&[])).await;
    let Err(Error::Broken(reason)) = ensured else { panic!("topics are missing: {ensured:?}") };

    assert!(names.iter().all(|name| reason.contains(name)), "{reason}");
    assert!(reason.contains("broker.create_topics") && reason.contains("cleanup.policy=compact"), "{reason}");
}

#[tokio::test]
async fn missing_topic_of_another_service_does_not_refuse_the_relay() {
    let installation = Installation::new().await;
    let mut options = installation.kafka.options().clone();
    options.create_topics = false;
    options.additional_topics = vec![options.topic("invoices")];
    let kafka = Kafka::open(options.clone()).expect("opened");

    let ensured = until_answered(TIMEOUT, || kafka.ensure_topics(&[])).await;
    let session = until_answered(TIMEOUT, || kafka.open_session(0)).await;
    let probe = KafkaProbe(kafka);
    let probed = until_answered(TIMEOUT, || probe.check()).await;

    let Err(Error::Broken(reason)) = ensured else { panic!("a topic is missing: {ensured:?}") };
    assert!(reason.contains(&options.additional_topics[0]) && reason.contains("broker.create_topics"), "{reason}");
    assert!(session.is_ok(), "its topics exist: {:?}", session.err());
    probed.expect("the broker works");
}

/// As where the orders are disabled and the relay publishes for other services only.
#[tokio::test]
async fn installation_without_an_event_topic_creates_none_and_works() {
    let mut options = options(&servers(), &TestClock::default());
    (options.event_topic, options.additional_topics) = (None, vec![options.topic("invoices")]);
    let installation = Installation::of(Kafka::open(options.clone()).expect("opened"));
    let kafka = &installation.kafka;

    until_answered(TIMEOUT, || kafka.ensure_topics(&[])).await.expect("the topics have the right settings");
    let session = until_answered(TIMEOUT, || kafka.open_session(0)).await;
    let mut records = installation.records(&[("a", "1")]);
    records[0].topic = options.additional_topics[0].as_str().into();
    installation.committed(&session.expect("opened"), batch(P0, 1, records)).await;

    let probe = KafkaProbe(kafka.clone());
    until_answered(TIMEOUT, || probe.check()).await.expect("the broker works");
    let mut listed: Vec<String> = installation.topics().await.into_iter().map(|view| view.name).collect();
    listed.sort();
    assert_eq!(listed, [options.topic("invoices"), options.topic(WATERMARK_TOPIC)]);
}

/// The broker refuses the name.
#[tokio::test]
async fn unusable_topic_of_another_service_does_not_stop_the_creation_of_others() {
    let mut options = options(&servers(), &TestClock::default());
    options.additional_topics = ["no topic", "invoices"].map(|name| options.topic(name)).to_vec();
    let kafka = Kafka::open(options.clone()).expect("opened");
    let installation = Installation::of(kafka);

    let ensured = until_answered(TIMEOUT, || installation.kafka.ensure_topics(&[])).await;

    let refused = ensured.expect_err("a name is invalid").to_string();
    assert!(refused.contains(&options.additional_topics[0]), "{refused}");
    let listed = installation.topics().await;
    assert!(listed.iter().any(|view| view.name == options.additional_topics[1]), "{listed:?}");
}

#[tokio::test]
async fn member_of_a_group_with_a_missing_topic_does_not_join() {
    let installation = Installation::new().await;
    let mut options = installation.kafka.options().clone();
    options.create_topics = false;
    options.additional_topics = vec![options.topic("invoices")];
    let topics = [options.topic("order.events"), options.topic("invoices")];
    let kafka = Kafka::open(options).expect("opened");

    let refused = until_answered(TIMEOUT, || kafka.join("group", &topics, 0, 1)).await.err();
    let joined = until_answered(TIMEOUT, || kafka.join("group", &topics[..1], 0, 1)).await;

    assert!(matches!(&refused, Some(Error::Broken(reason)) if reason.contains(&topics[1])), "{refused:?}");
    assert!(joined.is_ok(), "its topic exists: {:?}", joined.err());
}

#[tokio::test]
async fn ensure_topics_creates_all_topics_and_is_idempotent() {
    let installation = Installation::new().await;
    let mut names = installation.kafka.options().all_topics();
    names.sort();

    let ensure = || installation.kafka.ensure_topics(&[]);
    until_answered(TIMEOUT, ensure).await.expect("the topics have the right settings");
    let again = opened(installation.kafka.options().clone()).await;

    let listed = until_answered(TIMEOUT, || again.list()).await;
    let listed: Vec<String> = listed.expect("listed").into_iter().map(|view| view.name).collect();
    assert_eq!(listed, names);
    let replicas = until_answered(TIMEOUT, || again.replicas()).await.expect("read");
    assert_eq!((replicas.brokers, replicas.too_few().count()), (1, 0));
    let mut replicated: Vec<&str> = replicas.topics.iter().map(|(name, _)| name.as_str()).collect();
    replicated.sort_unstable();
    assert_eq!(replicated, names);
}

#[tokio::test]
async fn ensure_topics_creates_a_topic_by_name() {
    let installation = Installation::new().await;
    let name = installation.kafka.options().topic("another.topic");

    let names = [name.as_str()];
    until_answered(TIMEOUT, || installation.kafka.ensure_topics(&names)).await.expect("created");

    let listed = installation.topics().await;
    assert!(listed.iter().any(|view| view.name == name && view.partitions.len() == 2));
}

#[tokio::test]
async fn read_of_a_missing_topic_lists_the_existing_ones() {
    let installation = Installation::new().await;

    let result = until_answered(TIMEOUT, || installation.kafka.read("none-such", 0, 0, 1)).await;

    let Err(Error::Rejected(reason)) = result else { panic!("{result:?}") };
    assert!(reason.contains(&installation.kafka.options().topic("order.events")), "{reason}");
}

/// A topic of another service that was never created must not stop the relay.
#[tokio::test]
async fn event_to_a_missing_topic_is_refused_alone() {
    let installation = Installation::new().await;
    let session = installation.session(0).await;
    let mut records = installation.records(&[("a", "1"), ("b", "nowhere"), ("c", "2")]);
    records[1].topic = installation.kafka.options().topic("never.created").into();
    let mixed = batch(P0, 1, records);
    let other = batch(P1, 1, installation.records(&[("d", "3")]));

    let (first, second) = join!(installation.result(&session, mixed.clone()), installation.result(&session, other));

    let PublishOutcome::RowsRefused(refused) = first else { panic!("it should have been aborted: {first:?}") };
    assert_eq!(refused.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [mixed.records[1].0]);
    assert_eq!(refused[0].1.fault(), FaultClass::SemiTransient, "it is tried again: {refused:?}");
    assert!(matches!(second, PublishOutcome::Committed(_)), "{second:?}");
    let mut rest = mixed;
    rest.records.remove(1);
    installation.committed(&session, rest).await;
    assert_eq!(installation.values().await, ["1", "2", "3"]);
}
