//! Ordered shutdown, draining, and the report of unfinished actors.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use supervision::{
    ActorState, AskError, ExitReason, RootSupervisor, Shutdown, Strategy, SupervisorSpec, UnfinishedActor,
};
use tokio::time::Instant;

use crate::fixture::{
    Behavior, EventReader, FIVE_SECONDS, ONE_HOUR, Ping, Slow, WorkerEnv, bus_without_jitter, ms, supervisor,
    tree_of_one, tree_of_three, worker,
};

virtual_time_test!(children_stop_in_reverse_start_order_and_finish_their_messages, {
    let env = WorkerEnv::default();
    let (mailboxes, root, mut events) = tree_of_three(&env, Strategy::OneForOne).await;
    env.take_trace();
    let [a, ..] = mailboxes;
    let work = (0..3).map(|_| a.ask(Slow(300, false), FIVE_SECONDS));
    let work = futures::future::join_all(work);
    let began = Instant::now();

    let (report, replies) = tokio::join!(
        async {
            tokio::task::yield_now().await;
            root.shutdown(FIVE_SECONDS).await
        },
        work
    );

    assert_eq!(replies, vec![Ok(()); 3]);
    assert_eq!((report.reason, report.unfinished), (ExitReason::Shutdown, vec![]));
    assert!(began.elapsed() >= ms(300) && began.elapsed() < ms(310));
    assert_eq!(report.elapsed, began.elapsed());
    assert_eq!(env.take_trace(), ["-c", "-b", "-a"]);
    assert_eq!(events.wait_for("child_exited", "/a").await.reason, Some("shutdown"));
    assert_eq!(events.wait_for("tree_stopped", "root").await.number("exit_code"), Some(0));
});

virtual_time_test!(child_that_does_not_drain_in_time_is_killed_and_reported, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (a, spec_a) = worker(&bus, &env, "/a");
    let (b, spec_b) = worker(&bus, &env, "/b");
    let spec = supervisor(Strategy::OneForOne, 3).child(spec_a).child(spec_b.shutdown(Shutdown::Timeout(ms(400))));
    let root = RootSupervisor::start(spec, bus).await;
    let killed = futures::future::join_all((0..2).map(|_| b.ask(Slow(60_000, false), ONE_HOUR)));
    let idle = a.ask(Ping, FIVE_SECONDS).await;

    let (report, killed) = tokio::join!(
        async {
            tokio::task::yield_now().await;
            root.shutdown(FIVE_SECONDS).await
        },
        killed
    );

    assert_eq!((idle, killed), (Ok((1, 1)), vec![Err(AskError::Closed); 2]));
    assert_eq!(report.unfinished, [UnfinishedActor { path: "/b".into(), queued_or_in_flight: 2 }]);
    assert!(report.elapsed >= ms(400) && report.elapsed < ms(410), "{:?}", report.elapsed);
    assert_eq!(events.wait_for("shutdown_timeout", "/b").await.number("limit_ms"), Some(400));
    assert_eq!(events.wait_for("child_exited", "/b").await.reason, Some("shutdown_timeout"));
    assert_eq!(env.alive.load(SeqCst), 0);
});

virtual_time_test!(shutdown_deadline_overrides_every_child_limit, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let (a, spec_a) = worker(&bus, &env, "/a");
    let (b, spec_b) = worker(&bus, &env, "/sub/b");
    let sub = SupervisorSpec::new("sub", Strategy::OneForOne, 3, FIVE_SECONDS);
    let sub = sub.child(spec_b.shutdown(Shutdown::Infinity));
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).child(spec_a).supervisor(sub), bus).await;
    a.try_send(Behavior::Hang).map_err(|(error, _)| error).unwrap();
    b.try_send(Behavior::Hang).map_err(|(error, _)| error).unwrap();
    for _ in 0..3 {
        b.try_send(Ping).map_err(|(error, _)| error).unwrap();
    }
    tokio::task::yield_now().await;

    let report = root.shutdown(Duration::from_secs(2)).await;

    assert_eq!(report.reason, ExitReason::Shutdown);
    let left = |path: &str, queued_or_in_flight| UnfinishedActor { path: path.into(), queued_or_in_flight };
    assert_eq!(report.unfinished, [left("/sub/b", 3), left("/a", 0)]);
    assert!(report.elapsed >= Duration::from_secs(2) && report.elapsed < ms(2_010), "{:?}", report.elapsed);
});

virtual_time_test!(mailbox_of_a_stopped_child_closes_while_others_still_drain, {
    let env = WorkerEnv::default();
    let (mailboxes, root, _events) = tree_of_three(&env, Strategy::OneForOne).await;
    let [a, _, c] = mailboxes;
    let slow = tokio::task::spawn_local(async move { a.ask(Slow(1_000, false), ONE_HOUR).await });
    tokio::time::sleep(ms(1)).await;

    let shutdown = tokio::task::spawn_local(root.shutdown(FIVE_SECONDS));
    tokio::time::sleep(ms(10)).await;

    assert_eq!(c.ask(Ping, ONE_HOUR).await, Err(AskError::Closed));
    assert!(!shutdown.is_finished());
    assert_eq!(slow.await.unwrap(), Ok(()));
    assert!(shutdown.await.unwrap().unfinished.is_empty());
});

