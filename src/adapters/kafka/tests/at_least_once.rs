//! The guarantee at least once: batches may be partly published, keys keep their order, and watermarks of exactly once still count.
use std::time::{Duration, Instant};

use kafka::{DeliveryGuarantee, Options};
use kit::TestClock;
use kit::wait::scaled;
use outbox::topics::WATERMARK_TOPIC;
use ports::broker::{Batch, Broker, Position, PublishOutcome};
use ports::{Error, FaultClass};

use crate::proxy::Proxy;
use crate::support::{
    Installation, P0, P1, TIMEOUT, batch, create_topic, delete_topic, noise, opened, options, servers,
};

async fn installation() -> Installation {
    Installation::with(|options| options.guarantee = DeliveryGuarantee::AtLeastOnce).await
}

#[tokio::test]
async fn batch_is_published_in_order_without_a_watermark() {
    let installation = installation().await;
    let session = installation.session(0).await;
    let values: Vec<String> = (0..50).map(|index| format!("{index:03}")).collect();
    let records =
        values.iter().flat_map(|value| ["a", "b", "c"].map(|key| installation.factory.record(key, value))).collect();

    let result = installation.result(&session, batch(P0, 1, records)).await;

    assert!(matches!(&result, PublishOutcome::Committed(positions) if positions.len() == 150), "{result:?}");
    let by_key = installation.by_key().await;
    assert_eq!(by_key.len(), 3);
    for (key, seen) in by_key {
        assert_eq!(seen, values, "{key}");
    }
    assert_eq!(installation.watermark(&session, P0).await, None);
}

#[tokio::test]
async fn key_stops_at_its_refused_record_and_other_keys_go_on() {
    let installation = Installation::with_small_batches(DeliveryGuarantee::AtLeastOnce).await;
    let session = installation.session(0).await;
    let large = noise(12_000);
    let batch =
        batch(P0, 1, installation.records(&[("k", "1"), ("other", "2"), ("k", &large), ("k", "4"), ("other", "5")]));

    let result = installation.result(&session, batch.clone()).await;

    let PublishOutcome::Partial { mut sent, refused } = result else { panic!("{result:?}") };
    sent.sort();
    let rows = |indexes: &[usize]| indexes.iter().map(|index| batch.records[*index].0).collect::<Vec<_>>();
    assert_eq!(sent.iter().map(|(row, _)| *row).collect::<Vec<_>>(), rows(&[0, 1, 4]));
    assert_eq!(refused.iter().map(|(row, _)| *row).collect::<Vec<_>>(), rows(&[2]));
    assert_eq!(installation.values().await, ["1", "2", "5"]);
}

#[tokio::test]
async fn record_that_the_broker_refuses_stops_no_other_of_its_append() {
    for guarantee in [DeliveryGuarantee::ExactlyOnce, DeliveryGuarantee::AtLeastOnce] {
        for keys in [["k", "k", "k"], ["a", "b", "c"]] {
            let (results, values) = append_around_a_refused_record(guarantee, keys).await;

            assert!(
                matches!(&*results, [Ok(_), Err(Error::Rejected(_)), Ok(_)]),
                "{guarantee:?} {keys:?}: {results:?}"
            );
            assert_eq!(values, ["1", "3"], "{guarantee:?} {keys:?}: each once");
        }
    }
}

/// Appends three records, of which the broker refuses the second; returns the results, and the values on the broker. Begins again if the broker was
/// too slow: then the records without a result may not be sent again.
async fn append_around_a_refused_record(
    guarantee: DeliveryGuarantee,
    keys: [&str; 3],
) -> (Vec<Result<Position, Error>>, Vec<String>) {
    let is_late =
        |result: &Result<Position, Error>| matches!(result, Err(error) if error.fault() == FaultClass::Transient);
    let mut attempt = 0;
    loop {
        attempt += 1;
        let installation = Installation::with_small_batches(guarantee).await;
        let large = noise(12_000);
        let records = installation.records(&[(keys[0], "1"), (keys[1], &large), (keys[2], "3")]);
        let results = installation.kafka.append_individually(records).await;
        if attempt == 10 || !results.iter().any(is_late) {
            return (results, installation.values().await);
        }
    }
}

