//! Cases of `PartitionLeases`: renewal and release of leases.
use ports::outbox::{BatchOutcome, ClaimKind, ClaimOutcome};
use ports::partitions::{AcquireReason, Acquisition, PartitionNo, ReleaseOutcome, Renewal};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{HOUR, P0, P1, SECOND, fixture, instance};
use crate::conformance::fixture::worker::{ALL, acquire_free, worker};
use crate::conformance::partitions::fixture::{LONG, acquire, heartbeat, worker_with_open_batch};

pub(super) async fn a_renewal_returns_only_the_leases_still_held<B: Backend>(backend: &B) {
    let here = acquire_free(backend, "a", P0, HOUR).await.fence;
    let there = acquire_free(backend, "b", P1, HOUR).await.fence;
    let renew = async |held: &[(PartitionNo, u64)]| {
        backend.leases().renew(&instance("a"), held, HOUR).await.expect("the call succeeds").renewed
    };

    assert_eq!(renew(&[(P0, here.epoch), (P1, there.epoch)]).await, [P0]);
    assert_eq!(renew(&[(P0, here.epoch + 1)]).await, []);
    assert_eq!(renew(&[]).await, []);
    let again = acquire_free(backend, "a", P0, HOUR).await.fence;
    assert_eq!(renew(&[(P0, here.epoch)]).await, [], "an older epoch of the same owner is not renewed");
    assert_eq!(renew(&[(P0, again.epoch)]).await, [P0]);
}

pub(super) async fn a_renewal_extends_the_lease<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let fence = acquire_free(backend, "a", P0, HOUR).await.fence;
    for _ in 0..3 {
        fixture.advance(HOUR / 2).await;
        backend.leases().renew(&fence.owner, &[(P0, fence.epoch)], HOUR).await.expect("the call succeeds");
    }
    heartbeat(backend, "a").await;
    heartbeat(backend, "b").await;

    let held = acquire(backend, "b", AcquireReason::Unowned, None).await;

    let Acquisition::Held { remaining, .. } = held else { panic!("the lease was renewed: {held:?}") };
    assert!(
        remaining <= HOUR && remaining > HOUR - SECOND * 120,
        "the lease expires an hour after the last renewal: {remaining:?}"
    );
}

pub(super) async fn a_renewal_never_changes_the_counter<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, _) = worker_with_open_batch(&fixture, "a", HOUR).await;
    let before = fixture.view(P0).await;

    backend.leases().renew(&instance("a"), &[(P0, before.epoch)], HOUR * 2).await.expect("the call succeeds");

    let after = fixture.view(P0).await;
    assert_eq!((after.counter, after.epoch, after.open_batch), (before.counter, before.epoch, before.open_batch));
    assert!(after.expires_at > before.expires_at);
    worker.resolve(before.open_batch.expect("open"), BatchOutcome::NotSent).await;
    worker.claim(ALL).await;
}

pub(super) async fn an_expired_lease_is_not_renewed<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let fence = acquire_free(backend, "a", P0, HOUR).await.fence;
    fixture.advance(HOUR + SECOND).await;

    let renewed = backend.leases().renew(&fence.owner, &[(P0, fence.epoch)], HOUR).await.expect("the call succeeds");

    assert_eq!(renewed, Renewal::default(), "an expired lease must be acquired again");
}

pub(super) async fn a_released_partition_is_free_at_once<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_order(P0).await;
    let mut first = worker(backend, "a", P0).await;
    first.drain(ALL).await;

    let release = backend.leases().release(P0, &instance("a"), first.fence.epoch).await.expect("the call succeeds");
    assert_eq!(release, ReleaseOutcome::Done);
    assert_eq!(fixture.view(P0).await.owner, None);
    assert!(matches!(first.try_claim(1, ClaimKind::Ordinary).await, ClaimOutcome::Fenced));

    let next = acquire_free(backend, "b", P0, LONG).await;
    assert!(next.fence.epoch > first.fence.epoch && next.fence.counter >= first.fence.counter);
    assert_eq!(next.open_batch, None);
}

pub(super) async fn release_is_refused_while_a_batch_is_in_flight<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, token) = worker_with_open_batch(&fixture, "a", LONG).await;
    let release = async |epoch| backend.leases().release(P0, &instance("a"), epoch).await.expect("the call succeeds");
    let epoch = worker.fence.epoch;

    assert_eq!(release(epoch).await, ReleaseOutcome::InFlight);
    assert_eq!(fixture.view(P0).await.owner, Some(instance("a")));

    worker.resolve(token, BatchOutcome::NotSent).await;
    assert_eq!(release(epoch).await, ReleaseOutcome::Done);
}

pub(super) async fn a_release_needs_the_right_owner_and_epoch<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let fence = acquire_free(backend, "a", P0, LONG).await.fence;
    let release = async |name: &str, epoch| {
        backend.leases().release(P0, &instance(name), epoch).await.expect("the call succeeds")
    };

    assert_eq!(release("b", fence.epoch).await, ReleaseOutcome::NotHeld);
    assert_eq!(release("a", fence.epoch + 1).await, ReleaseOutcome::NotHeld);
    assert_eq!(fixture.view(P0).await.owner, Some(instance("a")));

    assert_eq!(release("a", fence.epoch).await, ReleaseOutcome::Done);
    assert_eq!(release("a", fence.epoch).await, ReleaseOutcome::NotHeld);
}
