//! Cases of `PartitionLeases`: an open batch passes to the next owner, with all that is known about it.
use ports::outbox::{BatchOutcome, ClaimKind, Claimed};
use ports::partitions::{AcquireReason, Acquisition};

use super::given::{HOUR, SECOND, given};
use super::partitions::{LONG, acquire, beat, busy};
use super::worker::{ALL, DEAD_AFTER, Worker};
use crate::backend::Backend;

pub(super) async fn an_open_batch_is_handed_to_the_next_owner<B: Backend>(backend: &B) {
    let given = given(backend);
    let (former, token) = busy(&given, "a", LONG).await;
    given.advance(DEAD_AFTER + SECOND).await;
    beat(backend, "b").await;

    let Acquisition::Taken(acquired) = acquire(backend, "b", AcquireReason::Vacant, Some(token + 50)).await else {
        panic!("its owner is dead")
    };

    let open = acquired.in_flight.expect("the batch is open");
    assert_eq!((open.token, open.session), (token, former.lane));
    let mut next = Worker::of(backend, acquired.fence);
    assert!(matches!(next.ask(1, ClaimKind::Ordinary).await, Claimed::Fenced), "not before it is resolved");
    assert_eq!(next.resolve(token, BatchOutcome::NotSent).await, 1);
    assert!(next.claim(ALL).await.token > token + 50);
}

pub(super) async fn an_open_batch_stays_until_it_is_resolved_whoever_dies_in_between<B: Backend>(backend: &B) {
    let given = given(backend);
    let (former, token) = busy(&given, "a", LONG).await;

    for name in ["b", "c", "d"] {
        given.advance(DEAD_AFTER + SECOND).await;
        beat(backend, name).await;
        let Acquisition::Taken(acquired) = acquire(backend, name, AcquireReason::Vacant, None).await else {
            panic!("the one before {name} is dead")
        };
        let open = acquired.in_flight.expect("nobody has resolved it");
        assert_eq!((open.token, &open.session, open.claimer_died), (token, &former.lane, true), "{name} knows as much");
    }
}

pub(super) async fn a_claimer_that_died_is_told_from_one_that_lost_its_lease_alive<B: Backend>(backend: &B) {
    let given = given(backend);
    let (_, token) = busy(&given, "a", HOUR).await;
    given.advance(HOUR + SECOND).await;
    beat(backend, "a").await;
    beat(backend, "b").await;

    let Acquisition::Taken(acquired) = acquire(backend, "b", AcquireReason::Vacant, None).await else {
        panic!("the lease has run out")
    };

    let open = acquired.in_flight.expect("the batch is open");
    assert_eq!((open.token, open.claimer_died), (token, false), "a lives, it was only slow");
}

pub(super) async fn why_a_worker_takes_its_partition_again_decides_whether_it_died<B: Backend>(backend: &B) {
    let given = given(backend);
    for (because, died) in
        [(AcquireReason::WorkerDied, true), (AcquireReason::Uncertain, false), (AcquireReason::Vacant, true)]
    {
        let (mut worker, token) = busy(&given, "a", LONG).await;

        let open = worker.again(because).await.expect("the batch is open");

        assert_eq!((open.token, open.claimer_died), (token, died), "{because:?}");
        worker.resolve(token, BatchOutcome::Published).await;
        assert_eq!(worker.again(because).await, None, "resolved is resolved");
    }
}
