//! Children that come and go while the tree runs.

use std::sync::atomic::Ordering::SeqCst;

use supervision::{AskError, ChildError, Restart, Root, State, Strategy, SupervisorSpec};

use crate::world::{Act, Ear, Env, LONG, Ping, SOON, Slow, generations, ms, plain_bus, supervisor, worker};

story!(a_child_is_added_started_supervised_and_removed_after_it_drained, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let root = Root::start(supervisor(Strategy::OneForOne, 3).supervisor(workers()), bus.clone()).await;
    let (w, spec) = worker(&bus, &env, "/relay/worker-7");

    bus.start_child("workers", spec).unwrap();
    assert_eq!(w.ask(Ping, SOON).await, Ok((1, 1)));
    w.ask(Act::Panic, SOON).await.unwrap_err();
    assert_eq!(w.ask(Ping, SOON).await, Ok((2, 1)));
    let slow = tokio::task::spawn_local({
        let w = w.clone();
        async move { w.ask(Slow(100, false), SOON).await }
    });
    tokio::task::yield_now().await;
    bus.remove_child("workers", "worker-7").await.unwrap();

    assert_eq!(slow.await.unwrap(), Ok(()));
    assert_eq!((bus.snapshot(), env.alive.load(SeqCst)), (vec![], 0));
    assert_eq!(w.ask(Ping, LONG).await, Err(AskError::Closed));
    ear.wait("child_added", "/relay/worker-7").await;
    ear.wait("child_started", "/relay/worker-7").await;
    assert_eq!(ear.wait("child_stopping", "/relay/worker-7").await.reason, Some("shutdown"));
    ear.wait("child_removed", "/relay/worker-7").await;
    root.shutdown(SOON).await;
});

story!(a_path_is_taken_by_one_child_and_free_when_it_was_removed, {
    let env = Env::default();
    let bus = plain_bus();
    let _root = Root::start(supervisor(Strategy::OneForOne, 3).supervisor(workers()), bus.clone()).await;
    let (_first, spec) = worker(&bus, &env, "/w-1");
    let (_second, twin) = worker(&bus, &env, "/w-1");
    let (third, again) = worker(&bus, &env, "/w-1");

    bus.start_child("workers", spec).unwrap();
    assert_eq!(bus.start_child("workers", twin), Err(ChildError::PathTaken("/w-1".into())));
    bus.remove_child("workers", "w-1").await.unwrap();
    bus.start_child("workers", again).unwrap();

    assert_eq!(third.ask(Ping, SOON).await, Ok((1, 1)));
});

story!(the_path_of_a_child_that_ended_for_good_is_free_again, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let _root = Root::start(supervisor(Strategy::OneForOne, 3).supervisor(workers()), bus.clone()).await;
    let (first, spec) = worker(&bus, &env, "/w-1");
    let (second, again) = worker(&bus, &env, "/w-1");
    bus.start_child("workers", spec.restart(Restart::Temporary)).unwrap();
    first.ask(Act::Panic, SOON).await.unwrap_err();
    ear.wait("child_terminated", "/w-1").await;

    bus.start_child("workers", again).unwrap();

    assert_eq!((first.ask(Ping, LONG).await, second.ask(Ping, SOON).await), (Err(AskError::Closed), Ok((1, 1))));
});

story!(unknown_supervisors_and_children_are_refused, {
    let env = Env::default();
    let bus = plain_bus();
    let root = Root::start(supervisor(Strategy::OneForOne, 3).supervisor(workers()), bus.clone()).await;
    let (_w, spec) = worker(&bus, &env, "/w-1");
    let (_w, late) = worker(&bus, &env, "/w-1");

    assert_eq!(bus.start_child("nobody", spec), Err(ChildError::NoSuchSupervisor("nobody".into())));
    assert_eq!(bus.remove_child("nobody", "w-1").await, Err(ChildError::NoSuchSupervisor("nobody".into())));
    assert_eq!(bus.remove_child("workers", "w-1").await, Err(ChildError::NoSuchChild("w-1".into())));
    root.shutdown(SOON).await;
    tokio::task::yield_now().await;
    assert_eq!(bus.start_child("workers", late), Err(ChildError::NoSuchSupervisor("workers".into())));
});

story!(added_children_come_back_with_their_supervisor, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (publisher, spec) = worker(&bus, &env, "/relay/publisher");
    let relay = SupervisorSpec::new("relay", Strategy::RestForOne, 5, SOON).child(spec).supervisor(workers());
    let root = Root::start(supervisor(Strategy::OneForOne, 3).supervisor(relay), bus.clone()).await;
    let (one, spec_1) = worker(&bus, &env, "/relay/worker-1");
    let (two, spec_2) = worker(&bus, &env, "/relay/worker-2");
    bus.start_child("workers", spec_1).unwrap();
    bus.start_child("workers", spec_2).unwrap();
    ear.wait("child_started", "/relay/worker-2").await;

    bus.panic("/relay/publisher", "test").unwrap();

    ear.wait("child_restarted", "/relay/worker-2").await;
    assert_eq!(generations(&[publisher, one, two]).await, [2, 2, 2]);
    assert!(bus.snapshot().iter().all(|row| row.state == State::Running));
    root.shutdown(SOON).await;
});

story!(a_child_in_its_back_off_is_removed_without_coming_back, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let _root = Root::start(supervisor(Strategy::OneForOne, 3).supervisor(workers()), bus.clone()).await;
    let (w, spec) = worker(&bus, &env, "/w-1");
    bus.start_child("workers", spec).unwrap();
    w.ask(Act::Panic, SOON).await.unwrap_err();
    ear.wait("restart_scheduled", "/w-1").await;

    bus.remove_child("workers", "w-1").await.unwrap();
    tokio::time::sleep(ms(2_000)).await;

    assert!(ear.so_far().iter().all(|event| event.event != "child_restarted"));
    assert_eq!((w.ask(Ping, LONG).await, env.alive.load(SeqCst)), (Err(AskError::Closed), 0));
});

fn workers() -> SupervisorSpec {
    SupervisorSpec::new("workers", Strategy::OneForOne, 20, SOON)
}
