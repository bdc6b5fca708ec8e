//! Topics that were deleted while the adapter runs: all but the watermark topic are created again.
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kafka::{Kafka, KafkaProbe};
use kit::TestClock;
use kit::wait::{scaled, until, until_answered};
use outbox::topics::WATERMARK_TOPIC;
use ports::Error;
use ports::broker::Broker;
use ports::broker::consumer_groups::ConsumerGroups;
use ports::probe::Probe;

use crate::proxy::Proxy;
use crate::support::{
    Installation, P0, TIMEOUT, batch, create_topic, delete_topic, opened, options, request_deletion, servers,
};

const POLL_TIMEOUT: Duration = Duration::from_millis(300);

async fn exists(installation: &Installation, topic: &str) -> bool {
    installation.topics().await.iter().any(|view| view.name == topic)
}

/// Deletes a topic until a probe finds it missing: the adapter looks for deleted topics by itself too, and may create it again before.
async fn delete_until_missing(probe: &KafkaProbe, topic: &str) {
    let started = Instant::now();
    loop {
        request_deletion(topic).await;
        match until_answered(TIMEOUT, || probe.check()).await {
            Err(Error::Broken(reason)) if reason.contains(topic) => return,
            report => assert!(report.is_ok() && started.elapsed() < scaled(TIMEOUT), "{report:?}"),
        }
    }
}

#[tokio::test]
async fn deleted_topic_of_a_running_adapter_is_created_again() {
    let installation = Installation::new().await;
    let probe = KafkaProbe(installation.kafka.clone());
    until_answered(TIMEOUT, || probe.check()).await.expect("healthy");

    // The event topic is one that each probe reads.
    for name in ["order.events-retry-2", "order.events"] {
        let deleted = installation.kafka.options().topic(name);
        let creations = || installation.kafka.created_topics().iter().filter(|topic| **topic == deleted).count();
        let before = creations();

        request_deletion(&deleted).await;

        until("the topic is created again", TIMEOUT, || (creations() > before).then_some(()));
        // A broker answers before it lists the new topic.
        let started = Instant::now();
        while !exists(&installation, &deleted).await {
            assert!(started.elapsed() < scaled(TIMEOUT), "{deleted} is not listed");
        }
    }
    let started = Instant::now();
    while let Err(error) = probe.check().await {
        assert!(started.elapsed() < scaled(TIMEOUT), "{error}");
    }
}

