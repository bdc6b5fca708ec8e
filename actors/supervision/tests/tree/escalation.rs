//! Restart intensity, escalation level by level up to the root, and restart types.

use std::time::Duration;

use futures::FutureExt;
use supervision::{ActorState, AskError, ExitReason, Restart, RootSupervisor, Shutdown, Strategy, SupervisorSpec};
use tokio::time::Instant;

use crate::fixture::{
    Behavior, EventReader, FIVE_SECONDS, ONE_HOUR, Ping, Slow, WorkerEnv, bus_without_jitter, generations, ms,
    supervisor, tree_of_one, worker,
};

virtual_time_test!(exceeded_intensity_ends_the_tree_and_fails_its_senders, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_of_one(&env, 2).await;

    for _ in 0..2 {
        w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
        events.wait_for("child_restarted", "/w").await;
    }
    let (last, queued) = tokio::join!(w.ask(Behavior::Panic, ONE_HOUR), w.ask(Ping, ONE_HOUR));

    assert_eq!((last, queued), (Err(AskError::Closed), Err(AskError::Closed)));
    let exceeded = events.wait_for("intensity_exceeded", "/w").await;
    assert_eq!((exceeded.number("restarts_in_window"), exceeded.number("max_restarts")), (Some(3), Some(2)));
    let reason = root.done().await;
    assert!(matches!(&reason, ExitReason::Escalated { detail } if detail.contains("/w: panic: failure")), "{reason:?}");
    assert_eq!((reason.exit_code(), root.done().await), (70, reason));
    let stopped = events.wait_for("tree_stopped", "root").await;
    assert_eq!((stopped.level, stopped.number("exit_code")), (tracing::Level::ERROR, Some(70)));
    assert_eq!(root.bus().snapshot()[0].state, ActorState::Stopped);
    assert_eq!(root.shutdown(FIVE_SECONDS).await.reason.as_str(), "escalated");
});

virtual_time_test!(failures_further_apart_than_the_window_do_not_escalate, {
    let env = WorkerEnv::default();
    let (w, _root, mut events) = tree_of_one(&env, 2).await;

    for _ in 0..10 {
        w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
        events.wait_for("child_restarted", "/w").await;
        tokio::time::sleep(ms(2_600)).await;
    }

    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((11, 1)));
});

virtual_time_test!(escalating_root_drains_its_other_children, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (a, spec_a) = worker(&bus, &env, "/a");
    let (_b, spec_b) = worker(&bus, &env, "/b");
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 0).child(spec_a).child(spec_b), bus).await;
    let in_flight = tokio::task::spawn_local(async move { a.ask(Slow(200, false), FIVE_SECONDS).await });
    tokio::time::sleep(ms(1)).await;

    root.bus().panic("/b", "test").unwrap();

    assert_eq!(root.done().await.as_str(), "escalated");
    assert_eq!(in_flight.await.unwrap(), Ok(()));
    assert_eq!(events.wait_for("child_exited", "/a").await.reason, Some("sibling"));
});

virtual_time_test!(root_that_escalates_reports_it_and_closes_each_mailbox_while_another_drains, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let (slow, spec_slow) = worker(&bus, &env, "/slow");
    let (a, spec_a) = worker(&bus, &env, "/a");
    let (w, spec_w) = worker(&bus, &env, "/sub/w");
    let sub = SupervisorSpec::new("sub", Strategy::OneForOne, 0, FIVE_SECONDS).child(spec_w);
    let helper = a.clone();
    let spec = supervisor(Strategy::OneForOne, 0).child(spec_slow.shutdown(Shutdown::Infinity)).child(spec_a);
    let spec = spec.supervisor(sub).before_escalation(move |limit| async move {
        assert_eq!(limit, ms(12_500), "half of the time of a shutdown");
        assert_eq!(helper.ask(Ping, limit).await, Ok((1, 1)), "the other children run");
        tokio::time::sleep(ms(300)).await;
    });
    let root = RootSupervisor::start(spec, bus).await;
    slow.try_send(Slow(20_000, false)).map_err(|(error, _)| error).unwrap();
    tokio::time::sleep(ms(1)).await;

    root.bus().panic("/sub/w", "test").unwrap();
    let reason = root.escalated().await;

    assert!(matches!(&reason, ExitReason::Escalated { detail } if detail.contains("sub: escalated")), "{reason:?}");
    assert!(root.bus().is_shutting_down());
    assert_eq!(w.ask(Ping, ms(10)).await, Err(AskError::Closed), "it failed for good");
    assert_eq!(a.ask(Ping, ms(10)).await, Ok((1, 2)), "the owner's work is not done");
    tokio::time::sleep(ms(310)).await;
    assert_eq!(a.ask(Ping, ONE_HOUR).await, Err(AskError::Closed));
    assert!(root.done().now_or_never().is_none(), "a child drains");
    assert_eq!((root.done().await, root.escalated().await), (reason.clone(), reason));
});

