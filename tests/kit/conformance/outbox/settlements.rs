//! Cases of `OutboxStore`: a batch is settled once, and by its owner only.
use ports::operators::{RecordLocation, RowSelector};
use ports::outbox::{BatchOutcome, Disposition, ExclusionOutcome, FencedOutcome, PoisonPolicy, RowStatus, Settlement};
use ports::partitions::{AcquireReason, LeaseFence};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{P0, P1, fixture, instance};
use crate::conformance::fixture::worker::{ALL, exclusion, ids, worker};

pub(super) async fn a_settled_row_is_sent_and_archived<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;

    assert_eq!(worker.settle(&batch).await, 2);

    for id in ids(&batch.rows) {
        let row = fixture.row(id).await;
        assert_eq!((row.status, row.retry_count), (RowStatus::Sent, 1));
        assert!(row.sent_at.expect("a sent row has a time") >= row.created_at);
    }
    let view = fixture.view(P0).await;
    assert_eq!((view.open_batch, view.counter, view.depth), (None, worker.fence.counter, 0));
    worker.expect_nothing_due().await;
}

pub(super) async fn a_settlement_records_positions_and_fallbacks<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let mut settlement = worker.settlement(&batch);
    let (known, position) = settlement.positions[0].clone();
    settlement.positions = [(known, position.clone())].into();
    settlement.by_fallback = vec![batch.rows[1].id];
    assert_eq!(known, batch.rows[0].id);

    backend.outbox().settle(settlement).await.expect("the call succeeds");

    let first = fixture.diagnosis(RowSelector::Event(batch.rows[0].event_id)).await;
    let to_first =
        RecordLocation { topic: position.topic, partition_offset: Some((position.partition, position.offset)) };
    assert_eq!((first.sent_to, first.by_fallback), (Some(to_first), false));
    let second = fixture.diagnosis(RowSelector::Event(batch.rows[1].event_id)).await;
    let topic = format!("{}-dlt", batch.rows[1].topic).into();
    let to_second = Some(RecordLocation { topic, partition_offset: None });
    assert_eq!((second.sent_to, second.by_fallback, second.row.status), (to_second, true, RowStatus::Sent));
}

pub(super) async fn a_stale_token_changes_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_order(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let wrong = Settlement { token: batch.token - 1, ..worker.settlement(&batch) };

    assert_all_stale(backend, &worker.fence, wrong).await;

    assert_eq!(fixture.row(batch.rows[0].id).await.status, RowStatus::InFlight);
    assert_eq!(worker.settle(&batch).await, 1, "the right token still settles the batch");
}

pub(super) async fn a_stale_epoch_changes_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_order(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let late = worker.settlement(&batch);
    worker.reacquire(AcquireReason::WorkerDied).await.expect("the batch is open");

    assert_all_stale(backend, &late.fence.clone(), late).await;

    assert_eq!(fixture.row(batch.rows[0].id).await.status, RowStatus::InFlight);
    assert_eq!(fixture.view(P0).await.open_batch, Some(batch.token));
}

pub(super) async fn another_owners_statement_changes_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_order(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let fence = LeaseFence { owner: instance("b"), ..worker.fence.clone() };

    assert_all_stale(backend, &fence, Settlement { fence: fence.clone(), ..worker.settlement(&batch) }).await;

    assert_eq!(fixture.row(batch.rows[0].id).await.status, RowStatus::InFlight);
}

/// Every statement with this fence and token is stale and leaves the lease row unchanged.
pub(super) async fn assert_all_stale<B: Backend>(backend: &B, fence: &LeaseFence, settlement: Settlement) {
    let fixture = fixture(backend);
    let before = fixture.view(P0).await;
    let (token, row) = (settlement.token, settlement.positions[0].0);
    let outbox = backend.outbox();
    let excluded =
        outbox.exclude(fence, token, &[exclusion(row, Disposition::ParkKey)]).await.expect("the call succeeds");
    assert_eq!(excluded, ExclusionOutcome::Stale, "exclude");
    assert_eq!(outbox.settle(settlement).await.expect("the call succeeds"), FencedOutcome::Stale, "settle");
    for outcome in [BatchOutcome::Published, BatchOutcome::ClaimerDied, BatchOutcome::NotSent] {
        assert_eq!(
            outbox.resolve(fence, token, outcome, &PoisonPolicy::default()).await.expect("the call succeeds").closed,
            FencedOutcome::Stale,
            "{outcome:?}"
        );
    }
    assert_eq!(fixture.view(P0).await, before);
}

pub(super) async fn a_settlement_does_not_compare_the_counter<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;
    let before = worker.fence.clone();
    worker.exclude(&[exclusion(batch.rows[0].id, Disposition::ParkKey)], &mut batch).await;

    let settlement = Settlement { fence: before, ..worker.settlement(&batch) };
    let changed = backend.outbox().settle(settlement).await.expect("the call succeeds");

    assert!(matches!(changed, FencedOutcome::Done { rows: 1, .. }), "{changed:?}");
}

pub(super) async fn a_repeated_settlement_changes_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    worker.settle(&batch).await;
    let before = (fixture.depth().await.sent, fixture.row(batch.rows[0].id).await);

    let again = backend.outbox().settle(worker.settlement(&batch)).await.expect("a repetition succeeds");

    if let FencedOutcome::Done { counter, rows } = again {
        assert_eq!((counter, rows), (fixture.view(P0).await.counter, 0));
        worker.fence.counter = counter;
    }
    assert_eq!((fixture.depth().await.sent, fixture.row(batch.rows[0].id).await), before);
    worker.expect_nothing_due().await;
}

pub(super) async fn a_late_settlement_does_not_change_the_next_batch<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let first = worker.claim(1).await;
    worker.settle(&first).await;
    let second = worker.claim(1).await;

    backend.outbox().settle(worker.settlement(&first)).await.expect("the call succeeds");
    backend
        .outbox()
        .resolve(&worker.fence, first.token, BatchOutcome::NotSent, &PoisonPolicy::default())
        .await
        .expect("the call succeeds");

    assert_eq!(fixture.row(second.rows[0].id).await.status, RowStatus::InFlight);
    assert_eq!(fixture.row(first.rows[0].id).await.status, RowStatus::Sent);
    assert_eq!(fixture.view(P0).await.open_batch, Some(second.token));
}

pub(super) async fn a_settlement_changes_only_its_own_partition<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_order(P0).await;
    fixture.place_order(P1).await;
    let (mut a, mut b) = (worker(backend, "a", P0).await, worker(backend, "a", P1).await);
    // The counters of new partitions start at the same value, so both first tokens may be equal.
    let (here, there) = (a.claim(ALL).await, b.claim(ALL).await);

    a.settle(&here).await;

    assert_eq!(fixture.row(there.rows[0].id).await.status, RowStatus::InFlight);
    assert_eq!(b.settle(&there).await, 1);
}
