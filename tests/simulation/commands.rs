//! Commands at their deadline, and what the cache has after an outcome that is unknown.
use std::time::Duration;

use app::dispatch::{ChangePreconditions, IfMatch};
use app::error::CommandError;
use domain::{OrderId, Status};
use kit::faults::{Call, InjectedFault};
use ports::orders::OrderStore;
use ports::orders::cache::{CachedList, ListKey, ListQuery, ListScope};
use tokio::time::Instant;

use crate::support::environment::Environment;
use crate::support::external_events::external_event;
use crate::support::ledger::Ledger;
use crate::support::process::{Process, TIMEOUT};

#[tokio::test(start_paused = true)]
async fn change_that_was_answered_as_dropped_is_not_committed_later() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    environment.script.once(Call::Read, InjectedFault::Slow(Duration::from_secs(12)));

    let late = process.change(id, Status::Cancelled).await;
    assert!(matches!(late, Err(CommandError::Expired)), "{late:?}");
    process.advance(Duration::from_secs(30)).await;

    let order = process.store.find(id).await.expect("read").expect("it exists");
    assert_eq!((order.status, order.version), (Status::Pending, 0), "the response said that nothing was changed");
    ledger.change_status(&process, id, Status::Processing).await;
    process.wait_until_drained(TIMEOUT).await;
    ledger.assert_guarantees(&process).await;
}

/// The checks before a request may have taken most of its time: a command that is still in its mailbox at the deadline has changed nothing.
#[tokio::test(start_paused = true)]
async fn command_that_waits_in_its_mailbox_is_dropped_at_the_end_of_its_requests_time() {
    let (environment, mut ledger, time_left) = (Environment::new(), Ledger::default(), Duration::from_secs(1));
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    let shards = [0, 1].map(|shard| format!("/order-aggregate-{shard}"));
    for path in shards.iter().map(String::as_str).chain(["/event-intake"]) {
        process.bus().pause(path, "test").expect("it runs");
    }
    let (started, command) = (Instant::now(), external_event("1", Some("p")));

    let created = process.create_with_key_within("k", time_left).await.map(|_| ());
    let changed = process.change_within(id, Status::Cancelled, time_left).await.map(|_| ());
    let published = process.publish_within(command, time_left).await.map(|_| ());

    for dropped in [created, changed, published] {
        assert!(matches!(dropped, Err(CommandError::Expired)), "{dropped:?}");
    }
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    for path in shards.iter().map(String::as_str).chain(["/event-intake"]) {
        process.bus().resume(path, "test").expect("it is paused");
    }
    process.advance(Duration::from_secs(30)).await;
    process.create_with_key("k").await.expect("its key is free");
    process.wait_until_drained(TIMEOUT).await;
    assert_eq!(process.depth().await.sent, 2, "the first order and the repeated one");
}

async fn cached_version(process: &Process, id: OrderId) -> Option<u64> {
    process.cache.get(id).await.expect("read").map(|order| order.version)
}

#[tokio::test(start_paused = true)]
async fn cache_evicts_an_order_after_a_change_with_an_unknown_outcome() {
    for fault in [InjectedFault::UnknownDone, InjectedFault::Slow(Duration::from_secs(12))] {
        let (environment, mut ledger) = (Environment::new(), Ledger::default());
        let process = environment.start().await;
        let id = ledger.create_order(&process).await;
        let before = process.cache.get(id).await.expect("read").expect("the create has cached it");
        environment.script.once(Call::Commit, fault);

        let unknown = process.change(id, Status::Processing).await;

        assert!(matches!(unknown, Err(CommandError::Unknown(_))), "{fault:?}: {unknown:?}");
        assert_eq!(cached_version(&process, id).await, None, "{fault:?}: it is read after the change");
        // Another reader has read it before the commit took effect.
        process.cache.put(before, Duration::ZERO).await.expect("cached");
        assert_eq!(cached_version(&process, id).await, None, "{fault:?}: the change may be committed");
    }
}

