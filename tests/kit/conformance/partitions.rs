//! The suite of `PartitionLeases`: who may move which partition's rows, by the store's clock alone.
use std::time::Duration;

use futures::future::join_all;
use ports::outbox::{BatchOutcome, Claim, ClaimKind, Claimed};
use ports::partitions::{
    AcquireReason, Acquisition, Fence, InstanceId, PartitionNo, ProducerSessionId, Release, Token,
};

use super::given::{Given, HOUR, P0, P1, SECOND, given, instance};
use super::partitions_handover::*;
use super::worker::{ALL, Worker, taken, worker};
use crate::backend::Backend;

suite! { $ partitions:
    every_partition_is_shown_in_order_and_free_at_first,
    a_taken_partition_shows_its_owner,
    members_see_each_other,
    a_heartbeat_that_stays_away_is_death,
    a_member_that_left_is_not_alive,
    what_somebody_alive_holds_is_not_taken,
    of_concurrent_takers_one_wins,
    a_lease_that_ran_out_is_taken,
    a_dead_owners_lease_is_taken_before_it_runs_out,
    a_restarted_instance_takes_its_own_partition_back_at_once,
    every_acquisition_raises_the_epoch,
    acquisition_raises_epoch_and_counter_above_the_watermark,
    a_counter_never_falls,
    an_open_batch_is_handed_to_the_next_owner,
    an_open_batch_stays_until_it_is_resolved_whoever_dies_in_between,
    a_claimer_that_died_is_told_from_one_that_lost_its_lease_alive,
    why_a_worker_takes_its_partition_again_decides_whether_it_died,
    a_partition_that_went_to_another_is_not_taken_again,
    the_former_owner_is_fenced,
    a_renewal_says_which_leases_are_still_ours,
    a_renewal_prolongs,
    a_renewal_never_touches_a_counter,
    an_expired_lease_is_not_renewed,
    a_released_partition_is_free_at_once,
    release_is_refused_while_a_batch_is_in_flight,
    what_is_not_ours_is_not_released,
}

pub(super) const LONG: Duration = Duration::from_secs(86_400);
const DEAD_AFTER: Duration = Duration::from_secs(15 * 60);

pub(super) async fn beat<B: Backend>(backend: &B, name: &str) -> Vec<(InstanceId, bool)> {
    let members = backend.leases().heartbeat(&instance(name), DEAD_AFTER).await.expect("a heartbeat is heard");
    members.into_iter().map(|member| (member.instance, member.alive)).collect()
}

pub(super) async fn acquire<B: Backend>(
    backend: &B,
    name: &str,
    because: AcquireReason,
    watermark: Option<Token>,
) -> Acquisition {
    let answer = backend.leases().acquire(P0, &instance(name), because, watermark, LONG).await;
    answer.expect("an acquisition is answered")
}

fn fence(acquisition: Acquisition) -> Fence {
    match acquisition {
        Acquisition::Taken(acquired) => acquired.fence,
        held @ Acquisition::Held { .. } => panic!("{held:?}"),
    }
}

/// An owner with a row in hand.
pub(super) async fn busy<'b, B: Backend>(given: &Given<'b, B>, name: &str, ttl: Duration) -> (Worker<'b, B>, Token) {
    given.placed(P0).await;
    let mut worker = Worker::of(given.backend, taken(given.backend, name, P0, ttl).await.fence);
    beat(given.backend, name).await;
    let token = worker.claim(ALL).await.token;
    (worker, token)
}

async fn every_partition_is_shown_in_order_and_free_at_first<B: Backend>(backend: &B) {
    let views = backend.leases().overview().await.expect("an overview");

    let shown: Vec<PartitionNo> = views.iter().map(|view| view.partition).collect();
    assert_eq!(shown, (0..backend.partitions()).map(PartitionNo).collect::<Vec<_>>());
    assert!(views.iter().all(|view| view.owner.is_none() && view.in_flight.is_none() && view.depth == 0));
}

