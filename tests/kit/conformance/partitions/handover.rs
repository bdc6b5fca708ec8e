//! Cases of `PartitionLeases`: the next owner receives the open batch with its token, its session and whether its claimer died.
use ports::outbox::{BatchOutcome, ClaimKind, ClaimOutcome};
use ports::partitions::{AcquireReason, Acquisition};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{HOUR, SECOND, fixture};
use crate::conformance::fixture::worker::{ALL, DEAD_AFTER, Worker};
use crate::conformance::partitions::fixture::{LONG, acquire, heartbeat, worker_with_open_batch};

pub(super) async fn the_next_owner_receives_the_open_batch<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (former, token) = worker_with_open_batch(&fixture, "a", LONG).await;
    fixture.advance(DEAD_AFTER + SECOND).await;
    heartbeat(backend, "b").await;

    let Acquisition::Acquired(acquired) = acquire(backend, "b", AcquireReason::Unowned, Some(token + 50)).await else {
        panic!("the owner is dead")
    };

    let open = acquired.open_batch.expect("the batch is open");
    assert_eq!((open.token, open.session), (token, former.session));
    let mut next = Worker::of(backend, acquired.fence);
    assert!(
        matches!(next.try_claim(1, ClaimKind::Ordinary).await, ClaimOutcome::Fenced),
        "the open batch is resolved before the next claim"
    );
    assert_eq!(next.resolve(token, BatchOutcome::NotSent).await, 1);
    assert!(next.claim(ALL).await.token > token + 50);
}

pub(super) async fn an_open_batch_survives_several_dead_owners_until_resolved<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (former, token) = worker_with_open_batch(&fixture, "a", LONG).await;

    for name in ["b", "c", "d"] {
        fixture.advance(DEAD_AFTER + SECOND).await;
        heartbeat(backend, name).await;
        let Acquisition::Acquired(acquired) = acquire(backend, name, AcquireReason::Unowned, None).await else {
            panic!("the owner before {name} is dead")
        };
        let open = acquired.open_batch.expect("the batch was not resolved");
        assert_eq!(
            (open.token, &open.session, open.claimer_died),
            (token, &former.session, true),
            "{name} receives token, session and death"
        );
    }
}

pub(super) async fn a_live_claimer_that_lost_its_lease_is_not_reported_dead<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (_, token) = worker_with_open_batch(&fixture, "a", HOUR).await;
    fixture.advance(HOUR + SECOND).await;
    heartbeat(backend, "a").await;
    heartbeat(backend, "b").await;

    let Acquisition::Acquired(acquired) = acquire(backend, "b", AcquireReason::Unowned, None).await else {
        panic!("the lease has expired")
    };

    let open = acquired.open_batch.expect("the batch is open");
    assert_eq!((open.token, open.claimer_died), (token, false), "the claimer is alive and lost its lease");
}

pub(super) async fn the_acquire_reason_decides_whether_the_claimer_died<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    for (reason, died) in
        [(AcquireReason::WorkerDied, true), (AcquireReason::OutcomeUnknown, false), (AcquireReason::Unowned, true)]
    {
        let (mut worker, token) = worker_with_open_batch(&fixture, "a", LONG).await;

        let open = worker.reacquire(reason).await.expect("the batch is open");

        assert_eq!((open.token, open.claimer_died), (token, died), "{reason:?}");
        worker.resolve(token, BatchOutcome::Published).await;
        assert_eq!(worker.reacquire(reason).await, None, "a resolved batch is not open");
    }
}