#[tokio::test]
async fn valid_records_are_not_refused_with_an_invalid_one() {
    let installation = Installation::with_small_batches(DeliveryGuarantee::AtLeastOnce).await;
    let session = installation.session(0).await;
    let large = noise(12_000);
    // Many keys, so that the invalid record shares its request with others.
    let keys: Vec<String> = (0..20).map(|index| format!("key-{index}")).collect();
    let mut records: Vec<_> = keys.iter().map(|key| installation.factory.record(key, "fine")).collect();
    records.push(installation.factory.record("invalid", &large));
    let mut left = batch(P0, 1, records);
    let invalid = left.records[20].0;

    let mut refused_rows = Vec::new();
    for _ in 0..5 {
        match installation.result(&session, left.clone()).await {
            PublishOutcome::Committed(_) => break,
            PublishOutcome::Partial { sent, refused } => {
                refused_rows.extend(refused.iter().map(|(row, _)| *row));
                let gone = |row: &i64| refused_rows.contains(row) || sent.iter().any(|(other, _)| other == row);
                left.records.retain(|(row, _)| !gone(row));
            }
            other => panic!("{other:?}"),
        }
    }

    assert_eq!(refused_rows, [invalid]);
    assert_eq!(installation.values().await.len(), 20);
}

#[tokio::test]
async fn fenced_session_sends_nothing() {
    let installation = installation().await;
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;

    installation.fence(&session).await;

    let late = installation.result(&session, batch(P0, 2, installation.records(&[("a", "late")]))).await;
    assert!(matches!(late, PublishOutcome::SessionLost(_)), "{late:?}");
    assert_eq!(installation.values().await, ["1"]);
}

#[tokio::test]
async fn batch_left_open_by_exactly_once_is_resolved_at_least_once() {
    let before = Installation::new().await;
    let session = before.session(0).await;
    before.committed(&session, batch(P0, 5, before.records(&[("a", "5")]))).await;

    let after = before.other_instance(DeliveryGuarantee::AtLeastOnce).await;
    after.fence(&session).await;

    assert_eq!(after.watermark(&session, P0).await, Some(5));
    let late = before.result(&session, batch(P1, 6, before.records(&[("b", "late")]))).await;
    assert!(matches!(late, PublishOutcome::SessionLost(_)), "{late:?}");
    let next = after.session(0).await;
    after.committed(&next, batch(P0, 6, after.records(&[("a", "6")]))).await;
    assert_eq!(after.by_key().await["a"], ["5", "6"]);
}

#[tokio::test]
async fn append_works_without_transactions() {
    let installation = installation().await;

    let positions = installation.append(installation.records(&[("k", "1"), ("k", "2")])).await;

    assert!(positions[0] < positions[1]);
    assert_eq!(installation.by_key().await["k"], ["1", "2"]);
}

#[tokio::test]
async fn append_of_refused_records_alone_is_rejected_and_of_some_is_unknown() {
    let installation = Installation::with_small_batches(DeliveryGuarantee::AtLeastOnce).await;
    let large = noise(12_000);
    let append = |records: &[(&str, &str)]| installation.append_result(installation.records(records));

    let alone = append(&[("k", &large)]).await;
    assert!(matches!(alone, Err(Error::Rejected(_))), "{alone:?}");
    let all = append(&[("k", &large), ("other", &large)]).await;
    assert!(matches!(all, Err(Error::Rejected(_))), "{all:?}");
    let mixed = append(&[("k", "1"), ("other", &large)]).await;
    assert!(matches!(mixed, Err(Error::Unknown(_))), "{mixed:?}");

    assert_eq!(installation.values().await, ["1"]);
    append(&[("k", "2")]).await.expect("the session goes on");
}

/// The relay fences each session that left a batch open, also when the slot has long had another session.
#[tokio::test]
async fn fence_of_a_dead_session_does_not_end_its_successor() {
    let installation = installation().await;
    let dead = installation.session(0).await;
    installation.fence(&dead).await;
    let successor = installation.session(0).await;

    installation.fence(&dead).await;

    installation.committed(&successor, batch(P0, 1, installation.records(&[("a", "1")]))).await;
    installation.fence(&successor).await;
    let late = installation.result(&successor, batch(P0, 2, installation.records(&[("a", "late")]))).await;
    assert!(matches!(late, PublishOutcome::SessionLost(_)), "{late:?}");
}