async fn a_taken_partition_shows_its_owner<B: Backend>(backend: &B) {
    let given = given(backend);
    let fence = taken(backend, "a", P1, LONG).await.fence;

    let view = given.view(P1).await;

    assert_eq!((view.owner, view.epoch, view.counter), (Some(instance("a")), fence.epoch, fence.counter));
    assert!(view.expires_at.is_some());
    assert_eq!((fence.partition, &*fence.owner.0), (P1, "a"));
    assert_eq!(given.view(P0).await.owner, None);
}

async fn members_see_each_other<B: Backend>(backend: &B) {
    assert_eq!(beat(backend, "a").await, [(instance("a"), true)]);
    beat(backend, "b").await;

    let mut seen = beat(backend, "a").await;

    seen.sort();
    assert_eq!(seen, [(instance("a"), true), (instance("b"), true)]);
}

async fn a_heartbeat_that_stays_away_is_death<B: Backend>(backend: &B) {
    let given = given(backend);
    beat(backend, "a").await;
    given.advance(DEAD_AFTER / 2).await;
    assert!(beat(backend, "b").await.contains(&(instance("a"), true)));

    given.advance(DEAD_AFTER / 2 + SECOND).await;

    let seen = beat(backend, "b").await;
    assert!(seen.contains(&(instance("b"), true)) && !seen.contains(&(instance("a"), true)), "{seen:?}");
    assert!(beat(backend, "a").await.contains(&(instance("a"), true)), "it lives again");
}

async fn a_member_that_left_is_not_alive<B: Backend>(backend: &B) {
    beat(backend, "a").await;
    beat(backend, "b").await;

    backend.leases().leave(&instance("a")).await.expect("answered");

    assert!(!beat(backend, "b").await.contains(&(instance("a"), true)));
}

async fn what_somebody_alive_holds_is_not_taken<B: Backend>(backend: &B) {
    let given = given(backend);
    let owned = taken(backend, "a", P0, HOUR).await.fence;
    beat(backend, "b").await;
    let before = given.view(P0).await;

    let held = acquire(backend, "b", AcquireReason::Vacant, Some(500)).await;

    let Acquisition::Held { by, remaining } = held else { panic!("{held:?}") };
    assert_eq!(by, instance("a"));
    assert!(remaining <= HOUR && remaining > HOUR - SECOND * 30, "{remaining:?}");
    assert_eq!(given.view(P0).await, before);
    assert_eq!(before.epoch, owned.epoch);
}

async fn of_concurrent_takers_one_wins<B: Backend>(backend: &B) {
    let names: Vec<String> = (0..8).map(|taker| format!("taker-{taker}")).collect();
    for name in &names {
        beat(backend, name).await;
    }

    let answers = join_all(names.iter().map(|name| acquire(backend, name, AcquireReason::Vacant, None))).await;

    let winners: Vec<_> = answers.iter().filter(|answer| matches!(answer, Acquisition::Taken(_))).collect();
    assert_eq!(winners.len(), 1, "{answers:?}");
}

async fn a_lease_that_ran_out_is_taken<B: Backend>(backend: &B) {
    let given = given(backend);
    let first = taken(backend, "a", P0, HOUR).await.fence;
    given.advance(HOUR + SECOND).await;
    beat(backend, "a").await;
    beat(backend, "b").await;

    let second = fence(acquire(backend, "b", AcquireReason::Vacant, None).await);

    assert!(second.epoch > first.epoch);
    assert_eq!(given.view(P0).await.owner, Some(instance("b")));
}

async fn a_dead_owners_lease_is_taken_before_it_runs_out<B: Backend>(backend: &B) {
    let given = given(backend);
    let first = taken(backend, "a", P0, LONG).await.fence;
    beat(backend, "a").await;
    given.advance(DEAD_AFTER + SECOND).await;
    beat(backend, "b").await;

    let second = fence(acquire(backend, "b", AcquireReason::Vacant, None).await);

    assert!(second.epoch > first.epoch);
}