virtual_time_test!(shutdown_aborts_a_hanging_start_and_drains_running_children, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let (_a, spec_a) = worker(&bus, &env, "/sub/a");
    let (_b, spec_b) = worker(&bus, &env, "/sub/b");
    let sub = SupervisorSpec::new("sub", Strategy::OneForOne, 3, FIVE_SECONDS).child(spec_a);
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).supervisor(sub), bus.clone()).await;
    env.hang_starts.store(1, SeqCst);
    bus.start_child("sub", spec_b).unwrap();
    tokio::time::sleep(ms(5)).await;
    env.take_trace();

    let report = root.shutdown(FIVE_SECONDS).await;

    assert_eq!((report.reason, report.unfinished), (ExitReason::Shutdown, vec![]));
    assert!(report.elapsed < ms(5), "{:?}", report.elapsed);
    assert_eq!(env.take_trace(), ["-a"]);
});

virtual_time_test!(shutdown_cancels_a_scheduled_restart_and_reports_the_queue, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_of_one(&env, 3).await;
    w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
    events.wait_for("restart_scheduled", "/w").await;
    let queued = tokio::task::spawn_local(async move { w.ask(Ping, ONE_HOUR).await });
    tokio::task::yield_now().await;

    let report = root.shutdown(FIVE_SECONDS).await;

    assert_eq!(report.unfinished, [UnfinishedActor { path: "/w".into(), queued_or_in_flight: 1 }]);
    assert_eq!(queued.await.unwrap(), Err(AskError::Closed));
    assert!(events.received().iter().all(|event| event.event != "child_restarted"));
});

virtual_time_test!(actor_that_dies_during_a_shutdown_is_reported_once_with_all_its_messages, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let (w, spec_w) = worker(&bus, &env, "/sub/w");
    let (last, spec_last) = worker(&bus, &env, "/last");
    let sub = SupervisorSpec::new("sub", Strategy::OneForOne, 3, FIVE_SECONDS).child(spec_w);
    let spec = supervisor(Strategy::OneForOne, 3).supervisor(sub).child(spec_last);
    let root = RootSupervisor::start(spec, bus.clone()).await;
    last.try_send(Slow(1_000, false)).map_err(|(error, _)| error).unwrap();
    w.try_send(Slow(60_000, false)).map_err(|(error, _)| error).unwrap();
    tokio::time::sleep(ms(1)).await;
    bus.pause("/sub/w", "test").unwrap();
    w.try_send(Ping).map_err(|(error, _)| error).unwrap();

    let shutdown = tokio::task::spawn_local(root.shutdown(FIVE_SECONDS));
    tokio::time::sleep(ms(10)).await;
    bus.panic("/sub/w", "test").unwrap();

    let report = shutdown.await.unwrap();
    assert_eq!(report.unfinished, [UnfinishedActor { path: "/sub/w".into(), queued_or_in_flight: 2 }]);
});

virtual_time_test!(shutdown_resumes_and_drains_a_paused_child, {
    let env = WorkerEnv::default();
    let (w, root, _events) = tree_of_one(&env, 3).await;
    root.bus().pause("/w", "test").unwrap();
    let queued = tokio::task::spawn_local(async move { w.ask(Ping, ONE_HOUR).await });
    tokio::time::sleep(ms(50)).await;
    assert_eq!(root.bus().snapshot()[0].state, ActorState::Paused);

    let report = root.shutdown(FIVE_SECONDS).await;

    assert_eq!((report.reason, report.unfinished), (ExitReason::Shutdown, vec![]));
    assert_eq!(queued.await.unwrap(), Ok((1, 1)));
});

virtual_time_test!(messages_sent_during_a_drain_wait_for_the_next_incarnation, {
    let env = WorkerEnv::default();
    let (mailboxes, root, _events) = tree_of_three(&env, Strategy::RestForOne).await;
    let c = mailboxes[2].clone();
    let slow = tokio::task::spawn_local({
        let c = c.clone();
        async move { c.ask(Slow(200, false), FIVE_SECONDS).await }
    });
    tokio::time::sleep(ms(1)).await;

    root.bus().panic("/a", "test").unwrap();
    tokio::time::sleep(ms(20)).await;
    assert_eq!(c.try_send(Ping).map_err(|(error, _)| error), Err(AskError::Overloaded));
    let late = c.ask(Ping, FIVE_SECONDS).await;

    assert_eq!((slow.await.unwrap(), late), (Ok(()), Ok((2, 1))));
});

