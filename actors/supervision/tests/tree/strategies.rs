//! Who goes down with a child that failed, and in which order they come back.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use supervision::{AskError, Birth, Inbox, Reason, Restart, Root, Strategy, SupervisorSpec, actor};

use crate::world::{
    Act, Ear, Env, LONG, Ping, SOON, Slow, Worker, generations, ms, plain_bus, supervisor, three, worker,
};

story!(one_for_one_leaves_the_siblings_alone, {
    let env = Env::default();
    let (inboxes, _root, mut ear) = three(&env, Strategy::OneForOne).await;

    inboxes[1].ask(Act::Panic, SOON).await.unwrap_err();
    ear.wait("child_restarted", "/b").await;

    assert_eq!(generations(&inboxes).await, [1, 2, 1]);
});

story!(rest_for_one_drains_the_later_siblings_and_restarts_them_in_order, {
    let env = Env::default();
    let (inboxes, root, mut ear) = three(&env, Strategy::RestForOne).await;
    env.take_trace();
    let slow = inboxes[2].clone();
    let in_flight = tokio::task::spawn_local(async move { slow.ask(Slow(20, false), SOON).await });
    tokio::time::sleep(ms(1)).await;

    root.bus().kill("/b", "test").unwrap();
    ear.wait("child_restarted", "/c").await;

    assert_eq!(env.take_trace(), ["-c", "+b", "+c"], "c drained, then b, then c; a killed one has no stopped()");
    assert_eq!(in_flight.await.unwrap(), Ok(()), "drained, not cut");
    assert_eq!(generations(&inboxes).await, [1, 2, 2]);
});

story!(one_for_all_takes_everyone_down_in_reverse_and_back_in_order, {
    let env = Env::default();
    let (inboxes, root, mut ear) = three(&env, Strategy::OneForAll).await;
    env.take_trace();

    root.bus().panic("/b", "test").unwrap();
    ear.wait("child_restarted", "/c").await;

    assert_eq!(env.take_trace(), ["-c", "-a", "+a", "+b", "+c"]);
    assert_eq!(generations(&inboxes).await, [2, 2, 2]);
});

story!(a_sibling_that_goes_down_with_the_failed_one_says_so_and_returns_with_its_generation, {
    let env = Env::default();
    let (_inboxes, root, mut ear) = three(&env, Strategy::RestForOne).await;

    root.bus().panic("/b", "test").unwrap();

    assert_eq!(ear.wait("child_exited", "/b").await.reason, Some("panic"));
    assert_eq!(ear.wait("child_stopping", "/c").await.reason, Some("sibling"));
    let exited = ear.wait("child_exited", "/c").await;
    assert_eq!((exited.reason, exited.get_text("detail")), (Some("sibling"), Some("b")));
    assert_eq!(exited.level, tracing::Level::WARN);
    assert_eq!(ear.wait("restart_scheduled", "/b").await.get_number("group"), Some(1));
    assert_eq!(ear.wait("child_restarted", "/b").await.generation, 2);
    assert_eq!(ear.wait("child_restarted", "/c").await.generation, 2);
    let row = &root.bus().snapshot()[2];
    assert_eq!((row.restarts, row.last_exit.as_deref()), (1, Some("sibling: b")));
});

story!(the_group_waits_for_its_leader, {
    let env = Env::default();
    let (inboxes, root, mut ear) = three(&env, Strategy::RestForOne).await;
    env.take_trace();
    env.fail_starts.store(2, SeqCst);

    root.bus().panic("/a", "test").unwrap();
    ear.wait("child_restarted", "/c").await;

    assert_eq!(env.take_trace(), ["-c", "-b", "+a", "+a", "+a", "+b", "+c"]);
    assert_eq!(generations(&inboxes).await, [4, 2, 2]);
});

story!(a_temporary_sibling_does_not_come_back, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (_a, spec_a) = worker(&bus, &env, "/a");
    let (b, spec_b) = worker(&bus, &env, "/b");
    let (c, spec_c) = worker(&bus, &env, "/c");
    let spec = supervisor(Strategy::OneForAll, 3);
    let spec = spec.child(spec_a.restart(Restart::Temporary)).child(spec_b).child(spec_c);
    let root = Root::start(spec, bus).await;

    root.bus().panic("/b", "test").unwrap();

    assert_eq!(ear.wait("child_terminated", "/a").await.reason, Some("sibling"));
    ear.wait("child_restarted", "/c").await;
    assert_eq!(generations(&[b, c]).await, [2, 2]);
    assert_eq!(root.bus().snapshot()[0].state, supervision::State::Stopped);
});

