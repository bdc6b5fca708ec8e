//! Children on other threads, in real time: each thread has its own clock.

use std::sync::mpsc;
use std::time::Duration;

use supervision::{ChildSpec, ExitReason, Mailbox, Options, RootSupervisor, Shutdown, Strategy, SupervisionBus};

use crate::fixture::{self, Behavior, EventReader, Ping, SilentObserver, Slow, Worker, WorkerEnv, ms, supervisor};

/// Longer than a busy machine pauses a thread.
const LONG: Duration = Duration::from_secs(120);

/// A bus that detects a stalled thread within milliseconds.
fn bus_with_short_limits() -> SupervisionBus {
    let options = Options {
        inspection_interval: ms(5),
        arbiter_stalled_after: ms(20),
        kill_timeout: ms(50),
        ..Options::default()
    };
    SupervisionBus::new(options, std::sync::Arc::new(SilentObserver))
}

/// A worker `/w` that may need long for its start and its end.
fn worker_with_long_limits(bus: &SupervisionBus, env: &WorkerEnv) -> (Mailbox<Worker>, ChildSpec) {
    let (mailbox, spec) = fixture::worker(bus, env, "/w");
    (mailbox, spec.start_timeout(LONG).shutdown(Shutdown::Timeout(LONG)))
}

#[test]
fn child_on_another_thread_is_supervised_like_any_other() {
    fixture::capture_log();
    actix_rt::System::new().block_on(async {
        let env = WorkerEnv::default();
        let bus = bus_with_short_limits();
        let mut events = EventReader::subscribe(&bus);
        let arbiter = actix_rt::Arbiter::new();
        let (w, spec) = worker_with_long_limits(&bus, &env);
        let spec = supervisor(Strategy::OneForOne, 3).child(spec.arbiter(Some(arbiter.handle())));
        let root = RootSupervisor::start(spec, bus).await;

        assert_eq!(w.ask(Ping, LONG).await, Ok((1, 1)));
        w.ask(Behavior::Panic, LONG).await.unwrap_err();
        assert_eq!(w.ask(Ping, LONG).await, Ok((2, 1)));
        events.wait_for("child_restarted", "/w").await;
        root.bus().panic("/w", "test").unwrap();
        events.wait_for("child_restarted", "/w").await;
        w.try_send(Slow(20, false)).map_err(|(error, _)| error).unwrap();
        assert_eq!(w.ask(Ping, LONG).await, Ok((3, 1)));

        let report = root.shutdown(LONG).await;
        assert_eq!((report.reason, report.unfinished), (ExitReason::Shutdown, vec![]));
        arbiter.stop();
    });
}

#[test]
fn child_of_an_ended_thread_is_lost_and_escalates() {
    fixture::capture_log();
    actix_rt::System::new().block_on(async {
        let env = WorkerEnv::default();
        let bus = bus_with_short_limits();
        let mut events = EventReader::subscribe(&bus);
        let arbiter = actix_rt::Arbiter::new();
        let (w, spec) = worker_with_long_limits(&bus, &env);
        let spec = supervisor(Strategy::OneForOne, 1).child(spec.arbiter(Some(arbiter.handle())));
        let root = RootSupervisor::start(spec, bus).await;
        assert_eq!(w.ask(Ping, LONG).await, Ok((1, 1)));

        arbiter.stop();

        let exited = events.wait_for("child_exited", "/w").await;
        assert_eq!((exited.reason, exited.level), (Some("arbiter_lost"), tracing::Level::ERROR));
        assert_eq!(root.done().await.as_str(), "escalated");
    });
}

#[test]
fn blocked_thread_is_reported_as_stalled_and_later_as_recovered() {
    fixture::capture_log();
    actix_rt::System::new().block_on(async {
        let bus = bus_with_short_limits();
        let mut events = EventReader::subscribe(&bus);
        let arbiter = actix_rt::Arbiter::new();
        bus.watch_arbiter("data", arbiter.handle());
        let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3), bus).await;
        let (release, blocked) = mpsc::channel::<()>();

        arbiter.spawn_fn(move || blocked.recv().unwrap());
        let stalled = events.wait_for("arbiter_stalled", "").await;
        release.send(()).unwrap();
        let recovered = events.wait_for("arbiter_recovered", "").await;

        assert_eq!((stalled.level, stalled.text("arbiter")), (tracing::Level::ERROR, Some("data")));
        assert!(stalled.number("stall_ms").unwrap() >= 20);
        assert!(recovered.number("stall_ms") >= stalled.number("stall_ms"));
        root.shutdown(LONG).await;
        arbiter.stop();
    });
}

#[test]
fn shutdown_does_not_wait_for_a_blocked_thread_and_reports_its_actors() {
    fixture::capture_log();
    actix_rt::System::new().block_on(async {
        let env = WorkerEnv::default();
        let bus = bus_with_short_limits();
        let arbiter = actix_rt::Arbiter::new();
        let (w, spec) = worker_with_long_limits(&bus, &env);
        let spec = supervisor(Strategy::OneForOne, 1).child(spec.arbiter(Some(arbiter.handle())));
        let root = RootSupervisor::start(spec, bus).await;
        let (release, blocked) = mpsc::channel::<()>();
        let (entered, inside) = tokio::sync::oneshot::channel();
        arbiter.spawn_fn(move || {
            entered.send(()).unwrap();
            blocked.recv().unwrap();
        });
        inside.await.unwrap();
        w.try_send(Ping).map_err(|(error, _)| error).unwrap();

        let report = root.shutdown(ms(100)).await;

        assert!(report.elapsed < LONG, "{:?}", report.elapsed);
        assert_eq!((report.unfinished.len(), report.unfinished[0].path.as_str()), (1, "/w"));
        assert_eq!(report.unfinished[0].queued_or_in_flight, 1);
        release.send(()).unwrap();
        arbiter.stop();
    });
}
