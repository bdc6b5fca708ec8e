//! Cases of `Broker`: what was refused or came too late is never visible, and costs no neighbour anything.
use std::time::Duration;

use futures::future::join_all;
use ports::Error;
use ports::broker::{Batch, Published};
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, ProducerSessionId, Token};

use super::broker::row_of;
use super::given::{Given, P0, P1, given};
use crate::backend::Backend;

/// A batch of four whose second and fourth record are too large.
async fn refused<B: Backend>(given: &Given<'_, B>, lane: &ProducerSessionId) -> (Batch, Vec<(RowId, Error)>) {
    let mut records = given.records([("a", "1"), ("b", ""), ("c", "3"), ("d", "")]);
    records[1] = given.too_large("b");
    records[3] = given.too_large("d");
    let batch = given.batch(P0, 5, records);
    match given.backend.broker().publish(lane, batch.clone()).await {
        Published::Aborted { refused, .. } => (batch, refused),
        other => panic!("two records are too large: {other:?}"),
    }
}

pub(super) async fn a_refused_record_aborts_its_batch_and_is_named<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;

    let (batch, refused) = refused(&given, &lane).await;

    let too_large = [batch.records[1].0, batch.records[3].0];
    assert!(!refused.is_empty(), "a row is to blame");
    for (row, error) in &refused {
        assert!(too_large.contains(row), "row {row} is innocent");
        assert!(matches!(error, Error::Rejected(_)), "{error}");
    }
}

pub(super) async fn an_aborted_batch_is_never_visible<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;
    refused(&given, &lane).await;

    assert_eq!(given.values().await, [""; 0]);
    assert_eq!(given.watermark(P0).await, None);

    given.published(&lane, given.batch(P0, 6, given.records([("a", "after")]))).await;
    assert_eq!(given.values().await, ["after"]);
}

pub(super) async fn the_rest_of_a_refused_batch_goes_under_the_same_token<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;
    let (mut batch, mut blamed) = refused(&given, &lane).await;
    let mut rounds = 0;

    // A broker may blame one row at a time.
    while !blamed.is_empty() {
        rounds += 1;
        assert!(rounds <= 2, "innocent rows are blamed");
        batch.records.retain(|(row, _)| blamed.iter().all(|(refused, _)| refused != row));
        blamed = match backend.broker().publish(&lane, batch.clone()).await {
            Published::Aborted { refused, .. } => refused,
            Published::Committed(_) => Vec::new(),
            other => panic!("{other:?}"),
        };
    }

    assert_eq!(given.values().await, ["1", "3"]);
    assert_eq!(given.watermark(P0).await, Some(5));
}

pub(super) async fn a_batch_whose_lease_is_over_is_not_committed<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;
    let late = Batch { time_left: Duration::ZERO, ..given.batch(P0, 1, given.records([("a", "late")])) };

    let answer = backend.broker().publish(&lane, late).await;

    assert!(matches!(&answer, Published::Aborted { refused, .. } if refused.is_empty()), "{answer:?}");
    assert_eq!(given.values().await, [""; 0]);
    assert_eq!(given.watermark(P0).await, None);
}

pub(super) async fn batches_of_several_partitions_each_get_their_answer<B: Backend>(backend: &B) {
    let given = given(backend);
    let (first, second) = (given.lane(0).await, given.lane(1).await);
    let partitions = backend.partitions().min(8);
    let batches = (0..partitions).map(|partition| {
        let key = format!("key-{partition}");
        given.batch(PartitionNo(partition), Token::from(partition) + 1, given.records([(&key, &key)]))
    });

    let answers = join_all(batches.map(|batch| {
        let lane = if batch.partition.0.is_multiple_of(2) { &first } else { &second };
        given.published(lane, batch)
    }))
    .await;

    assert_eq!(given.visible().await.len(), partitions as usize);
    for (partition, positions) in (0..).zip(answers) {
        let token = Token::from(partition) + 1;
        assert_eq!(positions.len(), 1);
        assert_eq!(positions[0].0, row_of(token, 1), "an answer of its own");
        assert_eq!(given.watermark(PartitionNo(partition)).await, Some(token));
    }
}

pub(super) async fn a_refused_neighbour_costs_nobody_a_record<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;
    let good = given.batch(P0, 1, given.records([("a", "1"), ("b", "2")]));
    let bad = given.batch(P1, 1, vec![given.too_large("c")]);

    let broker = backend.broker();
    let (first, second) = futures::join!(broker.publish(&lane, good.clone()), broker.publish(&lane, bad));

    assert!(matches!(&second, Published::Aborted { refused, .. } if refused.len() == 1), "{second:?}");
    match first {
        Published::Committed(_) => {}
        // One transaction carried both: it was aborted, and this batch goes again under its own token.
        Published::Aborted { refused, .. } if refused.is_empty() => drop(given.published(&lane, good).await),
        other => panic!("an innocent batch: {other:?}"),
    }
    assert_eq!(given.values().await, ["1", "2"]);
    assert_eq!((given.watermark(P0).await, given.watermark(P1).await), (Some(1), None));
}

pub(super) async fn an_append_is_all_or_nothing<B: Backend>(backend: &B) {
    let given = given(backend);
    let records = vec![given.make.record("a", "1"), given.too_large("b"), given.make.record("c", "3")];

    let answer = backend.broker().append(records).await;

    assert!(matches!(answer, Err(Error::Rejected(_))), "{answer:?}");
    assert_eq!(given.values().await, [""; 0]);
    assert_eq!(backend.broker().append(Vec::new()).await.expect("nothing is easily appended"), []);
}
