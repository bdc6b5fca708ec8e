//! Cases of `Broker`: a refused or late batch is never visible, and other batches lose no record.
use std::time::Duration;

use futures::future::join_all;
use ports::Error;
use ports::broker::{Batch, PublishOutcome};
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, ProducerSessionId, Token};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{Fixture, P0, P1, fixture};
use crate::conformance::fixture::broker::row_of;

/// A batch of four records, the second and fourth too large, and the rows that the broker refused.
pub(super) async fn refused<B: Backend>(
    fixture: &Fixture<'_, B>,
    session: &ProducerSessionId,
) -> (Batch, Vec<(RowId, Error)>) {
    let mut records = fixture.records([("a", "1"), ("b", ""), ("c", "3"), ("d", "")]);
    records[1] = fixture.too_large("b");
    records[3] = fixture.too_large("d");
    let batch = fixture.batch(P0, 5, records);
    match fixture.result(session, batch.clone()).await {
        PublishOutcome::RowsRefused(refused) => (batch, refused),
        other => panic!("two records are too large: {other:?}"),
    }
}

pub(super) async fn a_refused_record_aborts_its_batch_and_is_named<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;

    let (batch, refused) = refused(&fixture, &session).await;

    let too_large = [batch.records[1].0, batch.records[3].0];
    assert!(!refused.is_empty(), "the broker names a refused row");
    for (row, error) in &refused {
        assert!(too_large.contains(row), "row {row} is not too large");
        assert!(matches!(error, Error::Rejected(_)), "{error}");
    }
}

pub(super) async fn an_aborted_batch_is_never_visible<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;
    refused(&fixture, &session).await;

    assert_eq!(fixture.values().await, [""; 0]);
    assert_eq!(fixture.watermark(&session, P0).await, None);

    fixture.published(&session, fixture.batch(P0, 6, fixture.records([("a", "after")]))).await;
    assert_eq!(fixture.values().await, ["after"]);
}

pub(super) async fn the_rest_of_an_aborted_batch_is_published_under_its_new_token<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;
    let (mut batch, mut refused) = refused(&fixture, &session).await;
    let mut rounds = 0;

    // A broker may name one refused row at a time.
    while !refused.is_empty() {
        rounds += 1;
        assert!(rounds <= 2, "the broker refuses a valid row");
        batch.token += 1;
        batch.records.retain(|(row, _)| refused.iter().all(|(refused_row, _)| refused_row != row));
        refused = match fixture.result(&session, batch.clone()).await {
            PublishOutcome::RowsRefused(refused) => refused,
            PublishOutcome::Committed(_) => Vec::new(),
            other => panic!("{other:?}"),
        };
    }

    assert_eq!(fixture.values().await, ["1", "3"]);
    assert_eq!(fixture.watermark(&session, P0).await, Some(batch.token));
}

pub(super) async fn a_batch_without_lease_time_left_is_not_committed<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;
    let late = Batch { time_left: Duration::ZERO, ..fixture.batch(P0, 1, fixture.records([("a", "late")])) };

    let result = backend.broker().publish(&session, late).await;

    assert!(matches!(&result, PublishOutcome::Aborted { .. }), "{result:?}");
    assert_eq!(fixture.values().await, [""; 0]);
    assert_eq!(fixture.watermark(&session, P0).await, None);
}

pub(super) async fn concurrent_batches_each_get_their_own_result<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (first, second) = (fixture.session(0).await, fixture.session(1).await);
    let partitions = backend.partitions().min(8);
    let batches = (0..partitions).map(|partition| {
        let key = format!("key-{partition}");
        fixture.batch(PartitionNo(partition), Token::from(partition) + 1, fixture.records([(&key, &key)]))
    });

    let results = join_all(batches.map(|batch| {
        let session = if batch.partition.0.is_multiple_of(2) { &first } else { &second };
        fixture.published(session, batch)
    }))
    .await;

    assert_eq!(fixture.visible().await.len(), partitions as usize);
    for (partition, positions) in (0_u32..).zip(results) {
        let session = if partition.is_multiple_of(2) { &first } else { &second };
        let token = Token::from(partition) + 1;
        assert_eq!(positions.len(), 1);
        assert_eq!(positions[0].0, row_of(token, 1), "each batch gets its own result");
        assert_eq!(fixture.watermark(session, PartitionNo(partition)).await, Some(token));
    }
}

pub(super) async fn a_refused_record_loses_no_record_of_another_batch<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;
    let valid = fixture.batch(P0, 1, fixture.records([("a", "1"), ("b", "2")]));
    let refused = fixture.batch(P1, 1, vec![fixture.too_large("c")]);

    let (first, second) = futures::join!(fixture.result(&session, valid.clone()), fixture.result(&session, refused));

    assert!(matches!(&second, PublishOutcome::RowsRefused(refused) if refused.len() == 1), "{second:?}");
    match first {
        PublishOutcome::Committed(_) => {}
        // The transaction that contained both batches was aborted: this batch is published again under its own token.
        PublishOutcome::Aborted { .. } => drop(fixture.published(&session, valid).await),
        other => panic!("a batch without refused records: {other:?}"),
    }
    assert_eq!(fixture.values().await, ["1", "2"]);
    assert_eq!((fixture.watermark(&session, P0).await, fixture.watermark(&session, P1).await), (Some(1), None));
}
