//! Cases of `OutboxStore`: what a claim takes, and what it needs.
use ports::outbox::{Claim, ClaimKind, Claimed, Disposition, RowStatus};
use ports::partitions::{AcquireReason, Fence, ProducerSessionId};

use super::given::{HOUR, P0, P1, SECOND, given, instance};
use super::worker::{ALL, exclusion, keys, taken, worker};
use crate::backend::Backend;

pub(super) async fn rows_are_claimed_in_id_order_up_to_the_limit<B: Backend>(backend: &B) {
    let given = given(backend);
    let placed = given.many_placed(5, P0).await;
    let mut worker = worker(backend, "a", P0).await;

    let first = worker.claim(3).await;
    worker.settle(&first).await;
    let second = worker.claim(3).await;

    assert_eq!(keys(&first.rows), placed[..3].iter().map(|order| order.id).collect::<Vec<_>>());
    assert!(first.more, "the limit cut it off");
    assert_eq!(keys(&second.rows), placed[3..].iter().map(|order| order.id).collect::<Vec<_>>());
    assert!(!second.more, "nothing was left");
}

pub(super) async fn a_claim_takes_rows_of_its_own_partition_only<B: Backend>(backend: &B) {
    let given = given(backend);
    let (here, there) = (given.placed(P0).await, given.placed(P1).await);
    let (mut a, mut b) = (worker(backend, "a", P0).await, worker(backend, "a", P1).await);

    assert_eq!(keys(&a.claim(ALL).await.rows), [here.id]);
    assert_eq!(keys(&b.claim(ALL).await.rows), [there.id]);
}

pub(super) async fn a_claim_shows_who_has_the_rows_and_under_which_token<B: Backend>(backend: &B) {
    let given = given(backend);
    given.placed(P0).await;
    let mut worker = worker(backend, "a", P0).await;

    let batch = worker.claim(ALL).await;

    let row = given.row(batch.rows[0].id).await;
    assert_eq!(
        (row.status, row.lease_owner, row.lease_version),
        (RowStatus::InFlight, Some(instance("a")), batch.token)
    );
    let view = given.view(P0).await;
    assert_eq!((view.in_flight, view.counter), (Some(batch.token), batch.token));
}

pub(super) async fn tokens_grow_and_are_never_used_again<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(4, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let mut last = 0;

    for _ in 0..4 {
        let batch = worker.claim(1).await;
        assert!(batch.token > last);
        last = batch.token;
        worker.settle(&batch).await;
        worker.again(AcquireReason::Uncertain).await;
    }
}

pub(super) async fn a_claim_that_finds_nothing_leaves_the_counter_alone<B: Backend>(backend: &B) {
    let given = given(backend);
    let mut worker = worker(backend, "a", P0).await;

    assert_eq!(worker.nothing().await, (None, false));

    assert_eq!(given.view(P0).await.counter, worker.fence.counter);
    given.placed(P0).await;
    worker.claim(ALL).await;
}

pub(super) async fn a_claim_needs_the_right_owner_epoch_and_counter<B: Backend>(backend: &B) {
    let given = given(backend);
    given.placed(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let right = worker.fence.clone();
    let wrong = [
        Fence { owner: instance("b"), ..right.clone() },
        Fence { epoch: right.epoch + 1, ..right.clone() },
        Fence { epoch: right.epoch.wrapping_sub(1), ..right.clone() },
        Fence { counter: right.counter + 1, ..right.clone() },
        Fence { counter: right.counter.wrapping_sub(1), ..right.clone() },
        Fence { partition: P1, ..right.clone() },
    ];

    for fence in wrong {
        let claim = Claim { fence, session: worker.lane.clone(), limit: ALL, kind: ClaimKind::Ordinary };
        let claimed = backend.outbox().claim(claim.clone()).await.expect("answered");
        assert!(matches!(claimed, Claimed::Fenced), "{claim:?} → {claimed:?}");
    }
    assert_eq!(given.depth().await.in_flight, 0);
    assert_eq!(worker.claim(ALL).await.rows[0].attempt, 1, "no attempt was counted");
}

pub(super) async fn a_claim_needs_a_lease_that_has_not_run_out<B: Backend>(backend: &B) {
    let given = given(backend);
    given.placed(P0).await;
    let acquired = taken(backend, "a", P0, HOUR).await;
    given.advance(HOUR + SECOND).await;

    let claim =
        Claim { fence: acquired.fence, session: ProducerSessionId("a-0".into()), limit: 1, kind: ClaimKind::Ordinary };
    let claimed = backend.outbox().claim(claim).await.expect("answered");

    assert!(matches!(claimed, Claimed::Fenced), "{claimed:?}");
    assert_eq!(given.depth().await.pending, 1);
}

pub(super) async fn no_second_batch_is_claimed_while_one_is_open<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let open = worker.claim(1).await;

    assert!(matches!(worker.ask(1, ClaimKind::Ordinary).await, Claimed::Fenced));

    assert_eq!(given.depth().await.pending, 1);
    assert_eq!(worker.settle(&open).await, 1);
    worker.claim(1).await;
}

pub(super) async fn attempts_are_counted_at_the_claim<B: Backend>(backend: &B) {
    let given = given(backend);
    given.placed(P0).await;
    let mut worker = worker(backend, "a", P0).await;

    let batch = worker.claim(ALL).await;

    assert_eq!(batch.rows[0].attempt, 1);
    assert_eq!(given.row(batch.rows[0].id).await.retry_count, 1, "already while it is in flight");
}

pub(super) async fn a_row_without_its_payload_is_claimed_without_it<B: Backend>(backend: &B) {
    let given = given(backend);
    let order = given.placed(P0).await;
    let row = given.rows_of(order.id).await[0].id;
    if !backend.lose_payload(row).await {
        return;
    }
    let mut worker = worker(backend, "a", P0).await;

    let batch = worker.claim(ALL).await;

    assert_eq!(batch.rows[0].payload, None, "it is never skipped silently");
    worker.exclude(batch.token, &[exclusion(row, Disposition::ParkKey)]).await;
    assert_eq!(given.row(row).await.status, RowStatus::Parked);
}
