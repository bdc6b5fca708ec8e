//! Restart in place: which state is lost, which survives, and what callers receive.

use std::sync::atomic::Ordering::SeqCst;

use actix::prelude::*;
use supervision::AskError;
use tokio::time::Instant;

use crate::fixture::{Behavior, FIVE_SECONDS, ONE_HOUR, Ping, Slow, WorkerEnv, ms, tree_of_one};

virtual_time_test!(panic_in_a_handler_restarts_in_place_and_keeps_the_mailbox, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_of_one(&env, 3).await;
    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((1, 1)));

    let (failed, second, third) =
        tokio::join!(w.ask(Behavior::Panic, FIVE_SECONDS), w.ask(Ping, FIVE_SECONDS), w.ask(Ping, FIVE_SECONDS));

    assert_eq!(failed, Err(AskError::Closed));
    assert_eq!((second, third), (Ok((2, 1)), Ok((2, 2))));
    let exited = events.wait_for("child_exited", "/w").await;
    assert_eq!((exited.reason, exited.text("detail")), (Some("panic"), Some("failure in handler of w")));
    assert!(exited.text("location").unwrap().contains("tests/tree/fixture.rs:"), "{exited:?}");
    assert_eq!(exited.text("message"), Some("Behavior"));
    assert_eq!((exited.generation, exited.number("mailbox_len")), (1, Some(2)));
    let back = events.wait_for("child_restarted", "/w").await;
    assert_eq!((back.generation, back.number("attempt"), back.number("downtime_ms")), (2, Some(1), Some(50)));
    assert_eq!(root.shutdown(FIVE_SECONDS).await.reason, supervision::ExitReason::Shutdown);
    assert_eq!(w.ask(Ping, ONE_HOUR).await, Err(AskError::Closed));
});

virtual_time_test!(panic_in_a_future_fails_every_in_flight_caller_at_once, {
    let env = WorkerEnv::default();
    let (w, _root, mut events) = tree_of_one(&env, 3).await;
    let began = Instant::now();

    let (other, failed) = tokio::join!(w.ask(Slow(10_000, false), ONE_HOUR), w.ask(Slow(40, true), ONE_HOUR));

    assert_eq!((other, failed), (Err(AskError::Closed), Err(AskError::Closed)));
    assert!(began.elapsed() < ms(45), "callers fail at the panic, not after the back-off: {:?}", began.elapsed());
    let exited = events.wait_for("child_exited", "/w").await;
    assert_eq!((exited.text("message"), exited.number("in_flight_lost")), (Some("Slow"), Some(1)));
    assert_eq!(
        exited.text("in_progress"),
        Some("40 ms of work; 10000 ms of work"),
        "the work that panicked comes first"
    );
    events.wait_for("child_restarted", "/w").await;
    assert_eq!((w.ask(Ping, FIVE_SECONDS).await, w.depth()), (Ok((2, 1)), 0));
    assert_eq!(w.ask(Behavior::Panic, FIVE_SECONDS).await, Err(AskError::Closed));
    assert_eq!(
        events.wait_for("child_exited", "/w").await.text("in_progress"),
        None,
        "what is done or lost is not in progress"
    );
});

virtual_time_test!(work_in_progress_is_described_while_the_actor_runs, {
    let (w, root, _events) = tree_of_one(&WorkerEnv::default(), 3).await;
    assert_eq!(root.bus().in_progress("/w"), None);

    let described = async {
        tokio::time::sleep(ms(10)).await;
        root.bus().in_progress("/w")
    };
    let (done, text) = tokio::join!(w.ask(Slow(40, false), ONE_HOUR), described);

    assert_eq!((done, text.as_deref()), (Ok(()), Some("40 ms of work")));
    assert_eq!((root.bus().in_progress("/w"), root.bus().in_progress("/unknown")), (None, None));
});

virtual_time_test!(panic_in_a_timer_or_a_spawned_future_restarts_the_actor, {
    let env = WorkerEnv::default();
    let (w, _root, mut events) = tree_of_one(&env, 3).await;

    assert_eq!(w.ask(Behavior::PanicInTimer, FIVE_SECONDS).await, Ok(()));
    let exited = events.wait_for("child_exited", "/w").await;
    events.wait_for("child_restarted", "/w").await;
    assert_eq!(w.ask(Behavior::PanicInSpawned, FIVE_SECONDS).await, Ok(()));
    let again = events.wait_for("child_exited", "/w").await;
    events.wait_for("child_restarted", "/w").await;

    assert_eq!((exited.text("detail"), exited.text("message")), (Some("failure in timer"), None));
    assert_eq!(again.text("detail"), Some("failure in spawned"));
    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((3, 1)));
});

virtual_time_test!(permanent_child_that_stops_or_terminates_itself_restarts_with_fresh_state, {
    let env = WorkerEnv::default();
    let (w, _root, mut events) = tree_of_one(&env, 3).await;
    w.ask(Ping, FIVE_SECONDS).await.unwrap();

    w.ask(Behavior::Stop, FIVE_SECONDS).await.unwrap();
    let exited = events.wait_for("child_exited", "/w").await;
    assert_eq!((exited.reason, exited.level), (Some("normal"), tracing::Level::INFO));
    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((2, 1)));

    w.ask(Behavior::Terminate, FIVE_SECONDS).await.unwrap();
    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((3, 1)));
});

virtual_time_test!(addresses_recipients_and_weak_addresses_survive_a_restart, {
    let env = WorkerEnv::default();
    let (w, _root, mut events) = tree_of_one(&env, 3).await;
    let recipient: Recipient<Ping> = w.addr().clone().recipient();
    let weak = w.addr().downgrade();

    w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
    events.wait_for("child_restarted", "/w").await;

    assert_eq!(recipient.send(Ping).await.unwrap(), (2, 1));
    assert_eq!(weak.upgrade().unwrap().send(Ping).await.unwrap(), (2, 2));
});

virtual_time_test!(panic_in_drop_after_a_panic_does_not_end_the_task, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_of_one(&env, 3).await;
    env.fail_drops.store(1, SeqCst);

    let (failed, slow) = tokio::join!(w.ask(Behavior::Panic, FIVE_SECONDS), w.ask(Slow(1_000, false), FIVE_SECONDS));
    assert_eq!((failed, slow), (Err(AskError::Closed), Ok(())));
    events.wait_for("child_restarted", "/w").await;
    env.fail_drops.store(1, SeqCst);

    assert!(root.shutdown(FIVE_SECONDS).await.unfinished.is_empty());
    assert_eq!(env.alive.load(SeqCst), 0);
});

virtual_time_test!(one_instance_exists_at_a_time_and_none_after_shutdown, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_of_one(&env, 3).await;

    for _ in 0..3 {
        w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
        events.wait_for("child_restarted", "/w").await;
        assert_eq!(env.alive.load(SeqCst), 1);
    }

    root.shutdown(FIVE_SECONDS).await;
    assert_eq!(env.alive.load(SeqCst), 0);
});
