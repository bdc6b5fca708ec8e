//! Ordered shutdown, draining, and the report of what was left.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use actix::prelude::*;
use supervision::{AskError, Job, LeftOver, Reason, Root, Shutdown, State, Strategy, SupervisorSpec, actor};
use tokio::time::Instant;

use crate::world::{Act, Ear, Env, LONG, Ping, SOON, Slow, ms, one, plain_bus, supervisor, three, worker};

story!(children_stop_in_reverse_order_and_finish_what_they_hold, {
    let env = Env::default();
    let (inboxes, root, mut ear) = three(&env, Strategy::OneForOne).await;
    env.take_trace();
    let [a, ..] = inboxes;
    let work = (0..3).map(|_| a.ask(Slow(300, false), SOON));
    let work = futures::future::join_all(work);
    let began = Instant::now();

    let (report, answers) = tokio::join!(
        async {
            tokio::task::yield_now().await;
            root.shutdown(SOON).await
        },
        work
    );

    assert_eq!(answers, vec![Ok(()); 3]);
    assert_eq!((report.reason, report.left), (Reason::Shutdown, vec![]));
    assert!(began.elapsed() >= ms(300) && began.elapsed() < ms(310));
    assert_eq!(report.elapsed, began.elapsed());
    assert_eq!(env.take_trace(), ["-c", "-b", "-a"]);
    assert_eq!(ear.wait("child_exited", "/a").await.reason, Some("shutdown"));
    assert_eq!(ear.wait("tree_stopped", "root").await.get_number("exit_code"), Some(0));
});

story!(a_child_that_does_not_drain_in_time_is_killed_and_reported, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (a, spec_a) = worker(&bus, &env, "/a");
    let (b, spec_b) = worker(&bus, &env, "/b");
    let spec = supervisor(Strategy::OneForOne, 3).child(spec_a).child(spec_b.shutdown(Shutdown::Timeout(ms(400))));
    let root = Root::start(spec, bus).await;
    let cut = futures::future::join_all((0..2).map(|_| b.ask(Slow(60_000, false), LONG)));
    let idle = a.ask(Ping, SOON).await;

    let (report, cut) = tokio::join!(
        async {
            tokio::task::yield_now().await;
            root.shutdown(SOON).await
        },
        cut
    );

    assert_eq!((idle, cut), (Ok((1, 1)), vec![Err(AskError::Closed); 2]));
    assert_eq!(report.left, [LeftOver { path: "/b".into(), queued_or_in_flight: 2 }]);
    assert!(report.elapsed >= ms(400) && report.elapsed < ms(410), "{:?}", report.elapsed);
    assert_eq!(ear.wait("shutdown_timeout", "/b").await.get_number("limit_ms"), Some(400));
    assert_eq!(ear.wait("child_exited", "/b").await.reason, Some("shutdown_timeout"));
    assert_eq!(env.alive.load(SeqCst), 0);
});

story!(the_deadline_of_the_shutdown_is_over_every_child_s_own_limit, {
    let env = Env::default();
    let bus = plain_bus();
    let (a, spec_a) = worker(&bus, &env, "/a");
    let (b, spec_b) = worker(&bus, &env, "/sub/b");
    let sub = SupervisorSpec::new("sub", Strategy::OneForOne, 3, SOON);
    let sub = sub.child(spec_b.shutdown(Shutdown::Infinity));
    let root = Root::start(supervisor(Strategy::OneForOne, 3).child(spec_a).supervisor(sub), bus).await;
    a.try_tell(Act::Hang).map_err(|(error, _)| error).unwrap();
    b.try_tell(Act::Hang).map_err(|(error, _)| error).unwrap();
    for _ in 0..3 {
        b.try_tell(Ping).map_err(|(error, _)| error).unwrap();
    }
    tokio::task::yield_now().await;

    let report = root.shutdown(Duration::from_secs(2)).await;

    assert_eq!(report.reason, Reason::Shutdown);
    let left = |path: &str, queued_or_in_flight| LeftOver { path: path.into(), queued_or_in_flight };
    assert_eq!(report.left, [left("/sub/b", 3), left("/a", 0)]);
    assert!(report.elapsed >= Duration::from_secs(2) && report.elapsed < ms(2_010), "{:?}", report.elapsed);
});

