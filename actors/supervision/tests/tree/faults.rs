//! The fault surface: what an operator does to an actor by its path.

use supervision::{AskError, NoSuchActor, Root, State, Strategy, SupervisorSpec};
use tokio::time::Instant;

use crate::world::{Act, Ear, Env, LONG, Ping, SOON, Slow, ms, one, plain_bus, supervisor, worker};

story!(a_panic_strikes_at_once_without_a_message, {
    let env = Env::default();
    let (w, root, mut ear) = one(&env, 3).await;
    let in_flight = tokio::task::spawn_local(async move { w.ask(Slow(60_000, false), LONG).await });
    tokio::time::sleep(ms(500)).await;
    let began = Instant::now();

    root.bus().panic("/w", "the operator").unwrap();

    assert_eq!(in_flight.await.unwrap(), Err(AskError::Closed));
    assert_eq!(began.elapsed(), ms(0));
    let fault = ear.wait("fault_injected", "/w").await;
    assert_eq!((fault.get_text("fault"), fault.get_text("by")), (Some("panic"), Some("the operator")));
    assert_eq!((fault.level, fault.kind, fault.generation), (tracing::Level::WARN, "Worker", 1));
    let exited = ear.wait("child_exited", "/w").await;
    assert_eq!((exited.reason, exited.get_text("detail")), (Some("panic"), Some("fault injected by the operator")));
    assert_eq!((exited.level, exited.get_number("uptime_ms")), (tracing::Level::ERROR, Some(500)));
    ear.wait("child_restarted", "/w").await;
    assert!(began.elapsed() < ms(1_000), "back within a second");
});

story!(a_kill_reaches_even_an_actor_that_hangs, {
    let env = Env::default();
    let (w, root, mut ear) = one(&env, 3).await;
    w.ask(Act::Hang, SOON).await.unwrap();
    let behind = tokio::task::spawn_local({
        let w = w.clone();
        async move { w.ask(Ping, LONG).await }
    });
    tokio::time::sleep(ms(50)).await;

    root.bus().kill("/w", "test").unwrap();

    assert_eq!(behind.await.unwrap(), Ok((2, 1)), "the queue survives");
    let exited = ear.wait("child_exited", "/w").await;
    assert_eq!((exited.reason, exited.level), (Some("killed"), tracing::Level::WARN));
    assert_eq!(root.bus().snapshot()[0].last_exit.as_deref(), Some("killed: test"));
});

story!(a_panic_reaches_an_actor_that_hangs, {
    let env = Env::default();
    let (w, root, mut ear) = one(&env, 3).await;
    w.ask(Act::Hang, SOON).await.unwrap();

    root.bus().panic("/w", "test").unwrap();

    ear.wait("child_restarted", "/w").await;
    assert_eq!(w.ask(Ping, SOON).await, Ok((2, 1)));
});

story!(a_stop_is_a_normal_end_and_the_supervisor_decides, {
    let env = Env::default();
    let (w, root, mut ear) = one(&env, 3).await;
    w.ask(Act::Hang, SOON).await.unwrap();

    root.bus().stop("/w", "test").unwrap();

    assert_eq!(ear.wait("child_exited", "/w").await.reason, Some("normal"));
    ear.wait("child_restarted", "/w").await;
    assert_eq!(env.take_trace(), ["+w", "-w", "+w"]);
    assert_eq!(root.bus().snapshot()[0].last_exit.as_deref(), Some("normal"));
});

story!(a_paused_actor_handles_nothing_until_it_is_resumed, {
    let env = Env::default();
    let (w, root, mut ear) = one(&env, 3).await;

    root.bus().pause("/w", "test").unwrap();
    assert_eq!(root.bus().snapshot()[0].state, State::Paused);
    assert_eq!(w.ask(Ping, ms(2_000)).await, Err(AskError::Timeout));
    w.try_tell(Ping).map_err(|(error, _)| error).unwrap();
    assert_eq!(root.bus().snapshot()[0].mailbox_depth, 2, "both wait, the one without a caller too");
    root.bus().resume("/w", "test").unwrap();

    assert_eq!(w.ask(Ping, SOON).await, Ok((1, 2)), "same life, and the expired question was skipped");
    assert_eq!(root.bus().snapshot()[0].state, State::Running);
    let faults: Vec<_> = ear.so_far().into_iter().filter(|event| event.event == "fault_injected").collect();
    let names: Vec<_> = faults.iter().map(|event| event.get_text("fault").unwrap()).collect();
    assert_eq!(names, ["pause", "resume"]);
});

