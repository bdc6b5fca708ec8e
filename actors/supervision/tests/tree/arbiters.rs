//! Children on other threads, in real time: each thread has its own clock.

use std::sync::mpsc;

use supervision::{Bus, Options, Reason, Root, Strategy};

use crate::world::{self, Act, Ear, Env, Ping, SOON, Slow, ms, supervisor, worker};

/// A bus that finds a stalled thread soon.
fn quick_bus() -> Bus {
    struct Deaf;
    impl supervision::Observer for Deaf {}
    let options = Options { look_every: ms(5), arbiter_stalled_after: ms(20), kill_wait: ms(50), ..Options::default() };
    Bus::new(options, std::sync::Arc::new(Deaf))
}

#[test]
fn a_child_on_another_thread_is_supervised_like_any_other() {
    world::hear_the_log();
    actix_rt::System::new().block_on(async {
        let env = Env::default();
        let bus = quick_bus();
        let mut ear = Ear::on(&bus);
        let arbiter = actix_rt::Arbiter::new();
        let (w, spec) = worker(&bus, &env, "/w");
        let spec = supervisor(Strategy::OneForOne, 3).child(spec.arbiter(Some(arbiter.handle())));
        let root = Root::start(spec, bus).await;

        assert_eq!(w.ask(Ping, SOON).await, Ok((1, 1)));
        w.ask(Act::Panic, SOON).await.unwrap_err();
        assert_eq!(w.ask(Ping, SOON).await, Ok((2, 1)));
        ear.wait("child_restarted", "/w").await;
        root.bus().panic("/w", "test").unwrap();
        ear.wait("child_restarted", "/w").await;
        w.try_tell(Slow(20, false)).map_err(|(error, _)| error).unwrap();
        assert_eq!(w.ask(Ping, SOON).await, Ok((3, 1)));

        let report = root.shutdown(SOON).await;
        assert_eq!((report.reason, report.left), (Reason::Shutdown, vec![]));
        arbiter.stop();
    });
}

#[test]
fn a_child_whose_thread_went_away_is_lost_and_ends_in_escalation() {
    world::hear_the_log();
    actix_rt::System::new().block_on(async {
        let env = Env::default();
        let bus = quick_bus();
        let mut ear = Ear::on(&bus);
        let arbiter = actix_rt::Arbiter::new();
        let (w, spec) = worker(&bus, &env, "/w");
        let spec = supervisor(Strategy::OneForOne, 1).child(spec.arbiter(Some(arbiter.handle())));
        let root = Root::start(spec, bus).await;
        assert_eq!(w.ask(Ping, SOON).await, Ok((1, 1)));

        arbiter.stop();

        let exited = ear.wait("child_exited", "/w").await;
        assert_eq!((exited.reason, exited.level), (Some("arbiter_lost"), tracing::Level::ERROR));
        assert_eq!(root.done().await.word(), "escalated");
    });
}

#[test]
fn a_thread_that_does_not_answer_is_told_and_told_again_when_it_does() {
    world::hear_the_log();
    actix_rt::System::new().block_on(async {
        let bus = quick_bus();
        let mut ear = Ear::on(&bus);
        let arbiter = actix_rt::Arbiter::new();
        bus.watch_arbiter("data", arbiter.handle());
        let root = Root::start(supervisor(Strategy::OneForOne, 3), bus).await;
        let (release, blocked) = mpsc::channel::<()>();

        arbiter.spawn_fn(move || blocked.recv().unwrap());
        let stalled = ear.wait("arbiter_stalled", "").await;
        release.send(()).unwrap();
        let recovered = ear.wait("arbiter_recovered", "").await;

        assert_eq!((stalled.level, stalled.get_text("arbiter")), (tracing::Level::ERROR, Some("data")));
        assert!(stalled.get_number("stall_ms").unwrap() >= 20);
        assert!(recovered.get_number("stall_ms") >= stalled.get_number("stall_ms"));
        root.shutdown(SOON).await;
        arbiter.stop();
    });
}

#[test]
fn a_shutdown_does_not_wait_for_a_blocked_thread_and_reports_its_actors() {
    world::hear_the_log();
    actix_rt::System::new().block_on(async {
        let env = Env::default();
        let bus = quick_bus();
        let arbiter = actix_rt::Arbiter::new();
        let (w, spec) = worker(&bus, &env, "/w");
        let spec = supervisor(Strategy::OneForOne, 1).child(spec.arbiter(Some(arbiter.handle())));
        let root = Root::start(spec, bus).await;
        let (release, blocked) = mpsc::channel::<()>();
        let (entered, inside) = tokio::sync::oneshot::channel();
        arbiter.spawn_fn(move || {
            entered.send(()).unwrap();
            blocked.recv().unwrap();
        });
        inside.await.unwrap();
        w.try_tell(Ping).map_err(|(error, _)| error).unwrap();

        let report = root.shutdown(ms(100)).await;

        assert!(report.elapsed < SOON, "{:?}", report.elapsed);
        assert_eq!((report.left.len(), report.left[0].path.as_str()), (1, "/w"));
        assert_eq!(report.left[0].queued_or_in_flight, 1);
        release.send(()).unwrap();
        arbiter.stop();
    });
}
