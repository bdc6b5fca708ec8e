//! The bound of an inbox, its ways of asking, and its fairness.

use std::sync::atomic::Ordering::SeqCst;

use futures::future::join_all;
use supervision::{AskError, Inbox, Root, Strategy, actor};
use tokio::time::Instant;

use crate::world::{Act, Ear, Env, LONG, Ping, SOON, Slow, Worker, ms, plain_bus, supervisor};

/// A tree of one worker `/w` that takes so many messages.
async fn bounded(env: &Env, capacity: usize) -> (Inbox<Worker>, Root, Ear) {
    let bus = plain_bus();
    let ear = Ear::on(&bus);
    let (w, spec) = actor(&bus, "/w", capacity, Worker::factory("w", env));
    let root = Root::start(supervisor(Strategy::OneForOne, 1_000).child(spec), bus).await;
    (w, root, ear)
}

story!(the_bound_holds_over_every_clone_and_over_work_in_flight, {
    let env = Env::default();
    let (w, _root, _ear) = bounded(&env, 8).await;
    let clones: Vec<_> = (0..64).map(|_| w.clone()).collect();
    let deepest = std::cell::Cell::new(0);

    let asks = clones.iter().flat_map(|clone| {
        let deepest = &deepest;
        (0..20).map(move |_| async move {
            let answer = clone.ask(Slow(5, false), LONG).await;
            deepest.set(deepest.get().max(clone.depth()));
            answer
        })
    });
    let answers = join_all(asks).await;

    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(env.running_most.load(SeqCst), 8, "the bound is reached and never exceeded");
    assert!(deepest.get() <= 8);
    assert_eq!((w.depth(), w.capacity()), (0, 8));
});

story!(exactly_as_many_tells_are_taken_as_there_are_slots, {
    let env = Env::default();
    let (w, _root, _ear) = bounded(&env, 8).await;

    let taken = (0..100).filter(|_| w.clone().try_tell(Slow(50, false)).is_ok()).count();
    let (error, _message) = w.try_tell(Ping).unwrap_err();

    assert_eq!((taken, error, w.depth()), (8, AskError::Overloaded, 8));
    assert_eq!(w.try_ask(Ping, SOON).await, Err(AskError::Overloaded));
    tokio::time::sleep(ms(60)).await;
    assert_eq!(w.try_ask(Ping, SOON).await, Ok((1, 1)));
});

story!(a_tell_waits_for_its_turn, {
    let env = Env::default();
    let (w, _root, _ear) = bounded(&env, 1).await;
    let began = Instant::now();

    for _ in 0..3 {
        w.tell(Slow(50, false)).await.unwrap();
    }

    assert!(began.elapsed() >= ms(100) && began.elapsed() < ms(110), "{:?}", began.elapsed());
});

story!(one_deadline_stands_over_the_wait_for_a_slot_the_queue_and_the_work, {
    let env = Env::default();
    let (w, _root, _ear) = bounded(&env, 1).await;
    w.tell(Slow(500, false)).await.unwrap();

    assert_eq!(w.ask(Ping, ms(200)).await, Err(AskError::Timeout));
    assert_eq!(w.ask(Ping, ms(1_000)).await, Ok((1, 1)));
    assert_eq!(w.try_ask(Slow(500, false), ms(200)).await, Err(AskError::Timeout));
    assert_eq!(w.try_ask(Ping, SOON).await, Err(AskError::Overloaded), "work already begun keeps its slot");
    tokio::time::sleep(ms(310)).await;
    assert_eq!(w.try_ask(Ping, SOON).await, Ok((1, 2)));
});

story!(an_ask_that_expires_in_the_queue_is_not_worked_on_later, {
    let env = Env::default();
    let (w, _root, mut ear) = bounded(&env, 8).await;
    w.ask(Act::Panic, SOON).await.unwrap_err();

    assert_eq!(w.ask(Ping, ms(20)).await, Err(AskError::Timeout));
    ear.wait("child_restarted", "/w").await;

    assert_eq!(w.ask(Ping, SOON).await, Ok((2, 1)));
});

story!(slots_come_back_after_panics_kills_and_restarts, {
    let env = Env::default();
    let (w, root, mut ear) = bounded(&env, 8).await;

    for round in 0..40 {
        let work = join_all((0..4).map(|_| w.ask(Slow(10_000, false), LONG)));
        let strike = async {
            match round % 3 {
                0 => drop(w.ask(Act::Panic, LONG).await),
                1 => drop(w.ask(Slow(1, true), LONG).await),
                _ => {
                    tokio::task::yield_now().await;
                    root.bus().kill("/w", "test").unwrap();
                }
            }
        };
        let (answers, ()) = tokio::join!(work, strike);
        ear.wait("child_restarted", "/w").await;
        assert!(answers.iter().all(Result::is_err));
        assert_eq!(w.depth(), 0);
    }

    let taken = (0..100).filter(|_| w.try_tell(Slow(1, false)).is_ok()).count();
    assert_eq!(taken, 8);
});

story!(closing_refuses_new_messages_wakes_those_who_wait_and_finishes_the_old, {
    let env = Env::default();
    let (w, _root, _ear) = bounded(&env, 1).await;
    let old = tokio::task::spawn_local({
        let w = w.clone();
        async move { w.ask(Slow(100, false), SOON).await }
    });
    tokio::task::yield_now().await;
    let waits = tokio::task::spawn_local({
        let w = w.clone();
        async move { w.tell(Ping).await }
    });
    tokio::task::yield_now().await;

    w.close();

    assert_eq!(waits.await.unwrap(), Err(AskError::Closed));
    assert_eq!(w.try_tell(Ping).map_err(|(error, _)| error), Err(AskError::Closed));
    assert_eq!(w.try_ask(Ping, SOON).await, Err(AskError::Closed));
    assert_eq!(old.await.unwrap(), Ok(()));
});

story!(a_flood_lets_timers_and_others_run, {
    let env = Env::default();
    let (w, root, _ear) = bounded(&env, 1_000).await;
    for _ in 0..640 {
        w.try_tell(Ping).map_err(|(error, _)| error).unwrap();
    }
    let mut depths = Vec::new();

    while w.depth() > 0 {
        depths.push(w.depth());
        tokio::task::yield_now().await;
    }

    assert!(depths.len() >= 10, "others ran in between: {depths:?}");
    root.shutdown(SOON).await;
});