story!(the_children_of_a_supervisor_go_down_as_siblings_too, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (publisher, publisher_spec) = worker(&bus, &env, "/relay/publisher");
    let (worker_7, worker_spec) = worker(&bus, &env, "/relay/worker-7");
    let workers = SupervisorSpec::new("workers", Strategy::OneForOne, 20, SOON).child(worker_spec);
    let relay = SupervisorSpec::new("relay", Strategy::RestForOne, 5, SOON).shown_at("/relay");
    let relay = relay.child(publisher_spec).supervisor(workers);
    let root = Root::start(supervisor(Strategy::OneForOne, 3).supervisor(relay), bus).await;

    root.bus().panic("/relay/publisher", "test").unwrap();

    let exited = ear.wait("child_exited", "/relay/worker-7").await;
    assert_eq!((exited.reason, exited.get_text("detail")), (Some("sibling"), Some("publisher")));
    assert_eq!(ear.wait("child_restarted", "/relay/publisher").await.generation, 2);
    assert_eq!(ear.wait("child_restarted", "/relay/worker-7").await.generation, 2);
    assert_eq!(generations(&[publisher, worker_7]).await, [2, 2]);
    let rows = root.bus().snapshot();
    assert!(
        rows.iter().all(|row| row.parent.as_deref() == Some("/relay")),
        "the transparent one stands in no path: {rows:?}"
    );
});

story!(a_failed_child_waits_for_its_siblings_no_longer_than_their_grace, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (_publisher, publisher_spec) = worker(&bus, &env, "/relay/publisher");
    let (worker_1, spec_1) = worker(&bus, &env, "/relay/worker-1");
    let (worker_2, spec_2) = worker(&bus, &env, "/relay/worker-2");
    let (last, last_spec) = worker(&bus, &env, "/relay/last");
    let workers = SupervisorSpec::new("workers", Strategy::OneForOne, 20, SOON).child(spec_1).child(spec_2);
    let relay = supervisor(Strategy::RestForOne, 5).grace(ms(300));
    let relay = relay.child(publisher_spec).supervisor(workers.stops_at_once()).child(last_spec);
    let root = Root::start(relay, bus).await;
    let slow = |inbox: &Inbox<Worker>, millis| {
        let inbox = inbox.clone();
        tokio::task::spawn_local(async move { inbox.ask(Slow(millis, false), LONG).await })
    };
    let (cut, finished, also_cut) = (slow(&worker_1, 60_000), slow(&worker_2, 250), slow(&last, 60_000));
    tokio::time::sleep(ms(1)).await;

    root.bus().panic("/relay/publisher", "test").unwrap();

    assert_eq!(ear.wait("shutdown_timeout", "/relay/last").await.get_number("limit_ms"), Some(300));
    assert_eq!(ear.wait("child_exited", "/relay/last").await.reason, Some("sibling"));
    let back = ear.wait("child_restarted", "/relay/publisher").await;
    let downtime = back.get_number("downtime_ms");
    assert!(
        downtime >= Some(600) && downtime < Some(610),
        "both had their grace, the workers one for all: {downtime:?}"
    );
    assert_eq!(finished.await.unwrap(), Ok(()), "it drained in time");
    assert_eq!(cut.await.unwrap(), Err(AskError::Closed));
    assert_eq!(also_cut.await.unwrap(), Err(AskError::Closed));
    assert_eq!(generations(&[worker_1, worker_2, last]).await, [2, 2, 2]);
});

story!(a_life_knows_how_the_one_before_it_ended, {
    let bus = plain_bus();
    let births: Arc<Mutex<Vec<Birth>>> = Arc::default();
    let (env, told) = (Env::default(), Arc::clone(&births));
    let make = Worker::factory("b", &env);
    let (a, spec_a) = worker(&bus, &env, "/a");
    let (b, spec_b) = actor(&bus, "/b", 8, move |birth| {
        told.lock().unwrap().push(birth.clone());
        make(birth)
    });
    let root = Root::start(supervisor(Strategy::RestForOne, 9).child(spec_a).child(spec_b), bus).await;

    b.ask(Act::Stop, SOON).await.unwrap();
    assert_eq!(b.ask(Ping, SOON).await, Ok((2, 1)));
    root.bus().kill("/b", "test").unwrap();
    assert_eq!(b.ask(Ping, SOON).await, Ok((3, 1)));
    a.ask(Act::Panic, SOON).await.unwrap_err();
    assert_eq!(b.ask(Ping, SOON).await, Ok((4, 1)));

    let ends: Vec<Option<Reason>> = births.lock().unwrap().iter().map(|birth| birth.after.clone()).collect();
    let (killed, sibling) = (Reason::Killed { by: "test".into() }, Reason::Sibling { failed: "a".into() });
    assert_eq!(ends, [None, Some(Reason::Normal), Some(killed), Some(sibling)]);
});
