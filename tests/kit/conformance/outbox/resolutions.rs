//! Cases of `OutboxStore`: resolution of an open batch as published, not sent or left by a dead claimer.
use ports::operators::{RecordLocation, RowFilter, RowSelector};
use ports::orders::event_key;
use ports::outbox::{BatchOutcome, FencedOutcome, PoisonPolicy, RowStatus};
use ports::partitions::AcquireReason;

use crate::backend::Backend;
use crate::conformance::fixture::backend::{P0, fixture};
use crate::conformance::fixture::worker::{ALL, ids, worker};

pub(super) async fn a_batch_resolved_as_published_is_sent<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    worker.reacquire(AcquireReason::OutcomeUnknown).await.expect("the batch is open");

    assert_eq!(worker.resolve(batch.token, BatchOutcome::Published).await, 2);

    assert_eq!(fixture.statuses(order.id).await, [RowStatus::Sent, RowStatus::Sent]);
    assert_eq!(fixture.view(P0).await.open_batch, None);
    let diagnosis = fixture.diagnosis(RowSelector::Event(batch.rows[0].event_id)).await;
    let topic = batch.rows[0].topic.clone();
    assert_eq!(
        diagnosis.sent_to,
        Some(RecordLocation { topic, partition_offset: None }),
        "no settlement recorded a position"
    );
    worker.expect_nothing_due().await;
}

pub(super) async fn a_batch_resolved_as_not_sent_is_due_with_attempts_returned<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;

    assert_eq!(worker.resolve(batch.token, BatchOutcome::NotSent).await, 2);

    let again = worker.claim(ALL).await;
    assert_eq!(ids(&again.rows), ids(&batch.rows));
    assert!(again.rows.iter().all(|row| row.attempt == 1));
    assert!(again.token > batch.token);
    assert_eq!(
        fixture.diagnosis(RowSelector::Key(event_key(order.id))).await.deaths,
        0,
        "a batch resolved as not sent counts no death"
    );
}

pub(super) async fn a_repeated_resolution_changes_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let first = worker.fence.clone();
    worker.resolve(batch.token, BatchOutcome::ClaimerDied).await;
    let before = fixture.rows(RowFilter::default()).await;
    let deaths = fixture.diagnosis(RowSelector::Event(batch.rows[0].event_id)).await.deaths;

    for fence in [first, worker.fence.clone()] {
        let again =
            backend.outbox().resolve(&fence, batch.token, BatchOutcome::ClaimerDied, &PoisonPolicy::default()).await;
        if let FencedOutcome::Done { counter, rows } = again.expect("a repetition succeeds").closed {
            assert_eq!((counter, rows), (fixture.view(P0).await.counter, 0));
            worker.fence.counter = counter;
        }
    }

    assert_eq!(fixture.rows(RowFilter::default()).await, before);
    assert_eq!(fixture.diagnosis(RowSelector::Event(batch.rows[0].event_id)).await.deaths, deaths);
    worker.claim(ALL).await;
}

pub(super) async fn a_stale_resolution_changes_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_order(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let late = worker.fence.clone();
    worker.reacquire(AcquireReason::OutcomeUnknown).await;
    worker.resolve(batch.token, BatchOutcome::NotSent).await;
    let second = worker.claim(ALL).await;

    for outcome in [BatchOutcome::Published, BatchOutcome::ClaimerDied, BatchOutcome::NotSent] {
        for token in [batch.token, second.token] {
            let changed = backend
                .outbox()
                .resolve(&late, token, outcome, &PoisonPolicy::default())
                .await
                .expect("the call succeeds")
                .closed;
            assert_eq!(changed, FencedOutcome::Stale, "{outcome:?}");
        }
    }

    assert_eq!(fixture.row(second.rows[0].id).await.status, RowStatus::InFlight);
    assert_eq!(worker.settle(&second).await, 1);
}