story!(a_stopped_child_s_mailbox_closes_at_once_while_others_still_drain, {
    let env = Env::default();
    let (inboxes, root, _ear) = three(&env, Strategy::OneForOne).await;
    let [a, _, c] = inboxes;
    let slow = tokio::task::spawn_local(async move { a.ask(Slow(1_000, false), LONG).await });
    tokio::time::sleep(ms(1)).await;

    let shutdown = tokio::task::spawn_local(root.shutdown(SOON));
    tokio::time::sleep(ms(10)).await;

    assert_eq!(c.ask(Ping, LONG).await, Err(AskError::Closed));
    assert!(!shutdown.is_finished());
    assert_eq!(slow.await.unwrap(), Ok(()));
    assert!(shutdown.await.unwrap().left.is_empty());
});

story!(a_shutdown_ends_a_start_that_hangs_and_drains_those_already_up, {
    let env = Env::default();
    let bus = plain_bus();
    let (_a, spec_a) = worker(&bus, &env, "/sub/a");
    let (_b, spec_b) = worker(&bus, &env, "/sub/b");
    let sub = SupervisorSpec::new("sub", Strategy::OneForOne, 3, SOON).child(spec_a);
    let root = Root::start(supervisor(Strategy::OneForOne, 3).supervisor(sub), bus.clone()).await;
    env.hang_starts.store(1, SeqCst);
    bus.start_child("sub", spec_b).unwrap();
    tokio::time::sleep(ms(5)).await;
    env.take_trace();

    let report = root.shutdown(SOON).await;

    assert_eq!((report.reason, report.left), (Reason::Shutdown, vec![]));
    assert!(report.elapsed < ms(5), "{:?}", report.elapsed);
    assert_eq!(env.take_trace(), ["-a"]);
});

story!(a_child_in_its_back_off_is_not_started_again_and_its_queue_is_reported, {
    let env = Env::default();
    let (w, root, mut ear) = one(&env, 3).await;
    w.ask(Act::Panic, SOON).await.unwrap_err();
    ear.wait("restart_scheduled", "/w").await;
    let queued = tokio::task::spawn_local(async move { w.ask(Ping, LONG).await });
    tokio::task::yield_now().await;

    let report = root.shutdown(SOON).await;

    assert_eq!(report.left, [LeftOver { path: "/w".into(), queued_or_in_flight: 1 }]);
    assert_eq!(queued.await.unwrap(), Err(AskError::Closed));
    assert!(ear.so_far().iter().all(|event| event.event != "child_restarted"));
});

story!(a_paused_child_is_resumed_by_the_shutdown_and_drains, {
    let env = Env::default();
    let (w, root, _ear) = one(&env, 3).await;
    root.bus().pause("/w", "test").unwrap();
    let queued = tokio::task::spawn_local(async move { w.ask(Ping, LONG).await });
    tokio::time::sleep(ms(50)).await;
    assert_eq!(root.bus().snapshot()[0].state, State::Paused);

    let report = root.shutdown(SOON).await;

    assert_eq!((report.reason, report.left), (Reason::Shutdown, vec![]));
    assert_eq!(queued.await.unwrap(), Ok((1, 1)));
});

story!(what_comes_while_a_child_drains_waits_for_its_next_life, {
    let env = Env::default();
    let (inboxes, root, _ear) = three(&env, Strategy::RestForOne).await;
    let c = inboxes[2].clone();
    let slow = tokio::task::spawn_local({
        let c = c.clone();
        async move { c.ask(Slow(200, false), SOON).await }
    });
    tokio::time::sleep(ms(1)).await;

    root.bus().panic("/a", "test").unwrap();
    tokio::time::sleep(ms(20)).await;
    assert_eq!(c.try_tell(Ping).map_err(|(error, _)| error), Err(AskError::Overloaded));
    let late = c.ask(Ping, SOON).await;

    assert_eq!((slow.await.unwrap(), late), (Ok(()), Ok((2, 1))));
});

story!(a_request_to_drain_does_not_leak_into_the_next_life, {
    let env = Env::default();
    let bus = plain_bus();
    let mut ear = Ear::on(&bus);
    let (_a, spec_a) = worker(&bus, &env, "/a");
    let (b, spec_b) = worker(&bus, &env, "/b");
    let spec = supervisor(Strategy::OneForAll, 3).child(spec_a).child(spec_b.shutdown(Shutdown::Timeout(ms(100))));
    let root = Root::start(spec, bus).await;
    b.try_tell(Act::Hang).map_err(|(error, _)| error).unwrap();
    tokio::task::yield_now().await;

    root.bus().panic("/a", "test").unwrap();

    assert_eq!(ear.wait("child_exited", "/b").await.reason, Some("shutdown_timeout"));
    ear.wait("child_restarted", "/b").await;
    tokio::time::sleep(ms(500)).await;
    assert_eq!(b.ask(Ping, SOON).await, Ok((2, 1)));
});