/// A topic of another service that was never created must not stop the relay, and one of the installation's own must not park its events.
#[tokio::test]
async fn only_records_of_a_missing_topic_of_another_service_are_refused() {
    let creator = Options { guarantee: DeliveryGuarantee::AtLeastOnce, ..options(&servers(), &TestClock::default()) };
    // After an outage, an adapter that may create topics would create the deleted one again.
    let options = Options { create_topics: false, ..creator.clone() };
    drop(opened(creator).await);
    let installation = Installation::of(opened(options).await);
    let session = installation.session(0).await;
    let mut records = installation.records(&[("a", "1"), ("b", "nowhere"), ("c", "2")]);
    records[1].topic = installation.kafka.options().topic("never.created").into();
    let mixed = batch(P0, 1, records);

    let result = installation.result(&session, mixed.clone()).await;

    let PublishOutcome::Partial { sent, refused } = result else { panic!("{result:?}") };
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert_eq!(refused.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [mixed.records[1].0]);
    assert_eq!(refused[0].1.fault(), FaultClass::SemiTransient, "it is tried again: {refused:?}");
    let own_topic = installation.kafka.options().topic(WATERMARK_TOPIC);
    delete_topic(&own_topic).await;
    let mut own = batch(P0, 2, installation.records(&[("d", "3")]));
    own.records[0].1.topic = own_topic.into();
    let result = installation.publish(&session, own).await;
    assert!(matches!(&result, PublishOutcome::Aborted { .. }), "{result:?}");
}

/// The client waits for a missing topic for a second, and the rest of a lease may be shorter. Only the broker can say that this is no outage, which
/// uses up no attempt.
#[tokio::test]
async fn missing_topic_is_refused_although_the_lease_ends_before_the_client_reports_it() {
    let installation = installation().await;
    let mut session = installation.session(0).await;
    let mut records = installation.records(&[("a", "nowhere")]);
    records[0].topic = installation.kafka.options().topic("never.created").into();
    let short = Batch { time_left: Duration::from_millis(400), ..batch(P0, 1, records) };

    let started = Instant::now();
    let (sent, refused) = loop {
        match installation.publish(&session, short.clone()).await {
            PublishOutcome::Partial { sent, refused } => break (sent, refused),
            // The broker did not answer in time whether the topic exists, which ends the session.
            other => assert!(started.elapsed() < scaled(TIMEOUT), "{other:?}"),
        }
        session = installation.session(0).await;
    };
    assert!(sent.is_empty(), "{sent:?}");
    assert_eq!(refused.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [short.records[0].0]);
}

/// A partition without a leader is an outage of its own. The other records do not wait for the delivery timeout, and the session continues.
#[tokio::test]
async fn only_records_of_a_partition_without_a_leader_are_refused() {
    let proxy = Proxy::to(&servers());
    let mut options = options(&proxy.address, &TestClock::default());
    (options.guarantee, options.delivery_timeout) = (DeliveryGuarantee::AtLeastOnce, scaled(Duration::from_secs(30)));
    let installation = Installation::of(opened(options).await);
    let topic = installation.kafka.options().topic("customers");
    create_topic(&topic, 1, &[]).await;
    let session = installation.session(0).await;
    let mut records = installation.records(&[("a", "1"), ("b", "waits"), ("c", "2")]);
    records[1].topic = topic.as_str().into();
    let first = batch(P1, 1, records[1..2].to_vec());
    installation.committed(&session, first).await;
    proxy.lose_leader_of(Some(&topic));
    let mut alone = batch(P0, 1, records);

    for sent_before in [2, 0] {
        let started = Instant::now();
        let result = installation.result(&session, alone.clone()).await;

        let PublishOutcome::Partial { sent, refused } = result else { panic!("{result:?}") };
        assert_eq!(sent.len(), sent_before);
        assert_eq!(refused.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1_002]);
        assert_eq!(refused[0].1.fault(), FaultClass::Transient, "it is tried again without limit: {refused:?}");
        assert!(started.elapsed() < installation.kafka.options().delivery_timeout / 2, "{:?}", started.elapsed());
        alone.records.retain(|(row, _)| *row == 1_002);
    }
    installation.committed(&session, batch(P0, 2, installation.records(&[("a", "3")]))).await;

    proxy.lose_leader_of(None);
    installation.committed(&session, alone).await;
    assert_eq!(installation.values().await, ["1", "2", "3"]);
}
