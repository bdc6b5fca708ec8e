//! Starting: when a child counts as up, and what happens when it does not come up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use supervision::{Backoff, Options, Root, Strategy, actor};
use tokio::time::Instant;

use crate::world::{Act, Ear, Env, Ping, SOON, Worker, ms, one, plain_bus, supervisor, three, worker};

story!(a_panic_in_started_is_retried_with_growing_delays, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    env.fail_starts.store(5, SeqCst);
    let began = Instant::now();

    let _root = Root::start(supervisor(Strategy::OneForOne, 9).child(spec), bus).await;

    let mut delays = Vec::new();
    for attempt in 1..=5 {
        let failed = ear.wait("child_start_failed", "/w").await;
        assert_eq!((failed.get_text("detail"), failed.level), (Some("cannot start w"), tracing::Level::ERROR));
        assert_eq!(failed.get_number("attempt"), Some(attempt));
        let scheduled = ear.wait("restart_scheduled", "/w").await;
        assert_eq!(scheduled.level, if attempt < 3 { tracing::Level::INFO } else { tracing::Level::WARN });
        delays.push(scheduled.get_number("delay_ms").unwrap());
    }
    assert_eq!(delays, [50, 100, 200, 400, 500]);
    assert_eq!(w.ask(Ping, SOON).await, Ok((6, 1)));
    assert!(began.elapsed() >= ms(1_250) && began.elapsed() < ms(1_260), "{:?}", began.elapsed());
});

story!(a_child_that_has_not_come_up_for_long_is_not_taken_for_a_healthy_one, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (_w, spec) = worker(&bus, &env, "/w");
    env.fail_starts.store(300, SeqCst);

    let _root = Root::start(supervisor(Strategy::OneForOne, 1_000).child(spec), bus).await;

    for attempt in 1..=300 {
        let scheduled = ear.wait("restart_scheduled", "/w").await;
        assert_eq!(scheduled.get_number("attempt"), Some(attempt));
    }
});

#[test]
fn delays_lie_between_min_and_max_and_chance_shortens_all_but_the_first() {
    let backoff = Backoff::default();

    assert_eq!(backoff.delay(1, 0.99), ms(50));
    assert_eq!((backoff.delay(3, 0.0), backoff.delay(3, 1.0)), (ms(200), ms(170)));
    assert_eq!((backoff.delay(40, 0.0), backoff.delay(u32::MAX, 0.0)), (ms(500), ms(500)));
}

story!(the_source_of_chance_is_the_one_handed_in, {
    let env = Env::default();
    let asked = Arc::new(AtomicUsize::new(0));
    let source = asked.clone();
    let random = Arc::new(move || {
        source.fetch_add(1, SeqCst);
        1.0
    });
    struct Deaf;
    impl supervision::Observer for Deaf {}
    let bus = supervision::Bus::new(Options { random, ..Options::default() }, Arc::new(Deaf));
    let mut ear = Ear::on(&bus);
    let (_w, spec) = worker(&bus, &env, "/w");
    env.fail_starts.store(2, SeqCst);

    let _root = Root::start(supervisor(Strategy::OneForOne, 9).child(spec), bus).await;

    ear.wait("restart_scheduled", "/w").await;
    assert_eq!(ear.wait("restart_scheduled", "/w").await.get_number("delay_ms"), Some(90));
    assert_eq!(asked.load(SeqCst), 2);
});

story!(a_death_that_is_the_first_in_a_while_restarts_after_the_least_delay, {
    let env = Env::default();
    let (w, _root, mut ear) = one(&env, 3).await;
    for expected in [50, 100] {
        w.ask(Act::Panic, SOON).await.unwrap_err();
        assert_eq!(ear.wait("restart_scheduled", "/w").await.get_number("delay_ms"), Some(expected));
        ear.wait("child_restarted", "/w").await;
    }

    tokio::time::sleep(Duration::from_secs(61)).await;
    w.ask(Act::Panic, SOON).await.unwrap_err();

    assert_eq!(ear.wait("restart_scheduled", "/w").await.get_number("delay_ms"), Some(50));
});

story!(a_child_is_up_after_its_asynchronous_start_and_before_its_first_message, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    env.start_ms.store(300, SeqCst);
    let early = tokio::task::spawn_local({
        let w = w.clone();
        async move { (w.ask(Ping, SOON).await, Instant::now()) }
    });
    let began = Instant::now();

    let _root = Root::start(supervisor(Strategy::OneForOne, 3).child(spec), bus).await;

    assert!(began.elapsed() >= ms(300), "the start waits: {:?}", began.elapsed());
    assert_eq!(ear.wait("child_started", "/w").await.get_number("startup_ms"), Some(300));
    let (answer, at) = early.await.unwrap();
    assert_eq!(answer, Ok((1, 1)));
    assert!(at - began >= ms(300));
});

story!(a_first_message_that_kills_is_a_death_and_not_a_failed_start, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    w.try_tell(Act::Panic).map_err(|(error, _)| error).unwrap();

    let _root = Root::start(supervisor(Strategy::OneForOne, 3).child(spec), bus).await;

    let mut words = vec![ear.next().await.event];
    while words.last() != Some(&"child_restarted") {
        words.push(ear.next().await.event);
    }
    assert_eq!(words, ["child_started", "child_exited", "restart_scheduled", "child_restarted"]);
});

story!(a_start_that_hangs_is_killed_and_retried, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    env.hang_starts.store(1, SeqCst);

    let _root = Root::start(supervisor(Strategy::OneForOne, 3).child(spec.start_timeout(ms(700))), bus).await;

    assert_eq!(ear.wait("child_start_failed", "/w").await.reason, Some("start_timeout"));
    assert_eq!(w.ask(Ping, SOON).await, Ok((2, 1)));
});

story!(a_factory_that_panics_is_a_failed_start, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let make = Worker::factory("w", &env);
    let (w, spec) = actor(&bus, "/w", 8, move |birth| {
        let generation = birth.generation;
        assert!(generation != 1 && generation != 3, "no instance {generation}");
        make(birth)
    });

    let _root = Root::start(supervisor(Strategy::OneForOne, 9).child(spec), bus).await;

    assert_eq!(ear.wait("child_start_failed", "/w").await.get_text("detail"), Some("no instance 1"));
    assert_eq!(w.ask(Ping, SOON).await, Ok((2, 1)));
    w.ask(Act::Panic, SOON).await.unwrap_err();
    assert_eq!(ear.wait("child_start_failed", "/w").await.get_text("detail"), Some("no instance 3"));
    assert_eq!(w.ask(Ping, SOON).await, Ok((4, 1)));
});

story!(children_start_in_order_and_a_failed_one_does_not_hold_up_the_others, {
    let env = Env::default();
    env.fail_starts.store(1, SeqCst);

    let (_inboxes, root, mut ear) = three(&env, Strategy::OneForOne).await;

    assert_eq!(env.take_trace(), ["+a", "+b", "+c"]);
    assert_eq!(root.bus().snapshot()[0].state, supervision::State::Restarting);
    assert_eq!(ear.wait("child_restarted", "/a").await.generation, 2);
});