story!(a_closed_inbox_refuses_and_still_drains, {
    let env = Env::default();
    let (w, root, _ear) = one(&env, 3).await;
    let slow = tokio::task::spawn_local({
        let w = w.clone();
        async move { w.ask(Slow(200, false), SOON).await }
    });
    tokio::time::sleep(ms(1)).await;

    w.close();
    assert_eq!(w.ask(Ping, SOON).await, Err(AskError::Closed));
    let report = root.shutdown(SOON).await;

    assert_eq!((slow.await.unwrap(), report.left), (Ok(()), vec![]));
});

story!(a_brutal_child_is_killed_without_a_word, {
    let env = Env::default();
    let bus = plain_bus();
    let (w, spec) = worker(&bus, &env, "/w");
    let spec = supervisor(Strategy::OneForOne, 3).child(spec.shutdown(Shutdown::Brutal));
    let root = Root::start(spec, bus).await;
    let slow = tokio::task::spawn_local(async move { w.ask(Slow(200, false), SOON).await });
    tokio::time::sleep(ms(1)).await;

    let report = root.shutdown(SOON).await;

    assert_eq!(report.left, [LeftOver { path: "/w".into(), queued_or_in_flight: 1 }]);
    assert_eq!(slow.await.unwrap(), Err(AskError::Closed));
    assert_eq!(env.take_trace(), ["+w"], "no stopped()");
});

/// Drains by itself: says goodbye for a while, then stops.
struct Polite;

impl Actor for Polite {
    type Context = Context<Self>;
}

impl Polite {
    fn say_goodbye(&mut self, ctx: &mut Context<Self>) {
        ctx.run_later(ms(700), |_, ctx| ctx.stop());
    }
}

supervision::supervised!(Polite, Polite::say_goodbye);

impl Handler<Job<Ping>> for Polite {
    type Result = MessageResult<Job<Ping>>;

    fn handle(&mut self, job: Job<Ping>, ctx: &mut Self::Context) -> Self::Result {
        let (Ping, _slot) = job.open(ctx);
        MessageResult((0, 0))
    }
}

story!(an_actor_may_drain_by_itself, {
    let bus = plain_bus();
    let (polite, spec) = actor(&bus, "/polite", 8, |_| Polite);
    let root = Root::start(supervisor(Strategy::OneForOne, 3).child(spec), bus).await;

    let shutdown = tokio::task::spawn_local(root.shutdown(SOON));
    tokio::time::sleep(ms(100)).await;
    assert_eq!(polite.ask(Ping, SOON).await, Ok((0, 0)), "still at work");

    let report = shutdown.await.unwrap();
    assert!(report.left.is_empty() && report.elapsed >= ms(700) && report.elapsed < ms(710), "{report:?}");
});

story!(children_that_are_alike_stop_all_at_once, {
    let env = Env::default();
    let bus = plain_bus();
    let (a, spec_a) = worker(&bus, &env, "/a");
    let (b, spec_b) = worker(&bus, &env, "/b");
    let (c, spec_c) = worker(&bus, &env, "/c");
    let spec = supervisor(Strategy::OneForOne, 3).stops_at_once().child(spec_a).child(spec_b);
    let root = Root::start(spec.child(spec_c.shutdown(Shutdown::Timeout(ms(400)))), bus).await;
    let slow = [(&a, 1_000), (&b, 900), (&c, 60_000)].map(|(inbox, millis)| inbox.ask(Slow(millis, false), LONG));
    let began = Instant::now();

    let (report, answers) = tokio::join!(
        async {
            tokio::task::yield_now().await;
            root.shutdown(SOON).await
        },
        futures::future::join_all(slow)
    );

    assert_eq!(answers, [Ok(()), Ok(()), Err(AskError::Closed)], "each within its own limit");
    assert_eq!(report.left, [LeftOver { path: "/c".into(), queued_or_in_flight: 1 }]);
    assert!(began.elapsed() >= ms(1_000) && began.elapsed() < ms(1_010), "{:?}", began.elapsed());
});
