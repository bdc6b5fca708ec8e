//! Cases of `PartitionLeases`: the survey, from which an instance below its share chooses partitions.
use ports::partitions::{AcquireReason, Acquisition, InstanceLoad, LeaseSurvey, PartitionNo};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{HOUR, P0, P1, SECOND, fixture, instance};
use crate::conformance::fixture::worker::acquire_free;
use crate::conformance::partitions::fixture::{LONG, MEMBER_DEAD_AFTER, acquire, heartbeat, survey};

const P2: PartitionNo = PartitionNo(2);

fn load(name: &str, held: u32) -> InstanceLoad {
    InstanceLoad { instance: instance(name), held }
}

/// Every partition but these.
fn all_but<B: Backend>(backend: &B, held: &[PartitionNo]) -> Vec<PartitionNo> {
    (0..backend.partitions()).map(PartitionNo).filter(|partition| !held.contains(partition)).collect()
}

/// The partitions that a survey offers, in numeric order.
fn offered(survey: &LeaseSurvey) -> Vec<PartitionNo> {
    let mut offered: Vec<PartitionNo> = survey.free.iter().map(|free| free.partition).collect();
    offered.sort();
    offered
}

pub(super) async fn a_survey_shows_the_leases_of_each_live_member_and_what_is_free<B: Backend>(backend: &B) {
    for name in ["b", "c", "a"] {
        heartbeat(backend, name).await;
    }
    acquire_free(backend, "b", P2, LONG).await;
    acquire_free(backend, "b", P0, LONG).await;
    acquire_free(backend, "c", P1, LONG).await;

    let [of_b, of_a] = [survey(backend, "b").await, survey(backend, "a").await];

    assert_eq!(of_b.members, [load("a", 0), load("b", 2), load("c", 1)]);
    assert_eq!(of_b.own, [P0, P2]);
    assert_eq!(offered(&of_b), all_but(backend, &[P0, P1, P2]));
    assert_eq!(offered(&of_a), offered(&of_b));
    assert_eq!((of_a.members, of_a.own), (of_b.members, vec![]));
}

pub(super) async fn a_survey_offers_expired_leases_and_those_of_dead_owners<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    acquire_free(backend, "dead", P0, LONG).await;
    heartbeat(backend, "dead").await;
    acquire_free(backend, "late", P1, MEMBER_DEAD_AFTER).await;
    acquire_free(backend, "late", P2, LONG).await;
    assert_eq!(offered(&survey(backend, "late").await), all_but(backend, &[P0, P1, P2]));
    fixture.advance(MEMBER_DEAD_AFTER + SECOND).await;
    heartbeat(backend, "late").await;

    let of_late = survey(backend, "late").await;

    assert_eq!(of_late.members, [load("late", 1)]);
    assert_eq!(of_late.own, [P2], "an expired lease is not held");
    assert_eq!(offered(&of_late), all_but(backend, &[P2]));
}

pub(super) async fn only_partitions_in_a_survey_can_be_acquired<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    // An owner without a heartbeat is not known to be dead: its lease runs until it expires.
    acquire_free(backend, "left", P0, HOUR).await;
    backend.leases().leave(&instance("left")).await.expect("the call succeeds");
    heartbeat(backend, "b").await;
    assert!(!offered(&survey(backend, "b").await).contains(&P0));
    let held = acquire(backend, "b", AcquireReason::Unowned, None).await;
    assert!(matches!(held, Acquisition::Held { .. }), "{held:?}");

    fixture.advance(HOUR + SECOND).await;

    heartbeat(backend, "b").await;
    assert!(offered(&survey(backend, "b").await).contains(&P0));
    let taken = acquire(backend, "b", AcquireReason::Unowned, None).await;
    assert!(matches!(taken, Acquisition::Acquired(_)), "{taken:?}");
    assert_eq!(survey(backend, "b").await.own, [P0]);
}

pub(super) async fn a_survey_offers_the_partition_that_is_free_for_longest_first<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    acquire_free(backend, "dead", P0, LONG).await;
    heartbeat(backend, "dead").await;
    acquire_free(backend, "a", P1, HOUR).await;
    let released = acquire_free(backend, "a", P2, LONG).await.fence;
    // P0's owner dies, the lease of P1 expires, P2 is released.
    fixture.advance(HOUR + SECOND).await;
    backend.leases().release(P2, &released.owner, released.epoch).await.expect("the call succeeds");
    fixture.advance(HOUR).await;

    let free = survey(backend, "a").await.free;

    let (never_owned, owned) = free.split_at(free.len() - 3);
    assert_eq!(owned.iter().map(|free| free.partition).collect::<Vec<_>>(), [P0, P1, P2], "{free:?}");
    assert!(owned[0].idle > HOUR + MEMBER_DEAD_AFTER && owned[2].idle >= HOUR, "{free:?}");
    assert!(owned[2].idle < owned[1].idle, "{free:?}");
    assert_eq!(never_owned.len(), backend.partitions() as usize - 3);
    assert!(never_owned.iter().all(|free| free.idle > owned[0].idle), "{free:?}");
}
