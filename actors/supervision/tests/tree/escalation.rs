//! Restart intensity: giving up, level by level, up to the root.

use std::time::Duration;

use supervision::{AskError, Reason, Restart, Root, State, Strategy, SupervisorSpec};

use crate::world::{Act, Ear, Env, LONG, Ping, SOON, Slow, generations, ms, one, plain_bus, supervisor, worker};

story!(one_failure_too_many_ends_the_tree_and_senders_hear_it, {
    let env = Env::default();
    let (w, root, mut ear) = one(&env, 2).await;

    for _ in 0..2 {
        w.ask(Act::Panic, SOON).await.unwrap_err();
        ear.wait("child_restarted", "/w").await;
    }
    let (last, queued) = tokio::join!(w.ask(Act::Panic, LONG), w.ask(Ping, LONG));

    assert_eq!((last, queued), (Err(AskError::Closed), Err(AskError::Closed)));
    let exceeded = ear.wait("intensity_exceeded", "/w").await;
    assert_eq!((exceeded.get_number("restarts_in_window"), exceeded.get_number("max_restarts")), (Some(3), Some(2)));
    let reason = root.done().await;
    assert!(matches!(&reason, Reason::Escalated { detail } if detail.contains("/w: panic: boom")), "{reason:?}");
    assert_eq!((reason.exit_code(), root.done().await), (70, reason));
    let stopped = ear.wait("tree_stopped", "root").await;
    assert_eq!((stopped.level, stopped.get_number("exit_code")), (tracing::Level::ERROR, Some(70)));
    assert_eq!(root.bus().snapshot()[0].state, State::Stopped);
    assert_eq!(root.shutdown(SOON).await.reason.word(), "escalated");
});

story!(failures_further_apart_than_the_window_do_not_add_up, {
    let env = Env::default();
    let (w, _root, mut ear) = one(&env, 2).await;

    for _ in 0..10 {
        w.ask(Act::Panic, SOON).await.unwrap_err();
        ear.wait("child_restarted", "/w").await;
        tokio::time::sleep(ms(2_600)).await;
    }

    assert_eq!(w.ask(Ping, SOON).await, Ok((11, 1)));
});

story!(a_root_that_gives_up_drains_the_other_children, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (a, spec_a) = worker(&bus, &env, "/a");
    let (_b, spec_b) = worker(&bus, &env, "/b");
    let root = Root::start(supervisor(Strategy::OneForOne, 0).child(spec_a).child(spec_b), bus).await;
    let in_flight = tokio::task::spawn_local(async move { a.ask(Slow(200, false), SOON).await });
    tokio::time::sleep(ms(1)).await;

    root.bus().panic("/b", "test").unwrap();

    assert_eq!(root.done().await.word(), "escalated");
    assert_eq!(in_flight.await.unwrap(), Ok(()));
    assert_eq!(ear.wait("child_exited", "/a").await.reason, Some("sibling"));
});

story!(a_nested_supervisor_that_gives_up_is_restarted_with_its_subtree_and_addresses_survive, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (a, spec_a) = worker(&bus, &env, "/sub/a");
    let (b, spec_b) = worker(&bus, &env, "/sub/b");
    let (top, spec_top) = worker(&bus, &env, "/top");
    let sub = SupervisorSpec::new("sub", Strategy::OneForOne, 1, SOON).shown_at("/sub").child(spec_a).child(spec_b);
    let root = Root::start(supervisor(Strategy::OneForOne, 3).child(spec_top).supervisor(sub), bus).await;

    a.ask(Act::Panic, SOON).await.unwrap_err();
    ear.wait("child_restarted", "/sub/a").await;
    let (boom, queued) = tokio::join!(a.ask(Act::Panic, SOON), a.ask(Ping, SOON));

    assert_eq!((boom, queued), (Err(AskError::Closed), Ok((3, 1))));
    let stopped = ear.wait("supervisor_stopped", "/sub").await;
    assert_eq!((stopped.reason, stopped.level), (Some("escalated"), tracing::Level::ERROR));
    assert_eq!(ear.wait("child_exited", "/sub").await.child_type, "supervisor");
    assert_eq!(ear.wait("child_restarted", "/sub").await.generation, 2);
    assert_eq!(generations(&[a, b, top]).await, [3, 2, 1]);
    assert_eq!(root.shutdown(SOON).await.reason, Reason::Shutdown);
});

story!(surrenders_of_nested_supervisors_count_at_the_root_and_single_deaths_do_not, {
    let env = Env::default();
    let bus = plain_bus();
    let (w, spec) = worker(&bus, &env, "/sub/w");
    let sub = SupervisorSpec::new("sub", Strategy::OneForOne, 1, Duration::from_secs(60)).shown_at("/sub").child(spec);
    let spec = SupervisorSpec::new("root", Strategy::OneForOne, 1, Duration::from_secs(60)).supervisor(sub);
    let root = Root::start(spec, bus).await;

    for _ in 0..4 {
        assert_eq!(w.ask(Act::Panic, SOON).await, Err(AskError::Closed));
    }

    let reason = root.done().await;
    assert!(matches!(&reason, Reason::Escalated { detail } if detail.contains("/sub: escalated")), "{reason:?}");
});

story!(a_tree_that_never_comes_up_says_so, {
    let env = Env::default();
    env.fail_starts.store(100, std::sync::atomic::Ordering::SeqCst);

    let (w, root, _ear) = one(&env, 3).await;

    assert_eq!(root.done().await.word(), "escalated");
    assert_eq!(w.ask(Ping, LONG).await, Err(AskError::Closed));
});

story!(a_transient_child_is_restarted_only_after_a_failure, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    let root = Root::start(supervisor(Strategy::OneForOne, 3).child(spec.restart(Restart::Transient)), bus).await;

    w.ask(Act::Panic, SOON).await.unwrap_err();
    assert_eq!(w.ask(Ping, SOON).await, Ok((2, 1)));
    let (_, behind) = tokio::join!(w.ask(Act::Stop, LONG), w.ask(Ping, LONG));

    assert_eq!(ear.wait("child_terminated", "/w").await.reason, Some("normal"));
    assert_eq!((behind, w.ask(Ping, LONG).await), (Err(AskError::Closed), Err(AskError::Closed)));
    let row = &root.bus().snapshot()[0];
    assert_eq!((row.state, row.last_exit.as_deref(), row.mailbox_depth), (State::Stopped, Some("normal"), 0));
    assert!(root.bus().panic("/w", "test").is_err(), "nobody stands there any more");
});

story!(a_temporary_child_is_never_restarted, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    let _root = Root::start(supervisor(Strategy::OneForOne, 0).child(spec.restart(Restart::Temporary)), bus).await;

    w.ask(Act::Panic, SOON).await.unwrap_err();

    assert_eq!(ear.wait("child_terminated", "/w").await.reason, Some("panic"));
    assert_eq!(w.ask(Ping, LONG).await, Err(AskError::Closed));
});

story!(the_end_of_a_significant_child_ends_its_supervisor, {
    let env = Env::default();
    let bus = plain_bus();
    let (_a, spec_a) = worker(&bus, &env, "/a");
    let (w, spec) = worker(&bus, &env, "/w");
    let spec = supervisor(Strategy::OneForOne, 3)
        .auto_shutdown()
        .child(spec_a)
        .child(spec.restart(Restart::Transient).significant());
    let root = Root::start(spec, bus).await;

    w.ask(Act::Stop, SOON).await.unwrap();

    assert_eq!(root.done().await, Reason::Shutdown);
    assert_eq!(env.take_trace(), ["+a", "+w", "-w", "-a"]);
});