virtual_time_test!(root_that_escalates_shuts_down_after_a_panic_of_the_owners_work, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let (w, spec_w) = worker(&bus, &env, "/w");
    let (_other, spec_other) = worker(&bus, &env, "/other");
    let spec = supervisor(Strategy::OneForOne, 0).child(spec_w).child(spec_other);
    let spec = spec.before_escalation(|_| async { panic!("a test's panic") });
    let root = RootSupervisor::start(spec, bus).await;

    root.bus().panic("/w", "test").unwrap();

    assert_eq!(root.done().await.as_str(), "escalated");
    assert_eq!(w.ask(Ping, ms(10)).await, Err(AskError::Closed));
    assert_eq!(env.alive.load(std::sync::atomic::Ordering::SeqCst), 0, "all children have ended");
});

virtual_time_test!(escalating_root_gives_all_children_together_the_time_of_one_shutdown, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut spec = supervisor(Strategy::OneForOne, 0);
    for path in ["/a", "/b", "/c"] {
        let (mailbox, child) = worker(&bus, &env, path);
        let only_child = SupervisorSpec::new(&path[1..], Strategy::OneForOne, 3, FIVE_SECONDS);
        spec = spec.supervisor(only_child.child(child.shutdown(Shutdown::Timeout(Duration::from_secs(15)))));
        mailbox.try_send(Behavior::Hang).map_err(|(error, _)| error).unwrap();
    }
    let (_w, last) = worker(&bus, &env, "/w");
    let root = RootSupervisor::start(spec.child(last), bus).await;
    tokio::time::sleep(ms(1)).await;

    root.bus().panic("/w", "test").unwrap();
    let failed_at = tokio::time::Instant::now();
    assert_eq!(root.done().await.as_str(), "escalated");

    let elapsed = failed_at.elapsed();
    assert!(elapsed >= Duration::from_secs(25) && elapsed < Duration::from_secs(26), "{elapsed:?}");
    let report = root.shutdown(FIVE_SECONDS).await;
    assert_eq!((report.reason.as_str(), env.alive.load(std::sync::atomic::Ordering::SeqCst)), ("escalated", 0));
});

virtual_time_test!(escalated_supervisor_restarts_with_its_subtree_and_addresses_stay_valid, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (a, spec_a) = worker(&bus, &env, "/sub/a");
    let (b, spec_b) = worker(&bus, &env, "/sub/b");
    let (top, spec_top) = worker(&bus, &env, "/top");
    let sub = SupervisorSpec::new("sub", Strategy::OneForOne, 1, FIVE_SECONDS).path("/sub").child(spec_a).child(spec_b);
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).child(spec_top).supervisor(sub), bus).await;

    a.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
    events.wait_for("child_restarted", "/sub/a").await;
    let (failed, queued) = tokio::join!(a.ask(Behavior::Panic, FIVE_SECONDS), a.ask(Ping, FIVE_SECONDS));

    assert_eq!((failed, queued), (Err(AskError::Closed), Ok((3, 1))));
    let stopped = events.wait_for("supervisor_stopped", "/sub").await;
    assert_eq!((stopped.reason, stopped.level), (Some("escalated"), tracing::Level::ERROR));
    assert_eq!(events.wait_for("child_exited", "/sub").await.child_type, "supervisor");
    assert_eq!(events.wait_for("child_restarted", "/sub").await.generation, 2);
    assert_eq!(generations(&[a, b, top]).await, [3, 2, 1]);
    let used = root.bus().supervisors().into_iter().map(|row| (row.label, row.restarts_in_window)).collect::<Vec<_>>();
    assert_eq!(used, [("root".into(), 1), ("/sub".into(), 0)], "an escalation ends the window");
    assert_eq!(root.shutdown(FIVE_SECONDS).await.reason, ExitReason::Shutdown);
});

