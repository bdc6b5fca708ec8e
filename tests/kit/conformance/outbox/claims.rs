//! Cases of `OutboxStore`: the rows that a claim takes, and the fence it needs.
use ports::outbox::{Claim, ClaimKind, ClaimOutcome, Disposition, RowStatus};
use ports::partitions::{AcquireReason, LeaseFence, ProducerSessionId};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{HOUR, P0, P1, SECOND, fixture, instance};
use crate::conformance::fixture::worker::{ALL, acquire_free, batch as claimed_batch, exclusion, keys, worker};

pub(super) async fn rows_are_claimed_in_id_order_up_to_the_limit<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let placed = fixture.place_orders(5, P0).await;
    let mut worker = worker(backend, "a", P0).await;

    let first = worker.claim(3).await;
    worker.settle(&first).await;
    let second = worker.claim(3).await;

    assert_eq!(keys(&first.rows), placed[..3].iter().map(|order| order.id).collect::<Vec<_>>());
    assert!(first.more, "the limit ended the claim");
    assert_eq!(keys(&second.rows), placed[3..].iter().map(|order| order.id).collect::<Vec<_>>());
    assert!(!second.more, "no row was left");
}

pub(super) async fn a_claim_takes_rows_of_its_own_partition_only<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (here, there) = (fixture.place_order(P0).await, fixture.place_order(P1).await);
    let (mut a, mut b) = (worker(backend, "a", P0).await, worker(backend, "a", P1).await);

    assert_eq!(keys(&a.claim(ALL).await.rows), [here.id]);
    assert_eq!(keys(&b.claim(ALL).await.rows), [there.id]);
}

pub(super) async fn a_claim_records_owner_and_token_in_its_rows<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_order(P0).await;
    let mut worker = worker(backend, "a", P0).await;

    let batch = worker.claim(ALL).await;

    let row = fixture.row(batch.rows[0].id).await;
    assert_eq!(
        (row.status, row.lease_owner, row.lease_version),
        (RowStatus::InFlight, Some(instance("a")), batch.token)
    );
    let view = fixture.view(P0).await;
    assert_eq!((view.open_batch, view.counter), (Some(batch.token), batch.token));
}

pub(super) async fn tokens_grow_and_are_never_reused<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(4, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let mut last = 0;

    for _ in 0..4 {
        let batch = worker.claim(1).await;
        assert!(batch.token > last);
        last = batch.token;
        worker.settle(&batch).await;
        worker.reacquire(AcquireReason::OutcomeUnknown).await;
    }
}

pub(super) async fn an_empty_claim_leaves_the_counter_unchanged<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut worker = worker(backend, "a", P0).await;

    assert_eq!(worker.expect_nothing_due().await, (None, false));

    assert_eq!(fixture.view(P0).await.counter, worker.fence.counter);
    fixture.place_order(P0).await;
    worker.claim(ALL).await;
}

pub(super) async fn a_claim_returns_the_time_by_the_stores_clock<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    fixture.advance(HOUR).await;

    let first = worker.claim(1).await;
    let (_, second) = worker.settle_and_claim(&first, 1).await;

    for batch in [first, claimed_batch(second)] {
        let age = batch.store_time.since(batch.rows[0].created_at);
        assert!(age >= HOUR && age < HOUR + SECOND * 120, "{age:?}");
    }
}

pub(super) async fn a_claim_needs_the_right_owner_epoch_and_counter<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_order(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let right = worker.fence.clone();
    let wrong = [
        LeaseFence { owner: instance("b"), ..right.clone() },
        LeaseFence { epoch: right.epoch + 1, ..right.clone() },
        LeaseFence { epoch: right.epoch.wrapping_sub(1), ..right.clone() },
        LeaseFence { counter: right.counter + 1, ..right.clone() },
        LeaseFence { counter: right.counter.wrapping_sub(1), ..right.clone() },
        LeaseFence { partition: P1, ..right.clone() },
    ];

    for fence in wrong {
        let claim = Claim { fence, session: worker.session.clone(), limit: ALL, kind: ClaimKind::Ordinary };
        let claimed = backend.outbox().claim(claim.clone()).await.expect("the call succeeds");
        assert!(matches!(claimed, ClaimOutcome::Fenced), "{claim:?} → {claimed:?}");
    }
    assert_eq!(fixture.depth().await.in_flight, 0);
    assert_eq!(worker.claim(ALL).await.rows[0].attempt, 1, "a refused claim counts no attempt");
}

pub(super) async fn a_claim_needs_an_unexpired_lease<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_order(P0).await;
    let acquired = acquire_free(backend, "a", P0, HOUR).await;
    fixture.advance(HOUR + SECOND).await;

    let claim =
        Claim { fence: acquired.fence, session: ProducerSessionId("a-0".into()), limit: 1, kind: ClaimKind::Ordinary };
    let claimed = backend.outbox().claim(claim).await.expect("the call succeeds");

    assert!(matches!(claimed, ClaimOutcome::Fenced), "{claimed:?}");
    assert_eq!(fixture.depth().await.pending, 1);
}

pub(super) async fn no_second_batch_is_claimed_while_one_is_open<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let open = worker.claim(1).await;

    assert!(matches!(worker.try_claim(1, ClaimKind::Ordinary).await, ClaimOutcome::Fenced));

    assert_eq!(fixture.depth().await.pending, 1);
    assert_eq!(worker.settle(&open).await, 1);
    worker.claim(1).await;
}

pub(super) async fn attempts_are_counted_at_the_claim<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_order(P0).await;
    let mut worker = worker(backend, "a", P0).await;

    let batch = worker.claim(ALL).await;

    assert_eq!(batch.rows[0].attempt, 1);
    assert_eq!(fixture.row(batch.rows[0].id).await.retry_count, 1, "counted while the row is in flight");
}

pub(super) async fn a_row_without_payload_is_claimed_and_not_skipped<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.place_order(P0).await;
    let row = fixture.rows_of(order.id).await[0].id;
    backend.delete_payload(row).await;
    let mut worker = worker(backend, "a", P0).await;

    let mut batch = worker.claim(ALL).await;

    assert_eq!(batch.rows[0].payload, None, "the row is never skipped silently");
    worker.exclude(&[exclusion(row, Disposition::ParkKey)], &mut batch).await;
    assert_eq!(fixture.row(row).await.status, RowStatus::Parked);
}
