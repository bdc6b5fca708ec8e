//! The bound of a mailbox, send and ask, and fairness.

use std::sync::atomic::Ordering::SeqCst;

use futures::future::join_all;
use supervision::{AskError, Mailbox, RootSupervisor, Strategy, actor};
use tokio::time::Instant;

use crate::fixture::{
    Behavior, EventReader, FIVE_SECONDS, ONE_HOUR, Ping, Slow, Worker, WorkerEnv, bus_without_jitter, ms, supervisor,
};

/// A tree of one worker `/w` with this mailbox capacity.
async fn tree_with_capacity(env: &WorkerEnv, capacity: usize) -> (Mailbox<Worker>, RootSupervisor, EventReader) {
    let bus = bus_without_jitter();
    let events = EventReader::subscribe(&bus);
    let (w, spec) = actor(&bus, "/w", capacity, Worker::factory("w", env));
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 1_000).child(spec), bus).await;
    (w, root, events)
}

virtual_time_test!(capacity_bounds_queued_and_in_flight_messages_over_all_clones, {
    let env = WorkerEnv::default();
    let (w, _root, _events) = tree_with_capacity(&env, 8).await;
    let clones: Vec<_> = (0..64).map(|_| w.clone()).collect();
    let deepest = std::cell::Cell::new(0);

    let asks = clones.iter().flat_map(|clone| {
        let deepest = &deepest;
        (0..20).map(move |_| async move {
            let reply = clone.ask(Slow(5, false), ONE_HOUR).await;
            deepest.set(deepest.get().max(clone.depth()));
            reply
        })
    });
    let replies = join_all(asks).await;

    assert!(replies.iter().all(Result::is_ok));
    assert_eq!(env.running_most.load(SeqCst), 8, "the bound is reached and never exceeded");
    assert!(deepest.get() <= 8);
    assert_eq!((w.depth(), w.capacity()), (0, 8));
});

virtual_time_test!(try_send_accepts_exactly_as_many_messages_as_there_are_permits, {
    let env = WorkerEnv::default();
    let (w, _root, _events) = tree_with_capacity(&env, 8).await;

    let taken = (0..100).filter(|_| w.clone().try_send(Slow(50, false)).is_ok()).count();
    let (error, _message) = w.try_send(Ping).unwrap_err();

    assert_eq!((taken, error, w.depth()), (8, AskError::Overloaded, 8));
    assert_eq!(w.try_ask(Ping, FIVE_SECONDS).await, Err(AskError::Overloaded));
    tokio::time::sleep(ms(60)).await;
    assert_eq!(w.try_ask(Ping, FIVE_SECONDS).await, Ok((1, 1)));
});

virtual_time_test!(send_waits_for_a_permit, {
    let env = WorkerEnv::default();
    let (w, _root, _events) = tree_with_capacity(&env, 1).await;
    let began = Instant::now();

    for _ in 0..3 {
        w.send(Slow(50, false)).await.unwrap();
    }

    assert!(began.elapsed() >= ms(100) && began.elapsed() < ms(110), "{:?}", began.elapsed());
});

virtual_time_test!(one_deadline_covers_permit_queue_and_work, {
    let env = WorkerEnv::default();
    let (w, _root, _events) = tree_with_capacity(&env, 1).await;
    w.send(Slow(500, false)).await.unwrap();

    assert_eq!(w.ask(Ping, ms(200)).await, Err(AskError::Timeout));
    assert_eq!(w.ask(Ping, ms(1_000)).await, Ok((1, 1)));
    assert_eq!(w.try_ask(Slow(500, false), ms(200)).await, Err(AskError::Timeout));
    assert_eq!(w.try_ask(Ping, FIVE_SECONDS).await, Err(AskError::Overloaded), "work already begun keeps its permit");
    tokio::time::sleep(ms(310)).await;
    assert_eq!(w.try_ask(Ping, FIVE_SECONDS).await, Ok((1, 2)));
});

virtual_time_test!(ask_that_expires_in_the_queue_is_skipped, {
    let env = WorkerEnv::default();
    let (w, _root, mut events) = tree_with_capacity(&env, 8).await;
    w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();

    assert_eq!(w.ask(Ping, ms(20)).await, Err(AskError::Timeout));
    events.wait_for("child_restarted", "/w").await;

    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((2, 1)));
});

virtual_time_test!(permits_are_released_after_panics_kills_and_restarts, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_with_capacity(&env, 8).await;

    for round in 0..40 {
        let work = join_all((0..4).map(|_| w.ask(Slow(10_000, false), ONE_HOUR)));
        let fault = async {
            match round % 3 {
                0 => drop(w.ask(Behavior::Panic, ONE_HOUR).await),
                1 => drop(w.ask(Slow(1, true), ONE_HOUR).await),
                _ => {
                    tokio::task::yield_now().await;
                    root.bus().kill("/w", "test").unwrap();
                }
            }
        };
        let (replies, ()) = tokio::join!(work, fault);
        events.wait_for("child_restarted", "/w").await;
        assert!(replies.iter().all(Result::is_err));
        assert_eq!(w.depth(), 0);
    }

    let taken = (0..100).filter(|_| w.try_send(Slow(1, false)).is_ok()).count();
    assert_eq!(taken, 8);
});

virtual_time_test!(closed_mailbox_refuses_new_messages_fails_waiting_senders_and_finishes_its_queue, {
    let env = WorkerEnv::default();
    let (w, _root, _events) = tree_with_capacity(&env, 1).await;
    let old = tokio::task::spawn_local({
        let w = w.clone();
        async move { w.ask(Slow(100, false), FIVE_SECONDS).await }
    });
    tokio::task::yield_now().await;
    let waits = tokio::task::spawn_local({
        let w = w.clone();
        async move { w.send(Ping).await }
    });
    tokio::task::yield_now().await;

    w.close();

    assert_eq!(waits.await.unwrap(), Err(AskError::Closed));
    assert_eq!(w.try_send(Ping).map_err(|(error, _)| error), Err(AskError::Closed));
    assert_eq!(w.try_ask(Ping, FIVE_SECONDS).await, Err(AskError::Closed));
    assert_eq!(old.await.unwrap(), Ok(()));
});

virtual_time_test!(flooded_actor_yields_to_other_tasks, {
    let env = WorkerEnv::default();
    let (w, root, _events) = tree_with_capacity(&env, 1_000).await;
    for _ in 0..640 {
        w.try_send(Ping).map_err(|(error, _)| error).unwrap();
    }
    let mut depths = Vec::new();

    while w.depth() > 0 {
        depths.push(w.depth());
        tokio::task::yield_now().await;
    }

    assert!(depths.len() >= 10, "the actor yielded: {depths:?}");
    root.shutdown(FIVE_SECONDS).await;
});
