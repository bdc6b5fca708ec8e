//! Starts: when a child counts as started, and how a failed start is retried.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use supervision::{Backoff, Options, RootSupervisor, Strategy, actor};
use tokio::time::Instant;

use crate::fixture::{
    Behavior, EventReader, FIVE_SECONDS, Ping, SilentObserver, Worker, WorkerEnv, bus_without_jitter, ms, supervisor,
    tree_of_one, tree_of_three, worker,
};

virtual_time_test!(panic_in_started_is_retried_with_growing_delays, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    env.fail_starts.store(5, SeqCst);
    let began = Instant::now();

    let _root = RootSupervisor::start(supervisor(Strategy::OneForOne, 9).child(spec), bus).await;

    let mut delays = Vec::new();
    for attempt in 1..=5 {
        let failed = events.wait_for("child_start_failed", "/w").await;
        assert_eq!((failed.text("detail"), failed.level), (Some("cannot start w"), tracing::Level::ERROR));
        assert_eq!(failed.number("attempt"), Some(attempt));
        let scheduled = events.wait_for("restart_scheduled", "/w").await;
        assert_eq!(scheduled.level, if attempt < 3 { tracing::Level::INFO } else { tracing::Level::WARN });
        delays.push(scheduled.number("delay_ms").unwrap());
    }
    assert_eq!(delays, [50, 100, 200, 400, 500]);
    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((6, 1)));
    assert!(began.elapsed() >= ms(1_250) && began.elapsed() < ms(1_260), "{:?}", began.elapsed());
});

virtual_time_test!(time_in_failed_starts_does_not_reset_the_back_off, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (_w, spec) = worker(&bus, &env, "/w");
    env.fail_starts.store(300, SeqCst);

    let _root = RootSupervisor::start(supervisor(Strategy::OneForOne, 1_000).child(spec), bus).await;

    for attempt in 1..=300 {
        let scheduled = events.wait_for("restart_scheduled", "/w").await;
        assert_eq!(scheduled.number("attempt"), Some(attempt));
    }
});

#[test]
fn delays_lie_between_min_and_max_and_jitter_shortens_all_but_the_first() {
    let backoff = Backoff::default();

    assert_eq!(backoff.delay(1, 0.99), ms(50));
    assert_eq!((backoff.delay(3, 0.0), backoff.delay(3, 1.0)), (ms(200), ms(170)));
    assert_eq!((backoff.delay(40, 0.0), backoff.delay(u32::MAX, 0.0)), (ms(500), ms(500)));
}

virtual_time_test!(jitter_comes_from_the_random_source_in_options, {
    let env = WorkerEnv::default();
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let random = Arc::new(move || {
        counter.fetch_add(1, SeqCst);
        1.0
    });
    let bus = supervision::SupervisionBus::new(Options { random, ..Options::default() }, Arc::new(SilentObserver));
    let mut events = EventReader::subscribe(&bus);
    let (_w, spec) = worker(&bus, &env, "/w");
    env.fail_starts.store(2, SeqCst);

    let _root = RootSupervisor::start(supervisor(Strategy::OneForOne, 9).child(spec), bus).await;

    events.wait_for("restart_scheduled", "/w").await;
    assert_eq!(events.wait_for("restart_scheduled", "/w").await.number("delay_ms"), Some(90));
    assert_eq!(calls.load(SeqCst), 2);
});

virtual_time_test!(long_uptime_resets_the_back_off_to_its_minimum, {
    let env = WorkerEnv::default();
    let (w, _root, mut events) = tree_of_one(&env, 3).await;
    for expected in [50, 100] {
        w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
        assert_eq!(events.wait_for("restart_scheduled", "/w").await.number("delay_ms"), Some(expected));
        events.wait_for("child_restarted", "/w").await;
    }

    tokio::time::sleep(Duration::from_secs(61)).await;
    w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();

    assert_eq!(events.wait_for("restart_scheduled", "/w").await.number("delay_ms"), Some(50));
});

virtual_time_test!(child_counts_as_started_after_its_asynchronous_start, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    env.start_ms.store(300, SeqCst);
    let early = tokio::task::spawn_local({
        let w = w.clone();
        async move { (w.ask(Ping, FIVE_SECONDS).await, Instant::now()) }
    });
    let began = Instant::now();

    let _root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).child(spec), bus).await;

    assert!(began.elapsed() >= ms(300), "the start waits: {:?}", began.elapsed());
    assert_eq!(events.wait_for("child_started", "/w").await.number("startup_ms"), Some(300));
    let (reply, at) = early.await.unwrap();
    assert_eq!(reply, Ok((1, 1)));
    assert!(at - began >= ms(300));
});

virtual_time_test!(panic_on_the_first_message_is_an_exit_not_a_failed_start, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    w.try_send(Behavior::Panic).map_err(|(error, _)| error).unwrap();

    let _root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).child(spec), bus).await;

    let mut names = vec![events.next().await.event];
    while names.last() != Some(&"child_restarted") {
        names.push(events.next().await.event);
    }
    assert_eq!(names, ["child_started", "child_exited", "restart_scheduled", "child_restarted"]);
});

virtual_time_test!(hanging_start_is_killed_and_retried, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    env.hang_starts.store(1, SeqCst);

    let _root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).child(spec.start_timeout(ms(700))), bus).await;

    assert_eq!(events.wait_for("child_start_failed", "/w").await.reason, Some("start_timeout"));
    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((2, 1)));
});

virtual_time_test!(panic_in_the_factory_is_a_failed_start, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let make = Worker::factory("w", &env);
    let (w, spec) = actor(&bus, "/w", 8, move |incarnation| {
        let generation = incarnation.generation;
        assert!(generation != 1 && generation != 3, "no instance {generation}");
        make(incarnation)
    });

    let _root = RootSupervisor::start(supervisor(Strategy::OneForOne, 9).child(spec), bus).await;

    assert_eq!(events.wait_for("child_start_failed", "/w").await.text("detail"), Some("no instance 1"));
    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((2, 1)));
    w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
    assert_eq!(events.wait_for("child_start_failed", "/w").await.text("detail"), Some("no instance 3"));
    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((4, 1)));
});

virtual_time_test!(children_start_in_order_and_a_failed_start_does_not_delay_the_others, {
    let env = WorkerEnv::default();
    env.fail_starts.store(1, SeqCst);

    let (_inboxes, root, mut events) = tree_of_three(&env, Strategy::OneForOne).await;

    assert_eq!(env.take_trace(), ["+a", "+b", "+c"]);
    assert_eq!(root.bus().snapshot()[0].state, supervision::ActorState::Restarting);
    assert_eq!(events.wait_for("child_restarted", "/a").await.generation, 2);
});