story!(a_paused_actor_still_obeys_panic_kill_and_stop_and_comes_back_running, {
    let env = Env::default();
    let (w, root, mut ear) = one(&env, 9).await;
    let bus = root.bus();

    for (generation, strike) in [(2, bus.panic("/w", "t")), (3, Ok(())), (4, Ok(()))] {
        strike.unwrap();
        match generation {
            3 => {
                bus.pause("/w", "t").unwrap();
                tokio::time::sleep(ms(20)).await;
                bus.kill("/w", "t").unwrap();
            }
            4 => {
                bus.pause("/w", "t").unwrap();
                tokio::time::sleep(ms(20)).await;
                bus.stop("/w", "t").unwrap();
            }
            _ => {}
        }
        ear.wait("child_restarted", "/w").await;
        assert_eq!(w.ask(Ping, SOON).await, Ok((generation, 1)));
        assert_eq!(bus.snapshot()[0].state, State::Running);
    }
    bus.pause("/w", "t").unwrap();
    tokio::time::sleep(ms(20)).await;
    bus.panic("/w", "t").unwrap();
    ear.wait("child_restarted", "/w").await;
    assert_eq!(bus.snapshot()[0].state, State::Running);
});

story!(an_actor_that_just_starts_is_paused_when_it_is_up, {
    let env = Env::default();
    let (w, root, mut ear) = one(&env, 3).await;
    env.start_ms.store(200, std::sync::atomic::Ordering::SeqCst);
    root.bus().kill("/w", "test").unwrap();
    ear.wait("restart_scheduled", "/w").await;
    tokio::time::sleep(ms(100)).await;

    root.bus().pause("/w", "test").unwrap();
    assert_eq!(root.bus().snapshot()[0].state, State::Restarting);
    ear.wait("child_restarted", "/w").await;

    assert_eq!(root.bus().snapshot()[0].state, State::Paused);
    assert_eq!(w.ask(Ping, ms(100)).await, Err(AskError::Timeout));
});

story!(a_path_where_no_actor_stands_is_refused, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (_w, spec) = worker(&bus, &env, "/relay/w");
    let relay = SupervisorSpec::new("relay", Strategy::OneForOne, 3, SOON).shown_at("/relay").child(spec);
    let root = Root::start(supervisor(Strategy::OneForOne, 3).supervisor(relay), bus.clone()).await;

    for path in ["/relay", "/w", "", "/relay/w/"] {
        assert_eq!(bus.panic(path, "test"), Err(NoSuchActor(path.into())));
        assert_eq!(bus.pause(path, "test"), Err(NoSuchActor(path.into())));
    }
    assert!(ear.so_far().iter().all(|event| event.event != "fault_injected"));
    root.shutdown(SOON).await;
    assert_eq!(bus.stop("/relay/w", "test"), Err(NoSuchActor("/relay/w".into())));
});

story!(the_snapshot_lists_workers_by_path_with_what_an_operator_needs, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let mut workers = SupervisorSpec::new("workers", Strategy::OneForOne, 20, SOON);
    let mut inboxes = Vec::new();
    for n in [10, 9, 2] {
        let (inbox, spec) = worker(&bus, &env, &format!("/relay/worker-{n}"));
        inboxes.push(inbox);
        workers = workers.child(spec);
    }
    let (_top, top) = worker(&bus, &env, "/top");
    let relay = SupervisorSpec::new("relay", Strategy::RestForOne, 5, SOON).shown_at("/relay").supervisor(workers);
    let root = Root::start(supervisor(Strategy::OneForOne, 3).supervisor(relay).child(top), bus).await;
    inboxes[0].ask(Act::Panic, SOON).await.unwrap_err();
    ear.wait("child_restarted", "/relay/worker-10").await;
    root.bus().panic("/relay/worker-9", "test").unwrap();
    ear.wait("restart_scheduled", "/relay/worker-9").await;
    inboxes[2].try_tell(Slow(1_000, false)).map_err(|(error, _)| error).unwrap();

    let rows = root.bus().snapshot();

    let paths: Vec<_> = rows.iter().map(|row| row.path.as_str()).collect();
    assert_eq!(paths, ["/relay/worker-2", "/relay/worker-9", "/relay/worker-10", "/top"]);
    assert_eq!((rows[0].mailbox_depth, rows[0].mailbox_capacity, rows[0].generation), (1, 64, 1));
    assert_eq!((rows[0].parent.as_deref(), rows[3].parent.as_deref()), (Some("/relay"), None));
    assert_eq!((rows[0].actor, rows[0].state, rows[0].last_exit.as_deref()), ("Worker", State::Running, None));
    assert_eq!((rows[1].state, rows[1].generation, rows[1].restarts), (State::Restarting, 1, 0));
    assert_eq!((rows[2].state, rows[2].generation, rows[2].restarts), (State::Running, 2, 1));
    assert_eq!(rows[2].last_exit.as_deref(), Some("panic: boom in handler of worker-10"));
});