virtual_time_test!(escalation_waits_for_slow_siblings_at_most_the_sibling_drain_limit, {
    for is_parallel in [true, false] {
        let env = WorkerEnv::default();
        let bus = bus_without_jitter();
        let (a, spec_a) = worker(&bus, &env, "/sub/a");
        let (b, spec_b) = worker(&bus, &env, "/sub/b");
        let (c, spec_c) = worker(&bus, &env, "/sub/c");
        let sub = SupervisorSpec::new("sub", Strategy::OneForOne, 0, FIVE_SECONDS).sibling_drain_limit(ms(300));
        let sub = if is_parallel { sub.parallel_shutdown() } else { sub };
        let sub = sub.child(spec_a).child(spec_b).child(spec_c);
        let _root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).supervisor(sub), bus).await;
        let slow = b.ask(Slow(60_000, false), ONE_HOUR);
        let began = Instant::now();

        let (slow, ()) = tokio::join!(slow, async {
            tokio::task::yield_now().await;
            a.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
        });

        assert_eq!(slow, Err(AskError::Closed), "it was killed");
        assert_eq!(generations(&[a, b, c]).await, [2, 2, 2]);
        assert!(began.elapsed() >= ms(300) && began.elapsed() < ms(500), "{:?}", began.elapsed());
    }
});

virtual_time_test!(root_counts_escalations_of_nested_supervisors_not_their_restarts, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let (w, spec) = worker(&bus, &env, "/sub/w");
    let sub = SupervisorSpec::new("sub", Strategy::OneForOne, 1, Duration::from_secs(60)).path("/sub").child(spec);
    let spec = SupervisorSpec::new("root", Strategy::OneForOne, 1, Duration::from_secs(60)).supervisor(sub);
    let root = RootSupervisor::start(spec, bus).await;

    for _ in 0..4 {
        assert_eq!(w.ask(Behavior::Panic, FIVE_SECONDS).await, Err(AskError::Closed));
    }

    let reason = root.done().await;
    assert!(matches!(&reason, ExitReason::Escalated { detail } if detail.contains("/sub: escalated")), "{reason:?}");
});

virtual_time_test!(tree_escalates_when_a_child_never_starts, {
    let env = WorkerEnv::default();
    env.fail_starts.store(100, std::sync::atomic::Ordering::SeqCst);

    let (w, root, _events) = tree_of_one(&env, 3).await;

    assert_eq!(root.done().await.as_str(), "escalated");
    assert_eq!(w.ask(Ping, ONE_HOUR).await, Err(AskError::Closed));
});

virtual_time_test!(transient_child_restarts_only_after_an_abnormal_exit, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    let root =
        RootSupervisor::start(supervisor(Strategy::OneForOne, 3).child(spec.restart(Restart::Transient)), bus).await;

    w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((2, 1)));
    let (_, queued) = tokio::join!(w.ask(Behavior::Stop, ONE_HOUR), w.ask(Ping, ONE_HOUR));

    assert_eq!(events.wait_for("child_terminated", "/w").await.reason, Some("normal"));
    assert_eq!((queued, w.ask(Ping, ONE_HOUR).await), (Err(AskError::Closed), Err(AskError::Closed)));
    let row = &root.bus().snapshot()[0];
    assert_eq!((row.state, row.last_exit.as_deref(), row.mailbox_depth), (ActorState::Stopped, Some("normal"), 0));
    assert!(root.bus().panic("/w", "test").is_err(), "the path has no running actor");
});

virtual_time_test!(temporary_child_never_restarts, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    let _root =
        RootSupervisor::start(supervisor(Strategy::OneForOne, 0).child(spec.restart(Restart::Temporary)), bus).await;

    w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();

    assert_eq!(events.wait_for("child_terminated", "/w").await.reason, Some("panic"));
    assert_eq!(w.ask(Ping, ONE_HOUR).await, Err(AskError::Closed));
});

virtual_time_test!(end_of_a_significant_child_ends_its_supervisor, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let (_a, spec_a) = worker(&bus, &env, "/a");
    let (w, spec) = worker(&bus, &env, "/w");
    let spec = supervisor(Strategy::OneForOne, 3)
        .auto_shutdown()
        .child(spec_a)
        .child(spec.restart(Restart::Transient).significant());
    let root = RootSupervisor::start(spec, bus).await;

    w.ask(Behavior::Stop, FIVE_SECONDS).await.unwrap();

    assert_eq!(root.done().await, ExitReason::Shutdown);
    assert_eq!(env.take_trace(), ["+a", "+w", "-w", "-a"]);
});

virtual_time_test!(significant_children_that_end_together_end_their_supervisor_once, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (w, spec_w) = worker(&bus, &env, "/w");
    let mut spec = supervisor(Strategy::OneForAll, 3).auto_shutdown().child(spec_w);
    for path in ["/a", "/b"] {
        let (_mailbox, temporary) = worker(&bus, &env, path);
        spec = spec.child(temporary.restart(Restart::Temporary).significant());
    }
    let root = RootSupervisor::start(spec, bus).await;

    w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();

    assert_eq!(root.done().await, ExitReason::Shutdown);
    let stopped = events.received().into_iter().filter(|event| event.event == "supervisor_stopped").count();
    assert_eq!(stopped, 1);
});
