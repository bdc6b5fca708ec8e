//! Fault injection by path, and the snapshot of the tree.

use supervision::{ActorState, AskError, NoSuchActor, RootSupervisor, Strategy, SupervisorSpec};
use tokio::time::Instant;

use crate::fixture::{
    Behavior, EventReader, FIVE_SECONDS, ONE_HOUR, Ping, Slow, WorkerEnv, bus_without_jitter, ms, supervisor,
    tree_of_one, worker,
};

virtual_time_test!(injected_panic_takes_effect_at_once_without_a_message, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_of_one(&env, 3).await;
    let in_flight = tokio::task::spawn_local(async move { w.ask(Slow(60_000, false), ONE_HOUR).await });
    tokio::time::sleep(ms(500)).await;
    let began = Instant::now();

    root.bus().panic("/w", "the operator").unwrap();

    assert_eq!(in_flight.await.unwrap(), Err(AskError::Closed));
    assert_eq!(began.elapsed(), ms(0));
    let fault = events.wait_for("fault_injected", "/w").await;
    assert_eq!((fault.text("fault"), fault.text("by")), (Some("panic"), Some("the operator")));
    assert_eq!((fault.level, fault.kind, fault.generation), (tracing::Level::WARN, "Worker", 1));
    let exited = events.wait_for("child_exited", "/w").await;
    assert_eq!((exited.reason, exited.text("detail")), (Some("panic"), Some("fault injected by the operator")));
    assert_eq!((exited.level, exited.number("uptime_ms")), (tracing::Level::ERROR, Some(500)));
    events.wait_for("child_restarted", "/w").await;
    assert!(began.elapsed() < ms(1_000), "back within a second");
});

virtual_time_test!(kill_ends_an_actor_that_hangs, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_of_one(&env, 3).await;
    w.ask(Behavior::Hang, FIVE_SECONDS).await.unwrap();
    let queued = tokio::task::spawn_local({
        let w = w.clone();
        async move { w.ask(Ping, ONE_HOUR).await }
    });
    tokio::time::sleep(ms(50)).await;

    root.bus().kill("/w", "test").unwrap();

    assert_eq!(queued.await.unwrap(), Ok((2, 1)), "the queue survives");
    let exited = events.wait_for("child_exited", "/w").await;
    assert_eq!((exited.reason, exited.level), (Some("killed"), tracing::Level::WARN));
    assert_eq!(root.bus().snapshot()[0].last_exit.as_deref(), Some("killed: test"));
});

virtual_time_test!(injected_panic_ends_an_actor_that_hangs, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_of_one(&env, 3).await;
    w.ask(Behavior::Hang, FIVE_SECONDS).await.unwrap();

    root.bus().panic("/w", "test").unwrap();

    events.wait_for("child_restarted", "/w").await;
    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((2, 1)));
});

virtual_time_test!(injected_stop_is_a_normal_exit_and_restarts_a_permanent_child, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_of_one(&env, 3).await;
    w.ask(Behavior::Hang, FIVE_SECONDS).await.unwrap();

    root.bus().stop("/w", "test").unwrap();

    assert_eq!(events.wait_for("child_exited", "/w").await.reason, Some("normal"));
    events.wait_for("child_restarted", "/w").await;
    assert_eq!(env.take_trace(), ["+w", "-w", "+w"]);
    assert_eq!(root.bus().snapshot()[0].last_exit.as_deref(), Some("normal"));
});

virtual_time_test!(paused_actor_handles_nothing_until_it_is_resumed, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_of_one(&env, 3).await;

    root.bus().pause("/w", "test").unwrap();
    assert_eq!(root.bus().snapshot()[0].state, ActorState::Paused);
    assert_eq!(w.ask(Ping, ms(2_000)).await, Err(AskError::Timeout));
    w.try_send(Ping).map_err(|(error, _)| error).unwrap();
    assert_eq!(root.bus().snapshot()[0].mailbox_depth, 2, "both messages are queued, also the one without a caller");
    root.bus().resume("/w", "test").unwrap();

    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((1, 2)), "same incarnation, and the expired ask was skipped");
    assert_eq!(root.bus().snapshot()[0].state, ActorState::Running);
    let faults: Vec<_> = events.received().into_iter().filter(|event| event.event == "fault_injected").collect();
    let names: Vec<_> = faults.iter().map(|event| event.text("fault").unwrap()).collect();
    assert_eq!(names, ["pause", "resume"]);
});

virtual_time_test!(paused_actor_can_be_stopped_killed_and_panicked_and_restarts_running, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_of_one(&env, 9).await;
    let bus = root.bus();

    for (generation, result) in [(2, bus.panic("/w", "t")), (3, Ok(())), (4, Ok(()))] {
        result.unwrap();
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
        events.wait_for("child_restarted", "/w").await;
        assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((generation, 1)));
        assert_eq!(bus.snapshot()[0].state, ActorState::Running);
    }
    bus.pause("/w", "t").unwrap();
    tokio::time::sleep(ms(20)).await;
    bus.panic("/w", "t").unwrap();
    events.wait_for("child_restarted", "/w").await;
    assert_eq!(bus.snapshot()[0].state, ActorState::Running);
});

