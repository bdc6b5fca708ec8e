//! Cases of `PartitionLeases`: acquisition of free, expired and abandoned partitions, and the epochs and counters it gives.
use futures::future::join_all;
use ports::outbox::{Claim, ClaimKind, ClaimOutcome};
use ports::partitions::{AcquireReason, Acquisition, PartitionNo, ProducerSessionId, ReleaseOutcome, Renewal};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{HOUR, P0, P1, SECOND, fixture, instance};
use crate::conformance::fixture::worker::{ALL, Worker, acquire_free, worker};
use crate::conformance::partitions::fixture::{
    LONG, MEMBER_DEAD_AFTER, acquire, fence, heartbeat, worker_with_open_batch,
};

pub(super) async fn the_overview_lists_every_partition_in_order_and_free<B: Backend>(backend: &B) {
    let views = backend.leases().overview().await.expect("the overview is read");

    let shown: Vec<PartitionNo> = views.iter().map(|view| view.partition).collect();
    assert_eq!(shown, (0..backend.partitions()).map(PartitionNo).collect::<Vec<_>>());
    assert!(views.iter().all(|view| view.owner.is_none() && view.open_batch.is_none() && view.depth == 0));
}

pub(super) async fn an_acquired_partition_shows_its_owner<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let fence = acquire_free(backend, "a", P1, LONG).await.fence;

    let view = fixture.view(P1).await;

    assert_eq!((view.owner, view.epoch, view.counter), (Some(instance("a")), fence.epoch, fence.counter));
    assert!(view.expires_at.is_some());
    assert_eq!((fence.partition, &*fence.owner.0), (P1, "a"));
    assert_eq!(fixture.view(P0).await.owner, None);
}

pub(super) async fn a_live_owners_unexpired_lease_is_not_taken<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let owned = acquire_free(backend, "a", P0, HOUR).await.fence;
    heartbeat(backend, "b").await;
    let before = fixture.view(P0).await;

    let held = acquire(backend, "b", AcquireReason::Unowned, Some(500)).await;

    let Acquisition::Held { by, remaining } = held else { panic!("{held:?}") };
    assert_eq!(by, instance("a"));
    assert!(remaining <= HOUR && remaining > HOUR - SECOND * 120, "{remaining:?}");
    assert_eq!(fixture.view(P0).await, before);
    assert_eq!(before.epoch, owned.epoch);
}

pub(super) async fn one_of_many_concurrent_acquisitions_wins<B: Backend>(backend: &B) {
    let names: Vec<String> = (0..8).map(|taker| format!("taker-{taker}")).collect();
    for name in &names {
        heartbeat(backend, name).await;
    }

    let results = join_all(names.iter().map(|name| acquire(backend, name, AcquireReason::Unowned, None))).await;

    let winners: Vec<_> = results.iter().filter(|result| matches!(result, Acquisition::Acquired(_))).collect();
    assert_eq!(winners.len(), 1, "{results:?}");
}

pub(super) async fn an_expired_lease_is_taken_over_with_a_higher_epoch<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let first = acquire_free(backend, "a", P0, HOUR).await.fence;
    fixture.advance(HOUR + SECOND).await;
    heartbeat(backend, "a").await;
    heartbeat(backend, "b").await;

    let second = fence(acquire(backend, "b", AcquireReason::Unowned, None).await);

    assert!(second.epoch > first.epoch);
    assert_eq!(fixture.view(P0).await.owner, Some(instance("b")));
}

pub(super) async fn a_dead_owners_lease_is_taken_over_before_it_expires<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let first = acquire_free(backend, "a", P0, LONG).await.fence;
    heartbeat(backend, "a").await;
    fixture.advance(MEMBER_DEAD_AFTER + SECOND).await;
    heartbeat(backend, "b").await;

    let second = fence(acquire(backend, "b", AcquireReason::Unowned, None).await);

    assert!(second.epoch > first.epoch);
}

pub(super) async fn a_restarted_instance_reacquires_its_partition_at_once<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (worker, token) = worker_with_open_batch(&fixture, "a", LONG).await;

    let acquisition = acquire(backend, "a", AcquireReason::Unowned, None).await;

    let Acquisition::Acquired(acquired) = acquisition else { panic!("{acquisition:?}") };
    assert!(acquired.fence.epoch > worker.fence.epoch);
    let open = acquired.open_batch.expect("the batch of the former process is open");
    assert_eq!((open.token, open.session, open.claimer_died), (token, worker.session, true));
}

pub(super) async fn every_acquisition_raises_the_epoch<B: Backend>(backend: &B) {
    let mut epoch = fence(acquire(backend, "a", AcquireReason::Unowned, None).await).epoch;

    for reason in [
        AcquireReason::Unowned,
        AcquireReason::WorkerDied,
        AcquireReason::OutcomeUnknown,
        AcquireReason::OutcomeUnknown,
    ] {
        let next = fence(acquire(backend, "a", reason, None).await).epoch;
        assert!(next > epoch, "{reason:?}");
        epoch = next;
    }
}

pub(super) async fn an_acquisition_raises_the_counter_above_the_watermark<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_order(P0).await;
    let first = fence(acquire(backend, "a", AcquireReason::Unowned, None).await);

    let second = fence(acquire(backend, "a", AcquireReason::Unowned, Some(1_000)).await);

    assert!(second.epoch > first.epoch);
    assert!(second.counter > 1_000, "{}", second.counter);
    assert_eq!(fixture.view(P0).await.counter, second.counter);
    assert!(Worker::of(backend, second).claim(ALL).await.token > 1_000);
}

pub(super) async fn the_counter_never_decreases<B: Backend>(backend: &B) {
    let high = fence(acquire(backend, "a", AcquireReason::Unowned, Some(1_000)).await).counter;

    for (reason, watermark) in
        [(AcquireReason::Unowned, Some(5)), (AcquireReason::WorkerDied, None), (AcquireReason::OutcomeUnknown, None)]
    {
        assert!(fence(acquire(backend, "a", reason, watermark).await).counter >= high);
    }
}

pub(super) async fn a_former_owner_does_not_retake_a_live_owners_partition<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    acquire_free(backend, "a", P0, HOUR).await;
    fixture.advance(HOUR + SECOND).await;
    acquire_free(backend, "b", P0, LONG).await;
    heartbeat(backend, "a").await;

    for reason in [AcquireReason::WorkerDied, AcquireReason::OutcomeUnknown] {
        let held = acquire(backend, "a", reason, None).await;
        assert!(matches!(&held, Acquisition::Held { by, .. } if *by == instance("b")), "{reason:?}: {held:?}");
    }
}

pub(super) async fn the_former_owner_is_fenced<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_order(P0).await;
    let former = acquire_free(backend, "a", P0, HOUR).await.fence;
    fixture.advance(HOUR + SECOND).await;
    worker(backend, "b", P0).await;

    let claim =
        Claim { fence: former.clone(), session: ProducerSessionId("a-0".into()), limit: 1, kind: ClaimKind::Ordinary };
    assert!(matches!(backend.outbox().claim(claim).await.expect("the call succeeds"), ClaimOutcome::Fenced));
    let release = backend.leases().release(P0, &former.owner, former.epoch).await.expect("the call succeeds");
    assert_eq!(release, ReleaseOutcome::NotHeld);
    let renewed = backend.leases().renew(&former.owner, &[(P0, former.epoch)], LONG).await.expect("the call succeeds");
    assert_eq!(renewed, Renewal::default());
    assert_eq!(fixture.view(P0).await.owner, Some(instance("b")));
}