/// A probe may take two seconds, and a slow broker a large part of one for each request.
#[tokio::test]
async fn probe_reads_few_topics() {
    let proxy = Proxy::to(&servers());
    let installation = Installation::of(opened(options(&proxy.address, &TestClock::default())).await);
    let probe = KafkaProbe(installation.kafka.clone());

    // The clients send requests by themselves too.
    let mut fewest = u64::MAX;
    for _ in 0..5 {
        let before = proxy.metadata_requests();
        until_answered(TIMEOUT, || probe.check()).await.expect("healthy");
        fewest = fewest.min(proxy.metadata_requests() - before);
    }

    assert_eq!(fewest, 2, "one for the event topic, one for the watermarks");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_watermark_topic_is_not_created_by_a_running_adapter() {
    let installation = Installation::new().await;
    let probe = KafkaProbe(installation.kafka.clone());
    let options = installation.kafka.options();
    let (watermarks, retries) = (options.topic(WATERMARK_TOPIC), options.topic("order.events-retry-0"));
    let batch = batch(P0, 1, installation.records(&[("a", "1")]));
    installation.committed(&installation.session(0).await, batch).await;

    request_deletion(&retries).await;
    delete_topic(&watermarks).await;

    let started = Instant::now();
    let refused = loop {
        match probe.check().await {
            Err(Error::Broken(reason)) if reason.contains("IN_FLIGHT") => break reason,
            report => assert!(started.elapsed() < scaled(TIMEOUT), "{report:?}"),
        }
    };
    assert!(refused.contains(&watermarks) && refused.contains("cleanup.policy=compact"), "{refused}");
    let opened = until_answered(TIMEOUT, || installation.kafka.open_session(1)).await;
    assert!(matches!(opened, Err(Error::Broken(_))), "no batch is published without its watermark: {opened:?}");
    assert!(exists(&installation, &retries).await, "the other topics are created again");
    assert!(!exists(&installation, &watermarks).await);

    create_topic(&watermarks, 4, &[("cleanup.policy", "compact")]).await;

    while let Err(error) = probe.check().await {
        assert!(started.elapsed() < scaled(TIMEOUT), "{error}");
    }
    installation.session(1).await;
}

#[tokio::test]
async fn member_reads_all_messages_of_a_topic_that_the_adapter_created_again() {
    let installation = Installation::new().await;

    assert_new_topic_is_read(&installation, &installation.kafka).await;
}

#[tokio::test]
async fn member_reads_all_messages_of_a_topic_that_another_instance_created_again() {
    let installation = Installation::new().await;
    let options = kafka::Options { create_topics: false, ..installation.kafka.options().clone() };

    assert_new_topic_is_read(&installation, &opened(options).await).await;
}

#[tokio::test]
async fn member_continues_while_a_topic_that_it_does_not_read_is_missing() {
    let installation = Installation::new().await;
    let options = kafka::Options { create_topics: false, ..installation.kafka.options().clone() };
    let reader = opened(options).await;
    let topics = [reader.options().topic("order.events")];
    let member = until_answered(TIMEOUT, || reader.join("group", &topics, 0, 1)).await.expect("joined");

    delete_until_missing(&KafkaProbe(reader.clone()), &reader.options().topic("order.events-retry-2")).await;
    installation.append(vec![installation.factory.record("a", "1")]).await;

    let started = Instant::now();
    while member.poll(1, POLL_TIMEOUT).await.expect("it continues").is_empty() {
        assert!(started.elapsed() < scaled(TIMEOUT), "nothing came");
    }
}

/// Deletes the event topic until this adapter misses it, and reads the new topic with a member that has read the deleted one.
async fn assert_new_topic_is_read(installation: &Installation, reader: &Kafka) {
    let topics = [installation.kafka.options().topic("order.events")];
    let records = |count: u32| (0..count).map(|value| installation.factory.record("a", &value.to_string())).collect();
    let join = || until_answered(TIMEOUT, || reader.join("group", &topics, 0, 1));
    let (mut member, started) = (join().await.expect("joined"), Instant::now());
    installation.append(records(1)).await;
    let read = loop {
        let some = member.poll(1, POLL_TIMEOUT).await.expect("polled");
        assert!(started.elapsed() < scaled(TIMEOUT), "nothing came");
        if let Some(first) = some.into_iter().next() {
            break first.position;
        }
    };
    until_answered(TIMEOUT, || member.acknowledge(std::slice::from_ref(&read))).await.expect("acknowledged");

    delete_until_missing(&KafkaProbe(reader.clone()), &topics[0]).await;

    // The new messages reach the offsets that the member has read.
    while let Err(error) = installation.kafka.append(records(9)).await {
        assert!(started.elapsed() < scaled(TIMEOUT), "{error}");
    }
    let mut values = BTreeSet::new();
    while values.len() < 9 {
        match member.poll(100, POLL_TIMEOUT).await {
            Ok(some) => {
                values.extend(some.iter().map(|message| message.record.value.to_vec()));
                let positions: Vec<_> = some.into_iter().map(|message| message.position).collect();
                // A member that fails acknowledges no more: its successor reads these messages again.
                drop(member.acknowledge(&positions).await);
            }
            // The consumer actors join again, once the topics are there.
            Err(_) => member = join().await.unwrap_or(member),
        }
        assert!(started.elapsed() < scaled(TIMEOUT), "{} of 9 came", values.len());
    }
}
