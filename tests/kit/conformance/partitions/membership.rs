//! Cases of `PartitionLeases`: heartbeats and the members they show.
use crate::backend::Backend;
use crate::conformance::fixture::given::{SECOND, given, instance};
use crate::conformance::partitions::fixture::{MEMBER_DEAD_AFTER, heartbeat};

pub(super) async fn members_see_each_other<B: Backend>(backend: &B) {
    assert_eq!(heartbeat(backend, "a").await, [(instance("a"), true)]);
    heartbeat(backend, "b").await;

    let mut seen = heartbeat(backend, "a").await;

    seen.sort();
    assert_eq!(seen, [(instance("a"), true), (instance("b"), true)]);
}

pub(super) async fn a_member_without_heartbeat_is_dead<B: Backend>(backend: &B) {
    let given = given(backend);
    heartbeat(backend, "a").await;
    given.advance(MEMBER_DEAD_AFTER / 2).await;
    assert!(heartbeat(backend, "b").await.contains(&(instance("a"), true)));

    given.advance(MEMBER_DEAD_AFTER / 2 + SECOND).await;

    let seen = heartbeat(backend, "b").await;
    assert!(seen.contains(&(instance("b"), true)) && !seen.contains(&(instance("a"), true)), "{seen:?}");
    assert!(
        heartbeat(backend, "a").await.contains(&(instance("a"), true)),
        "a new heartbeat makes the member alive again"
    );
}

pub(super) async fn a_member_that_left_is_not_alive<B: Backend>(backend: &B) {
    heartbeat(backend, "a").await;
    heartbeat(backend, "b").await;

    backend.leases().leave(&instance("a")).await.expect("the call succeeds");

    assert!(!heartbeat(backend, "b").await.contains(&(instance("a"), true)));
}