virtual_time_test!(drain_request_does_not_reach_the_next_incarnation, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (_a, spec_a) = worker(&bus, &env, "/a");
    let (b, spec_b) = worker(&bus, &env, "/b");
    let spec = supervisor(Strategy::OneForAll, 3).child(spec_a).child(spec_b.shutdown(Shutdown::Timeout(ms(100))));
    let root = RootSupervisor::start(spec, bus).await;
    b.try_send(Behavior::Hang).map_err(|(error, _)| error).unwrap();
    tokio::task::yield_now().await;

    root.bus().panic("/a", "test").unwrap();

    assert_eq!(events.wait_for("child_exited", "/b").await.reason, Some("shutdown_timeout"));
    events.wait_for("child_restarted", "/b").await;
    tokio::time::sleep(ms(500)).await;
    assert_eq!(b.ask(Ping, FIVE_SECONDS).await, Ok((2, 1)));
});

virtual_time_test!(closed_mailbox_refuses_messages_and_still_drains, {
    let env = WorkerEnv::default();
    let (w, root, _events) = tree_of_one(&env, 3).await;
    let slow = tokio::task::spawn_local({
        let w = w.clone();
        async move { w.ask(Slow(200, false), FIVE_SECONDS).await }
    });
    tokio::time::sleep(ms(1)).await;

    w.close();
    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Err(AskError::Closed));
    let report = root.shutdown(FIVE_SECONDS).await;

    assert_eq!((slow.await.unwrap(), report.unfinished), (Ok(()), vec![]));
});

virtual_time_test!(brutal_shutdown_kills_without_a_drain, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let (w, spec) = worker(&bus, &env, "/w");
    let spec = supervisor(Strategy::OneForOne, 3).child(spec.shutdown(Shutdown::Brutal));
    let root = RootSupervisor::start(spec, bus).await;
    let slow = tokio::task::spawn_local(async move { w.ask(Slow(200, false), FIVE_SECONDS).await });
    tokio::time::sleep(ms(1)).await;

    let report = root.shutdown(FIVE_SECONDS).await;

    assert_eq!(report.unfinished, [UnfinishedActor { path: "/w".into(), queued_or_in_flight: 1 }]);
    assert_eq!(slow.await.unwrap(), Err(AskError::Closed));
    assert_eq!(env.take_trace(), ["+w"], "no stopped()");
});

virtual_time_test!(parallel_shutdown_drains_all_children_at_once, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let (a, spec_a) = worker(&bus, &env, "/a");
    let (b, spec_b) = worker(&bus, &env, "/b");
    let (c, spec_c) = worker(&bus, &env, "/c");
    let spec = supervisor(Strategy::OneForOne, 3).parallel_shutdown().child(spec_a).child(spec_b);
    let root = RootSupervisor::start(spec.child(spec_c.shutdown(Shutdown::Timeout(ms(400)))), bus).await;
    let slow =
        [(&a, 1_000), (&b, 900), (&c, 60_000)].map(|(mailbox, millis)| mailbox.ask(Slow(millis, false), ONE_HOUR));
    let began = Instant::now();

    let (report, replies) = tokio::join!(
        async {
            tokio::task::yield_now().await;
            root.shutdown(FIVE_SECONDS).await
        },
        futures::future::join_all(slow)
    );

    assert_eq!(replies, [Ok(()), Ok(()), Err(AskError::Closed)], "each within its own limit");
    assert_eq!(report.unfinished, [UnfinishedActor { path: "/c".into(), queued_or_in_flight: 1 }]);
    assert!(began.elapsed() >= ms(1_000) && began.elapsed() < ms(1_010), "{:?}", began.elapsed());
});

virtual_time_test!(limit_of_a_supervisor_ends_the_drain_of_its_children, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (hangs, spec) = worker(&bus, &env, "/sub/inner/hangs");
    let (_idle, spec_idle) = worker(&bus, &env, "/sub/idle");
    let inner = SupervisorSpec::new("inner", Strategy::OneForOne, 3, FIVE_SECONDS);
    let inner = inner.child(spec.shutdown(Shutdown::Infinity)).into_child();
    let sub = SupervisorSpec::new("sub", Strategy::OneForOne, 3, FIVE_SECONDS).child(spec_idle).child(inner);
    let sub = sub.into_child().shutdown(Shutdown::Timeout(ms(400)));
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).child(sub), bus.clone()).await;
    hangs.try_send(Behavior::Hang).map_err(|(error, _)| error).unwrap();
    tokio::task::yield_now().await;
    let began = Instant::now();

    let removed = tokio::time::timeout(ONE_HOUR, bus.remove_child("root", "sub")).await;

    assert_eq!(removed, Ok(Ok(())));
    assert!(began.elapsed() >= ms(400) && began.elapsed() < ms(410), "{:?}", began.elapsed());
    assert_eq!(events.wait_for("shutdown_timeout", "/sub/inner/hangs").await.number("limit_ms"), Some(400));
    assert_eq!(env.alive.load(SeqCst), 0);
    drop(root);
});