virtual_time_test!(starting_actor_is_paused_once_it_has_started, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_of_one(&env, 3).await;
    env.start_ms.store(200, std::sync::atomic::Ordering::SeqCst);
    root.bus().kill("/w", "test").unwrap();
    events.wait_for("restart_scheduled", "/w").await;
    tokio::time::sleep(ms(100)).await;

    root.bus().pause("/w", "test").unwrap();
    assert_eq!(root.bus().snapshot()[0].state, ActorState::Restarting);
    events.wait_for("child_restarted", "/w").await;

    assert_eq!(root.bus().snapshot()[0].state, ActorState::Paused);
    assert_eq!(w.ask(Ping, ms(100)).await, Err(AskError::Timeout));
});

virtual_time_test!(pause_between_two_incarnations_has_no_effect, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_of_one(&env, 3).await;
    root.bus().kill("/w", "test").unwrap();
    events.wait_for("restart_scheduled", "/w").await;

    root.bus().pause("/w", "test").unwrap();
    events.wait_for("child_restarted", "/w").await;

    assert_eq!(root.bus().snapshot()[0].state, ActorState::Running);
    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((2, 1)));
});

virtual_time_test!(pause_does_not_delay_a_drain, {
    let env = WorkerEnv::default();
    let (w, root, _events) = tree_of_one(&env, 3).await;
    let slow = tokio::task::spawn_local(async move { w.ask(Slow(200, false), FIVE_SECONDS).await });
    tokio::time::sleep(ms(1)).await;
    let bus = root.bus().clone();
    let shutdown = tokio::task::spawn_local(root.shutdown(FIVE_SECONDS));
    tokio::time::sleep(ms(10)).await;

    bus.pause("/w", "test").unwrap();

    let report = shutdown.await.unwrap();
    assert_eq!((slow.await.unwrap(), report.unfinished), (Ok(()), vec![]));
    assert!(report.elapsed < ms(210), "{:?}", report.elapsed);
});

virtual_time_test!(fault_at_a_path_without_an_actor_is_refused, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (_w, spec) = worker(&bus, &env, "/relay/w");
    let relay = SupervisorSpec::new("relay", Strategy::OneForOne, 3, FIVE_SECONDS).path("/relay").child(spec);
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).supervisor(relay), bus.clone()).await;

    for path in ["/relay", "/w", "", "/relay/w/"] {
        assert_eq!(bus.panic(path, "test"), Err(NoSuchActor(path.into())));
        assert_eq!(bus.pause(path, "test"), Err(NoSuchActor(path.into())));
    }
    assert!(events.received().iter().all(|event| event.event != "fault_injected"));
    root.shutdown(FIVE_SECONDS).await;
    assert_eq!(bus.stop("/relay/w", "test"), Err(NoSuchActor("/relay/w".into())));
});

virtual_time_test!(snapshot_lists_actors_by_path_with_state_mailbox_and_last_exit, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let mut workers = SupervisorSpec::new("workers", Strategy::OneForOne, 20, FIVE_SECONDS);
    let mut mailboxes = Vec::new();
    for n in [10, 9, 2] {
        let (mailbox, spec) = worker(&bus, &env, &format!("/relay/worker-{n}"));
        mailboxes.push(mailbox);
        workers = workers.child(spec);
    }
    let (_top, top) = worker(&bus, &env, "/top");
    let relay = SupervisorSpec::new("relay", Strategy::RestForOne, 5, FIVE_SECONDS).path("/relay").supervisor(workers);
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).supervisor(relay).child(top), bus).await;
    mailboxes[0].ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
    events.wait_for("child_restarted", "/relay/worker-10").await;
    root.bus().panic("/relay/worker-9", "test").unwrap();
    events.wait_for("restart_scheduled", "/relay/worker-9").await;
    mailboxes[2].try_send(Slow(1_000, false)).map_err(|(error, _)| error).unwrap();

    let rows = root.bus().snapshot();

    let paths: Vec<_> = rows.iter().map(|actor| actor.path.as_str()).collect();
    assert_eq!(paths, ["/relay/worker-2", "/relay/worker-9", "/relay/worker-10", "/top"]);
    assert_eq!((rows[0].mailbox_depth, rows[0].mailbox_capacity, rows[0].generation), (1, 64, 1));
    assert_eq!((rows[0].parent.as_deref(), rows[3].parent.as_deref()), (Some("/relay"), None));
    assert_eq!((rows[0].kind, rows[0].state, rows[0].last_exit.as_deref()), ("Worker", ActorState::Running, None));
    assert_eq!((rows[1].state, rows[1].generation, rows[1].restarts), (ActorState::Restarting, 1, 0));
    assert_eq!((rows[2].state, rows[2].generation, rows[2].restarts), (ActorState::Running, 2, 1));
    assert_eq!(rows[2].last_exit.as_deref(), Some("panic: failure in handler of worker-10"));
});
