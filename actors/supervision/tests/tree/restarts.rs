//! Restart in place: what dies, what survives, who hears of it.

use std::sync::atomic::Ordering::SeqCst;

use actix::prelude::*;
use supervision::AskError;
use tokio::time::Instant;

use crate::world::{Act, Env, LONG, Ping, SOON, Slow, ms, one};

story!(a_panic_in_a_handler_restarts_in_place_and_keeps_the_mailbox, {
    let env = Env::default();
    let (w, root, mut ear) = one(&env, 3).await;
    assert_eq!(w.ask(Ping, SOON).await, Ok((1, 1)));

    let (boom, second, third) = tokio::join!(w.ask(Act::Panic, SOON), w.ask(Ping, SOON), w.ask(Ping, SOON));

    assert_eq!(boom, Err(AskError::Closed));
    assert_eq!((second, third), (Ok((2, 1)), Ok((2, 2))));
    let exited = ear.wait("child_exited", "/w").await;
    assert_eq!((exited.reason, exited.get_text("detail")), (Some("panic"), Some("boom in handler of w")));
    assert!(exited.get_text("location").unwrap().contains("tests/tree/world.rs:"), "{exited:?}");
    assert_eq!(exited.get_text("message"), Some("Act"));
    assert_eq!((exited.generation, exited.get_number("mailbox_len")), (1, Some(2)));
    let back = ear.wait("child_restarted", "/w").await;
    assert_eq!((back.generation, back.get_number("attempt"), back.get_number("downtime_ms")), (2, Some(1), Some(50)));
    assert_eq!(root.shutdown(SOON).await.reason, supervision::Reason::Shutdown);
    assert_eq!(w.ask(Ping, LONG).await, Err(AskError::Closed));
});

story!(a_panic_in_a_future_tells_every_caller_in_flight_at_once, {
    let env = Env::default();
    let (w, _root, mut ear) = one(&env, 3).await;
    let began = Instant::now();

    let (other, boom) = tokio::join!(w.ask(Slow(10_000, false), LONG), w.ask(Slow(40, true), LONG));

    assert_eq!((other, boom), (Err(AskError::Closed), Err(AskError::Closed)));
    assert!(began.elapsed() < ms(45), "told at the crash, not after the back-off: {:?}", began.elapsed());
    let exited = ear.wait("child_exited", "/w").await;
    assert_eq!((exited.get_text("message"), exited.get_number("in_flight_lost")), (Some("Slow"), Some(1)));
    ear.wait("child_restarted", "/w").await;
    assert_eq!((w.ask(Ping, SOON).await, w.depth()), (Ok((2, 1)), 0));
});

story!(a_panic_in_a_timer_or_a_spawned_future_restarts, {
    let env = Env::default();
    let (w, _root, mut ear) = one(&env, 3).await;

    assert_eq!(w.ask(Act::PanicInTimer, SOON).await, Ok(()));
    let exited = ear.wait("child_exited", "/w").await;
    ear.wait("child_restarted", "/w").await;
    assert_eq!(w.ask(Act::PanicInSpawned, SOON).await, Ok(()));
    let again = ear.wait("child_exited", "/w").await;
    ear.wait("child_restarted", "/w").await;

    assert_eq!((exited.get_text("detail"), exited.get_text("message")), (Some("boom in timer"), None));
    assert_eq!(again.get_text("detail"), Some("boom in spawned"));
    assert_eq!(w.ask(Ping, SOON).await, Ok((3, 1)));
});

story!(a_stop_or_terminate_of_its_own_restarts_a_permanent_child_with_fresh_state, {
    let env = Env::default();
    let (w, _root, mut ear) = one(&env, 3).await;
    w.ask(Ping, SOON).await.unwrap();

    w.ask(Act::Stop, SOON).await.unwrap();
    let exited = ear.wait("child_exited", "/w").await;
    assert_eq!((exited.reason, exited.level), (Some("normal"), tracing::Level::INFO));
    assert_eq!(w.ask(Ping, SOON).await, Ok((2, 1)));

    w.ask(Act::Terminate, SOON).await.unwrap();
    assert_eq!(w.ask(Ping, SOON).await, Ok((3, 1)));
});

story!(addresses_recipients_and_weak_addresses_survive_a_restart, {
    let env = Env::default();
    let (w, _root, mut ear) = one(&env, 3).await;
    let recipient: Recipient<Ping> = w.addr().clone().recipient();
    let weak = w.addr().downgrade();

    w.ask(Act::Panic, SOON).await.unwrap_err();
    ear.wait("child_restarted", "/w").await;

    assert_eq!(recipient.send(Ping).await.unwrap(), (2, 1));
    assert_eq!(weak.upgrade().unwrap().send(Ping).await.unwrap(), (2, 2));
});

story!(a_drop_that_panics_too_is_survived, {
    let env = Env::default();
    let (w, root, mut ear) = one(&env, 3).await;
    env.fail_drops.store(1, SeqCst);

    let (boom, slow) = tokio::join!(w.ask(Act::Panic, SOON), w.ask(Slow(1_000, false), SOON));
    assert_eq!((boom, slow), (Err(AskError::Closed), Ok(())));
    ear.wait("child_restarted", "/w").await;
    env.fail_drops.store(1, SeqCst);

    assert!(root.shutdown(SOON).await.left.is_empty());
    assert_eq!(env.alive.load(SeqCst), 0);
});

story!(only_one_instance_lives_at_a_time_and_none_after_the_shutdown, {
    let env = Env::default();
    let (w, root, mut ear) = one(&env, 3).await;

    for _ in 0..3 {
        w.ask(Act::Panic, SOON).await.unwrap_err();
        ear.wait("child_restarted", "/w").await;
        assert_eq!(env.alive.load(SeqCst), 1);
    }

    root.shutdown(SOON).await;
    assert_eq!(env.alive.load(SeqCst), 0);
});
