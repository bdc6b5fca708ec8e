//! Children that are added and removed while the tree runs.

use std::sync::atomic::Ordering::SeqCst;

use supervision::{ActorSnapshot, ActorState, AskError, ChildError, Restart, RootSupervisor, Strategy, SupervisorSpec};

use crate::fixture::{
    Behavior, EventReader, FIVE_SECONDS, ONE_HOUR, Ping, Slow, WorkerEnv, bus_without_jitter, generations, ms,
    supervisor, worker,
};

virtual_time_test!(added_child_is_started_supervised_and_removed_after_its_drain, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).supervisor(workers()), bus.clone()).await;
    let (w, spec) = worker(&bus, &env, "/relay/worker-7");

    bus.start_child("workers", spec).unwrap();
    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((1, 1)));
    w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((2, 1)));
    let slow = tokio::task::spawn_local({
        let w = w.clone();
        async move { w.ask(Slow(100, false), FIVE_SECONDS).await }
    });
    tokio::task::yield_now().await;
    bus.remove_child("workers", "worker-7").await.unwrap();

    assert_eq!(slow.await.unwrap(), Ok(()));
    assert_eq!((bus.snapshot(), env.alive.load(SeqCst)), (vec![], 0));
    assert_eq!(w.ask(Ping, ONE_HOUR).await, Err(AskError::Closed));
    events.wait_for("child_added", "/relay/worker-7").await;
    events.wait_for("child_started", "/relay/worker-7").await;
    assert_eq!(events.wait_for("child_stopping", "/relay/worker-7").await.reason, Some("shutdown"));
    events.wait_for("child_removed", "/relay/worker-7").await;
    root.shutdown(FIVE_SECONDS).await;
});

virtual_time_test!(path_is_unique_and_free_after_its_child_is_removed, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let _root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).supervisor(workers()), bus.clone()).await;
    let (_first, spec) = worker(&bus, &env, "/w-1");
    let (_second, duplicate) = worker(&bus, &env, "/w-1");
    let (third, again) = worker(&bus, &env, "/w-1");

    bus.start_child("workers", spec).unwrap();
    assert_eq!(bus.start_child("workers", duplicate), Err(ChildError::PathTaken("/w-1".into())));
    bus.remove_child("workers", "w-1").await.unwrap();
    bus.start_child("workers", again).unwrap();

    assert_eq!(third.ask(Ping, FIVE_SECONDS).await, Ok((1, 1)));
});

virtual_time_test!(path_of_a_child_that_ended_for_good_is_free, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let _root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).supervisor(workers()), bus.clone()).await;
    let (first, spec) = worker(&bus, &env, "/w-1");
    let (second, again) = worker(&bus, &env, "/w-1");
    bus.start_child("workers", spec.restart(Restart::Temporary)).unwrap();
    first.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
    events.wait_for("child_terminated", "/w-1").await;

    bus.start_child("workers", again).unwrap();

    assert_eq!(
        (first.ask(Ping, ONE_HOUR).await, second.ask(Ping, FIVE_SECONDS).await),
        (Err(AskError::Closed), Ok((1, 1)))
    );
});

virtual_time_test!(unknown_supervisors_and_children_are_refused, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).supervisor(workers()), bus.clone()).await;
    let (_w, spec) = worker(&bus, &env, "/w-1");
    let (_w, late) = worker(&bus, &env, "/w-1");

    assert_eq!(bus.start_child("unknown", spec), Err(ChildError::NoSuchSupervisor("unknown".into())));
    assert_eq!(bus.remove_child("unknown", "w-1").await, Err(ChildError::NoSuchSupervisor("unknown".into())));
    assert_eq!(bus.remove_child("workers", "w-1").await, Err(ChildError::NoSuchChild("w-1".into())));
    root.shutdown(FIVE_SECONDS).await;
    tokio::task::yield_now().await;
    assert_eq!(bus.start_child("workers", late), Err(ChildError::NoSuchSupervisor("workers".into())));
});

virtual_time_test!(added_children_restart_with_their_supervisor, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (publisher, spec) = worker(&bus, &env, "/relay/publisher");
    let relay = SupervisorSpec::new("relay", Strategy::RestForOne, 5, FIVE_SECONDS).child(spec).supervisor(workers());
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).supervisor(relay), bus.clone()).await;
    let (one, spec_1) = worker(&bus, &env, "/relay/worker-1");
    let (two, spec_2) = worker(&bus, &env, "/relay/worker-2");
    bus.start_child("workers", spec_1).unwrap();
    bus.start_child("workers", spec_2).unwrap();
    events.wait_for("child_started", "/relay/worker-2").await;
    tokio::time::sleep(FIVE_SECONDS).await;
    assert!(bus.snapshot().iter().all(|actor| actor.uptime >= Some(FIVE_SECONDS)));

    bus.panic("/relay/publisher", "test").unwrap();

    events.wait_for("child_restarted", "/relay/worker-2").await;
    assert_eq!(generations(&[publisher, one, two]).await, [2, 2, 2]);
    let restarted = |actor: &ActorSnapshot| actor.uptime.is_some_and(|uptime| uptime < FIVE_SECONDS);
    assert!(bus.snapshot().iter().all(|actor| actor.state == ActorState::Running && restarted(actor)));
    root.shutdown(FIVE_SECONDS).await;
});

virtual_time_test!(child_removed_during_its_back_off_does_not_restart, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let _root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).supervisor(workers()), bus.clone()).await;
    let (w, spec) = worker(&bus, &env, "/w-1");
    bus.start_child("workers", spec).unwrap();
    w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
    events.wait_for("restart_scheduled", "/w-1").await;

    bus.remove_child("workers", "w-1").await.unwrap();
    tokio::time::sleep(ms(2_000)).await;

    assert!(events.received().iter().all(|event| event.event != "child_restarted"));
    assert_eq!((w.ask(Ping, ONE_HOUR).await, env.alive.load(SeqCst)), (Err(AskError::Closed), 0));
});

fn workers() -> SupervisorSpec {
    SupervisorSpec::new("workers", Strategy::OneForOne, 20, FIVE_SECONDS)
}
