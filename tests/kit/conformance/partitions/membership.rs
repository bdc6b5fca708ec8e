//! Cases of `PartitionLeases`: heartbeats and the live members they count.
use std::time::Duration;

use ports::partitions::InstanceRank;

use crate::backend::Backend;
use crate::conformance::fixture::backend::{SECOND, fixture, instance};
use crate::conformance::partitions::fixture::{MEMBER_DEAD_AFTER, heartbeat};

pub(super) async fn members_see_each_other<B: Backend>(backend: &B) {
    assert_eq!(heartbeat(backend, "b").await, [instance("b")]);
    heartbeat(backend, "c").await;
    heartbeat(backend, "a").await;

    // The fixture compares the rank that each heartbeat returns.
    for name in ["a", "b", "c"] {
        assert_eq!(heartbeat(backend, name).await, [instance("a"), instance("b"), instance("c")]);
    }
}

pub(super) async fn members_are_ranked_by_the_bytes_of_their_names<B: Backend>(backend: &B) {
    for name in ["b", "B", "a-10", "a-9", "a_1"] {
        heartbeat(backend, name).await;
    }

    assert_eq!(heartbeat(backend, "b").await, ["B", "a-10", "a-9", "a_1", "b"].map(instance));
}

pub(super) async fn a_member_without_heartbeat_is_dead<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    heartbeat(backend, "a").await;
    fixture.advance(MEMBER_DEAD_AFTER / 2).await;
    assert_eq!(heartbeat(backend, "b").await, [instance("a"), instance("b")]);

    fixture.advance(MEMBER_DEAD_AFTER / 2 + SECOND).await;

    assert_eq!(heartbeat(backend, "b").await, [instance("b")]);
    assert_eq!(
        heartbeat(backend, "a").await,
        [instance("a"), instance("b")],
        "a new heartbeat makes the member alive again"
    );
}

pub(super) async fn a_member_is_dead_by_its_own_limit<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let heartbeat = async |name: &str, dead_after: Duration| {
        backend.leases().heartbeat(&instance(name), dead_after).await.expect("the heartbeat is stored")
    };
    heartbeat("patient", MEMBER_DEAD_AFTER * 4).await;
    heartbeat("hasty", MEMBER_DEAD_AFTER).await;
    fixture.advance(MEMBER_DEAD_AFTER * 2).await;

    let rank = heartbeat("z", SECOND).await;

    assert_eq!(rank, InstanceRank { rank: 1, live: 2 }, "only the member with the longer limit is alive");
}

pub(super) async fn a_member_that_left_is_not_alive<B: Backend>(backend: &B) {
    heartbeat(backend, "a").await;
    heartbeat(backend, "b").await;

    backend.leases().leave(&instance("a")).await.expect("the call succeeds");

    assert_eq!(heartbeat(backend, "b").await, [instance("b")]);
}