async fn a_restarted_instance_takes_its_own_partition_back_at_once<B: Backend>(backend: &B) {
    let given = given(backend);
    let (worker, token) = busy(&given, "a", LONG).await;

    let acquisition = acquire(backend, "a", AcquireReason::Vacant, None).await;

    let Acquisition::Taken(acquired) = acquisition else { panic!("{acquisition:?}") };
    assert!(acquired.fence.epoch > worker.fence.epoch);
    let open = acquired.in_flight.expect("the batch of its former life is open");
    assert_eq!((open.token, open.session, open.claimer_died), (token, worker.lane, true));
}

async fn every_acquisition_raises_the_epoch<B: Backend>(backend: &B) {
    let mut epoch = fence(acquire(backend, "a", AcquireReason::Vacant, None).await).epoch;

    for because in
        [AcquireReason::Vacant, AcquireReason::WorkerDied, AcquireReason::Uncertain, AcquireReason::Uncertain]
    {
        let next = fence(acquire(backend, "a", because, None).await).epoch;
        assert!(next > epoch, "{because:?}");
        epoch = next;
    }
}

async fn acquisition_raises_epoch_and_counter_above_the_watermark<B: Backend>(backend: &B) {
    let given = given(backend);
    given.placed(P0).await;
    let first = fence(acquire(backend, "a", AcquireReason::Vacant, None).await);

    let second = fence(acquire(backend, "a", AcquireReason::Vacant, Some(1_000)).await);

    assert!(second.epoch > first.epoch);
    assert!(second.counter > 1_000, "{}", second.counter);
    assert_eq!(given.view(P0).await.counter, second.counter);
    assert!(Worker::of(backend, second).claim(ALL).await.token > 1_000);
}

async fn a_counter_never_falls<B: Backend>(backend: &B) {
    let high = fence(acquire(backend, "a", AcquireReason::Vacant, Some(1_000)).await).counter;

    for (because, watermark) in
        [(AcquireReason::Vacant, Some(5)), (AcquireReason::WorkerDied, None), (AcquireReason::Uncertain, None)]
    {
        assert!(fence(acquire(backend, "a", because, watermark).await).counter >= high);
    }
}

async fn a_partition_that_went_to_another_is_not_taken_again<B: Backend>(backend: &B) {
    let given = given(backend);
    taken(backend, "a", P0, HOUR).await;
    given.advance(HOUR + SECOND).await;
    taken(backend, "b", P0, LONG).await;
    beat(backend, "a").await;

    for because in [AcquireReason::WorkerDied, AcquireReason::Uncertain] {
        let held = acquire(backend, "a", because, None).await;
        assert!(matches!(&held, Acquisition::Held { by, .. } if *by == instance("b")), "{because:?}: {held:?}");
    }
}

async fn the_former_owner_is_fenced<B: Backend>(backend: &B) {
    let given = given(backend);
    given.placed(P0).await;
    let former = taken(backend, "a", P0, HOUR).await.fence;
    given.advance(HOUR + SECOND).await;
    worker(backend, "b", P0).await;

    let claim =
        Claim { fence: former.clone(), session: ProducerSessionId("a-0".into()), limit: 1, kind: ClaimKind::Ordinary };
    assert!(matches!(backend.outbox().claim(claim).await.expect("answered"), Claimed::Fenced));
    let release = backend.leases().release(P0, &former.owner, former.epoch).await.expect("answered");
    assert_eq!(release, Release::NotOurs);
    let renewed = backend.leases().renew(&former.owner, &[(P0, former.epoch)], LONG).await.expect("answered");
    assert_eq!(renewed, []);
    assert_eq!(given.view(P0).await.owner, Some(instance("b")));
}

async fn a_renewal_says_which_leases_are_still_ours<B: Backend>(backend: &B) {
    let here = taken(backend, "a", P0, HOUR).await.fence;
    let there = taken(backend, "b", P1, HOUR).await.fence;
    let renew =
        async |held: &[(PartitionNo, u64)]| backend.leases().renew(&instance("a"), held, HOUR).await.expect("answered");

    assert_eq!(renew(&[(P0, here.epoch), (P1, there.epoch)]).await, [P0]);
    assert_eq!(renew(&[(P0, here.epoch + 1)]).await, []);
    assert_eq!(renew(&[]).await, []);
    let again = taken(backend, "a", P0, HOUR).await.fence;
    assert_eq!(renew(&[(P0, here.epoch)]).await, [], "an older epoch of our own is not ours");
    assert_eq!(renew(&[(P0, again.epoch)]).await, [P0]);
}