#[tokio::test(start_paused = true)]
async fn cache_evicts_an_order_that_was_read_before_a_change_without_a_reply_ended() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    let before = process.cache.get(id).await.expect("read").expect("the create has cached it");
    environment.script.once(Call::Commit, InjectedFault::SlowReply(Duration::from_secs(12)));
    let unknown = process.change(id, Status::Processing).await;
    assert!(matches!(unknown, Err(CommandError::Unknown(_))), "{unknown:?}");

    // A read that began before the commit caches what it has found, and the shard dies before it caches the change.
    process.cache.put(before, Duration::ZERO).await.expect("cached");
    panic_shards(&process);
    process.advance(Duration::from_secs(30)).await;

    assert_eq!(cached_version(&process, id).await, None, "the change is committed");
    let order = process.store.find(id).await.expect("read").expect("it exists");
    assert_eq!(order.version, 1);
}

fn panic_shards(process: &Process) {
    for shard in 0..2 {
        process.bus().panic(&format!("/order-aggregate-{shard}"), "test").expect("it runs");
    }
}

/// The client is asked to repeat the request with the same key, so the key must not be locked.
#[tokio::test(start_paused = true)]
async fn create_with_an_unknown_outcome_can_be_repeated_at_once_with_its_key() {
    for fault in [InjectedFault::UnknownDone, InjectedFault::UnknownNotDone] {
        let environment = Environment::new();
        let process = environment.start().await;
        environment.script.once(Call::Commit, fault);

        let unknown = process.create_with_key("k").await;
        assert!(matches!(unknown, Err(CommandError::Unknown(_))), "{fault:?}: {unknown:?}");
        let order = process.create_with_key("k").await.expect("the order of the first request, or a new one");
        let again = process.create_with_key("k").await.expect("the same order");

        assert_eq!(order.id, again.id);
        process.wait_until_drained(TIMEOUT).await;
        assert_eq!(process.depth().await.sent, 1, "{fault:?}: one order");
    }
}

/// The store has locked the key, and the shard dies before it receives the reply.
#[tokio::test(start_paused = true)]
async fn create_can_be_repeated_at_once_after_its_shard_died_while_taking_the_key() {
    for fault in [InjectedFault::SlowReply(Duration::from_secs(2)), InjectedFault::UnknownDone] {
        let environment = Environment::new();
        let process = environment.start().await;
        environment.script.once(Call::BeginKey, fault);
        environment.script.once(Call::Read, InjectedFault::Slow(Duration::from_secs(2)));
        let panic = async {
            process.advance(Duration::from_secs(1)).await;
            panic_shards(&process);
        };

        let (lost, ()) = futures::join!(process.create_with_key("k"), panic);
        assert!(matches!(lost, Err(CommandError::ActorDown)), "{fault:?}: {lost:?}");
        let repeated = process.create_with_key("k").await;

        assert!(repeated.is_ok(), "{fault:?}: {repeated:?}");
    }
}

/// The process that committed the change died before it updated the cache, which all instances share.
#[tokio::test(start_paused = true)]
async fn cache_has_the_version_of_the_store_after_a_change_is_refused() {
    let preconditions = [
        ChangePreconditions { if_match: Some(IfMatch::OneOf(vec![0])), version: None },
        ChangePreconditions { if_match: None, version: Some(0) },
        // Its status forbids another change.
        ChangePreconditions::default(),
    ];
    for preconditions in preconditions {
        let (environment, mut ledger) = (Environment::new(), Ledger::default());
        let process = environment.start().await;
        let id = ledger.create_order(&process).await;
        let before = process.cache.get(id).await.expect("read").expect("the create has cached it");
        process.change(id, Status::Cancelled).await.expect("changed");
        process.cache.evict_all().await.expect("emptied");
        process.cache.put(before, Duration::ZERO).await.expect("cached");
        let key = ListKey { scope: ListScope::All, query: ListQuery::Count { status: Some(Status::Pending) } };
        let generation = process.cache.get_list(&key).await.expect("read").generation;
        process.cache.put_list(&key, generation, CachedList::Count(1), Duration::ZERO).await.expect("cached");

        let refused = process.change_if(id, Status::Processing, preconditions.clone()).await;

        let is_refused =
            matches!(refused, Err(CommandError::PreconditionFailed { current: 1 } | CommandError::Conflict(_)));
        assert!(is_refused, "{preconditions:?}: {refused:?}");
        assert_eq!(cached_version(&process, id).await, Some(1), "{preconditions:?}");
        assert_eq!(process.cache.get_list(&key).await.expect("read").found, None, "{preconditions:?}");
    }
}
