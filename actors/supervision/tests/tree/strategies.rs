//! Strategies: which siblings stop with a failed child, and in which order they restart.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use supervision::{
    AskError, ExitReason, Incarnation, Mailbox, Restart, RootSupervisor, Strategy, SupervisorSpec, actor,
};

use crate::fixture::{
    Behavior, EventReader, FIVE_SECONDS, ONE_HOUR, Ping, Slow, Worker, WorkerEnv, bus_without_jitter, generations, ms,
    supervisor, tree_of_three, worker,
};

virtual_time_test!(one_for_one_restarts_only_the_failed_child, {
    let env = WorkerEnv::default();
    let (mailboxes, _root, mut events) = tree_of_three(&env, Strategy::OneForOne).await;

    mailboxes[1].ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
    events.wait_for("child_restarted", "/b").await;

    assert_eq!(generations(&mailboxes).await, [1, 2, 1]);
});

virtual_time_test!(rest_for_one_drains_later_siblings_and_restarts_them_in_order, {
    let env = WorkerEnv::default();
    let (mailboxes, root, mut events) = tree_of_three(&env, Strategy::RestForOne).await;
    env.take_trace();
    let slow = mailboxes[2].clone();
    let in_flight = tokio::task::spawn_local(async move { slow.ask(Slow(20, false), FIVE_SECONDS).await });
    tokio::time::sleep(ms(1)).await;

    root.bus().kill("/b", "test").unwrap();
    events.wait_for("child_restarted", "/c").await;

    assert_eq!(
        env.take_trace(),
        ["-c", "+b", "+c"],
        "c drained, then b and c started; a killed actor gets no stopped()"
    );
    assert_eq!(in_flight.await.unwrap(), Ok(()), "drained, not killed");
    assert_eq!(generations(&mailboxes).await, [1, 2, 2]);
});

virtual_time_test!(one_for_all_stops_all_in_reverse_order_and_restarts_all_in_order, {
    let env = WorkerEnv::default();
    let (mailboxes, root, mut events) = tree_of_three(&env, Strategy::OneForAll).await;
    env.take_trace();

    root.bus().panic("/b", "test").unwrap();
    events.wait_for("child_restarted", "/c").await;

    assert_eq!(env.take_trace(), ["-c", "-a", "+a", "+b", "+c"]);
    assert_eq!(generations(&mailboxes).await, [2, 2, 2]);
});

virtual_time_test!(stopped_sibling_exits_with_reason_sibling_and_restarts_in_its_next_generation, {
    let env = WorkerEnv::default();
    let (_inboxes, root, mut events) = tree_of_three(&env, Strategy::RestForOne).await;

    root.bus().panic("/b", "test").unwrap();

    assert_eq!(events.wait_for("child_exited", "/b").await.reason, Some("panic"));
    assert_eq!(events.wait_for("child_stopping", "/c").await.reason, Some("sibling"));
    let exited = events.wait_for("child_exited", "/c").await;
    assert_eq!((exited.reason, exited.text("detail")), (Some("sibling"), Some("b")));
    assert_eq!(exited.level, tracing::Level::WARN);
    assert_eq!(events.wait_for("restart_scheduled", "/b").await.number("group"), Some(1));
    assert_eq!(events.wait_for("child_restarted", "/b").await.generation, 2);
    assert_eq!(events.wait_for("child_restarted", "/c").await.generation, 2);
    let row = &root.bus().snapshot()[2];
    assert_eq!((row.restarts, row.last_exit.as_deref()), (1, Some("sibling: b")));
});

virtual_time_test!(siblings_restart_after_the_failed_child_has_started, {
    let env = WorkerEnv::default();
    let (mailboxes, root, mut events) = tree_of_three(&env, Strategy::RestForOne).await;
    env.take_trace();
    env.fail_starts.store(2, SeqCst);

    root.bus().panic("/a", "test").unwrap();
    events.wait_for("child_restarted", "/c").await;

    assert_eq!(env.take_trace(), ["-c", "-b", "+a", "+a", "+a", "+b", "+c"]);
    assert_eq!(generations(&mailboxes).await, [4, 2, 2]);
});

virtual_time_test!(temporary_sibling_is_not_restarted, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (_a, spec_a) = worker(&bus, &env, "/a");
    let (b, spec_b) = worker(&bus, &env, "/b");
    let (c, spec_c) = worker(&bus, &env, "/c");
    let spec = supervisor(Strategy::OneForAll, 3);
    let spec = spec.child(spec_a.restart(Restart::Temporary)).child(spec_b).child(spec_c);
    let root = RootSupervisor::start(spec, bus).await;

    root.bus().panic("/b", "test").unwrap();

    assert_eq!(events.wait_for("child_terminated", "/a").await.reason, Some("sibling"));
    events.wait_for("child_restarted", "/c").await;
    assert_eq!(generations(&[b, c]).await, [2, 2]);
    assert_eq!(root.bus().snapshot()[0].state, supervision::ActorState::Stopped);
});