async fn a_renewal_prolongs<B: Backend>(backend: &B) {
    let given = given(backend);
    let fence = taken(backend, "a", P0, HOUR).await.fence;
    for _ in 0..3 {
        given.advance(HOUR / 2).await;
        backend.leases().renew(&fence.owner, &[(P0, fence.epoch)], HOUR).await.expect("answered");
    }
    beat(backend, "a").await;
    beat(backend, "b").await;

    let held = acquire(backend, "b", AcquireReason::Vacant, None).await;

    let Acquisition::Held { remaining, .. } = held else { panic!("it was prolonged: {held:?}") };
    assert!(remaining <= HOUR && remaining > HOUR - SECOND * 30, "to an hour from the last renewal: {remaining:?}");
}

async fn a_renewal_never_touches_a_counter<B: Backend>(backend: &B) {
    let given = given(backend);
    let (mut worker, _) = busy(&given, "a", HOUR).await;
    let before = given.view(P0).await;

    backend.leases().renew(&instance("a"), &[(P0, before.epoch)], HOUR * 2).await.expect("answered");

    let after = given.view(P0).await;
    assert_eq!((after.counter, after.epoch, after.in_flight), (before.counter, before.epoch, before.in_flight));
    assert!(after.expires_at > before.expires_at);
    worker.resolve(before.in_flight.expect("open"), BatchOutcome::NotSent).await;
    worker.claim(ALL).await;
}

async fn an_expired_lease_is_not_renewed<B: Backend>(backend: &B) {
    let given = given(backend);
    let fence = taken(backend, "a", P0, HOUR).await.fence;
    given.advance(HOUR + SECOND).await;

    let renewed = backend.leases().renew(&fence.owner, &[(P0, fence.epoch)], HOUR).await.expect("answered");

    assert_eq!(renewed, [], "the right to act has ended: acquire again");
}

async fn a_released_partition_is_free_at_once<B: Backend>(backend: &B) {
    let given = given(backend);
    given.placed(P0).await;
    let mut first = worker(backend, "a", P0).await;
    first.drain(ALL).await;

    let release = backend.leases().release(P0, &instance("a"), first.fence.epoch).await.expect("answered");
    assert_eq!(release, Release::Done);
    assert_eq!(given.view(P0).await.owner, None);
    assert!(matches!(first.ask(1, ClaimKind::Ordinary).await, Claimed::Fenced));

    let next = taken(backend, "b", P0, LONG).await;
    assert!(next.fence.epoch > first.fence.epoch && next.fence.counter >= first.fence.counter);
    assert_eq!(next.in_flight, None);
}

async fn release_is_refused_while_a_batch_is_in_flight<B: Backend>(backend: &B) {
    let given = given(backend);
    let (mut worker, token) = busy(&given, "a", LONG).await;
    let release = async |epoch| backend.leases().release(P0, &instance("a"), epoch).await.expect("answered");
    let epoch = worker.fence.epoch;

    assert_eq!(release(epoch).await, Release::InFlight);
    assert_eq!(given.view(P0).await.owner, Some(instance("a")));

    worker.resolve(token, BatchOutcome::NotSent).await;
    assert_eq!(release(epoch).await, Release::Done);
}

async fn what_is_not_ours_is_not_released<B: Backend>(backend: &B) {
    let given = given(backend);
    let fence = taken(backend, "a", P0, LONG).await.fence;
    let release =
        async |name: &str, epoch| backend.leases().release(P0, &instance(name), epoch).await.expect("answered");

    assert_eq!(release("b", fence.epoch).await, Release::NotOurs);
    assert_eq!(release("a", fence.epoch + 1).await, Release::NotOurs);
    assert_eq!(given.view(P0).await.owner, Some(instance("a")));

    assert_eq!(release("a", fence.epoch).await, Release::Done);
    assert_eq!(release("a", fence.epoch).await, Release::NotOurs);
}