virtual_time_test!(children_of_a_stopped_sibling_supervisor_exit_with_reason_sibling, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (publisher, publisher_spec) = worker(&bus, &env, "/relay/publisher");
    let (worker_7, worker_spec) = worker(&bus, &env, "/relay/worker-7");
    let workers = SupervisorSpec::new("workers", Strategy::OneForOne, 20, FIVE_SECONDS).child(worker_spec);
    let relay = SupervisorSpec::new("relay", Strategy::RestForOne, 5, FIVE_SECONDS).path("/relay");
    let relay = relay.child(publisher_spec).supervisor(workers);
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).supervisor(relay), bus).await;

    root.bus().panic("/relay/publisher", "test").unwrap();

    let exited = events.wait_for("child_exited", "/relay/worker-7").await;
    assert_eq!((exited.reason, exited.text("detail")), (Some("sibling"), Some("publisher")));
    assert_eq!(events.wait_for("child_restarted", "/relay/publisher").await.generation, 2);
    assert_eq!(events.wait_for("child_restarted", "/relay/worker-7").await.generation, 2);
    assert_eq!(generations(&[publisher, worker_7]).await, [2, 2]);
    let rows = root.bus().snapshot();
    assert!(
        rows.iter().all(|actor| actor.parent.as_deref() == Some("/relay")),
        "the hidden supervisor is not a parent: {rows:?}"
    );
});

virtual_time_test!(failed_child_waits_for_each_sibling_at_most_the_sibling_drain_limit, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (_publisher, publisher_spec) = worker(&bus, &env, "/relay/publisher");
    let (worker_1, spec_1) = worker(&bus, &env, "/relay/worker-1");
    let (worker_2, spec_2) = worker(&bus, &env, "/relay/worker-2");
    let (last, last_spec) = worker(&bus, &env, "/relay/last");
    let workers = SupervisorSpec::new("workers", Strategy::OneForOne, 20, FIVE_SECONDS).child(spec_1).child(spec_2);
    let relay = supervisor(Strategy::RestForOne, 5).sibling_drain_limit(ms(300));
    let relay = relay.child(publisher_spec).supervisor(workers.parallel_shutdown()).child(last_spec);
    let root = RootSupervisor::start(relay, bus).await;
    let slow = |mailbox: &Mailbox<Worker>, millis| {
        let mailbox = mailbox.clone();
        tokio::task::spawn_local(async move { mailbox.ask(Slow(millis, false), ONE_HOUR).await })
    };
    let (killed, finished, also_killed) = (slow(&worker_1, 60_000), slow(&worker_2, 250), slow(&last, 60_000));
    tokio::time::sleep(ms(1)).await;

    root.bus().panic("/relay/publisher", "test").unwrap();

    assert_eq!(events.wait_for("shutdown_timeout", "/relay/last").await.number("limit_ms"), Some(300));
    assert_eq!(events.wait_for("child_exited", "/relay/last").await.reason, Some("sibling"));
    let back = events.wait_for("child_restarted", "/relay/publisher").await;
    let downtime = back.number("downtime_ms");
    assert!(downtime >= Some(600) && downtime < Some(610), "one limit for `last`, one for all workers: {downtime:?}");
    assert_eq!(finished.await.unwrap(), Ok(()), "it drained in time");
    assert_eq!(killed.await.unwrap(), Err(AskError::Closed));
    assert_eq!(also_killed.await.unwrap(), Err(AskError::Closed));
    assert_eq!(generations(&[worker_1, worker_2, last]).await, [2, 2, 2]);
});

virtual_time_test!(incarnation_carries_the_previous_exit_reason, {
    let bus = bus_without_jitter();
    let incarnations: Arc<Mutex<Vec<Incarnation>>> = Arc::default();
    let (env, recorded) = (WorkerEnv::default(), Arc::clone(&incarnations));
    let make = Worker::factory("b", &env);
    let (a, spec_a) = worker(&bus, &env, "/a");
    let (b, spec_b) = actor(&bus, "/b", 8, move |incarnation| {
        recorded.lock().unwrap().push(incarnation.clone());
        make(incarnation)
    });
    let root = RootSupervisor::start(supervisor(Strategy::RestForOne, 9).child(spec_a).child(spec_b), bus).await;

    b.ask(Behavior::Stop, FIVE_SECONDS).await.unwrap();
    assert_eq!(b.ask(Ping, FIVE_SECONDS).await, Ok((2, 1)));
    root.bus().kill("/b", "test").unwrap();
    assert_eq!(b.ask(Ping, FIVE_SECONDS).await, Ok((3, 1)));
    a.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
    assert_eq!(b.ask(Ping, FIVE_SECONDS).await, Ok((4, 1)));

    let ends: Vec<Option<ExitReason>> =
        incarnations.lock().unwrap().iter().map(|incarnation| incarnation.previous_exit.clone()).collect();
    let (killed, sibling) = (ExitReason::Killed { by: "test".into() }, ExitReason::Sibling { failed: "a".into() });
    assert_eq!(ends, [None, Some(ExitReason::Normal), Some(killed), Some(sibling)]);
});
