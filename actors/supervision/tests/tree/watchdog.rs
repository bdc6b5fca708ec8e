//! The watchdog: saturation, unhandled messages and progress.

use std::time::Duration;

use supervision::{AskError, RootSupervisor, Strategy, actor};
use tokio::time::Instant;

use crate::fixture::{
    Behavior, EventReader, FIVE_SECONDS, ONE_HOUR, Ping, Slow, Worker, WorkerEnv, bus_without_jitter, ms, supervisor,
    tree_of_one, worker,
};

virtual_time_test!(full_mailbox_is_reported_once_and_its_recovery_once, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (w, spec) = actor(&bus, "/w", 10, Worker::factory("w", &env));
    let _root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).child(spec), bus).await;

    for (count, millis) in [(2, 3_000), (3, 2_000), (4, 1_000)] {
        for _ in 0..count {
            w.try_send(Slow(millis, false)).map_err(|(error, _)| error).unwrap();
        }
    }
    let began = Instant::now();
    let full = events.wait_for("mailbox_saturated", "/w").await;
    let recovered = events.wait_for("mailbox_recovered", "/w").await;

    assert_eq!((full.number("outstanding"), full.number("capacity")), (Some(9), Some(10)));
    assert_eq!(recovered.number("outstanding"), Some(5));
    assert!(began.elapsed() >= ms(1_000) && began.elapsed() < ms(1_300), "{:?}", began.elapsed());
    tokio::time::sleep(FIVE_SECONDS).await;
    assert!(events.received().iter().all(|event| !event.event.starts_with("mailbox_")));
});

virtual_time_test!(burst_between_two_inspections_is_reported, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (w, spec) = actor(&bus, "/w", 4, Worker::factory("w", &env));
    let _root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).child(spec), bus).await;

    for _ in 0..4 {
        w.try_send(Slow(10, false)).map_err(|(error, _)| error).unwrap();
    }

    events.wait_for("mailbox_saturated", "/w").await;
    events.wait_for("mailbox_recovered", "/w").await;
});

virtual_time_test!(unhandled_messages_are_reported_by_reason_at_most_once_per_second, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (w, spec) = actor(&bus, "/w", 1, Worker::factory("w", &env));
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).child(spec), bus).await;
    w.try_send(Slow(2_500, false)).map_err(|(error, _)| error).unwrap();

    for _ in 0..30 {
        assert!(w.try_send(Ping).is_err());
        tokio::time::sleep(ms(50)).await;
    }
    tokio::time::sleep(ms(1_100)).await;

    let unhandled: Vec<_> = events.received().into_iter().filter(|event| event.event == "message_unhandled").collect();
    assert!(unhandled.iter().all(|event| event.reason == Some("overloaded") && event.text("message") == Some("Ping")));
    let counts: Vec<_> = unhandled.iter().map(|event| event.number("count").unwrap()).collect();
    assert_eq!(counts.iter().sum::<u64>(), 30);
    assert!(counts.len() == 2 || counts.len() == 3, "{counts:?}");
    root.shutdown(FIVE_SECONDS).await;
});

virtual_time_test!(expired_message_and_message_to_a_closed_mailbox_are_unhandled, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_of_one(&env, 3).await;
    root.bus().pause("/w", "test").unwrap();
    assert_eq!(w.ask(Ping, ms(50)).await, Err(AskError::Timeout));
    root.bus().resume("/w", "test").unwrap();

    let expired = events.wait_for("message_unhandled", "/w").await;
    assert_eq!((expired.reason, expired.text("message")), (Some("expired"), Some("Ping")));
    w.close();
    assert_eq!(w.try_send(Ping).map_err(|(error, _)| error), Err(AskError::Closed));
    assert_eq!(events.wait_for("message_unhandled", "/w").await.reason, Some("closed"));
});

virtual_time_test!(unhandled_messages_of_each_reason_have_a_type_of_their_own, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (w, spec) = actor(&bus, "/w", 1, Worker::factory("w", &env));
    let _root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).child(spec), bus).await;
    w.try_send(Slow(2_500, false)).map_err(|(error, _)| error).unwrap();

    assert_eq!(w.try_send(Ping).map_err(|(error, _)| error), Err(AskError::Overloaded));
    w.close();
    assert_eq!(w.try_send(Slow(1, false)).map_err(|(error, _)| error), Err(AskError::Closed));

    for expected in [(Some("closed"), Some("Slow")), (Some("overloaded"), Some("Ping"))] {
        let event = events.wait_for("message_unhandled", "/w").await;
        assert_eq!((event.reason, event.text("message")), expected);
    }
});

virtual_time_test!(child_without_progress_is_killed_and_keeps_its_queue, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    let spec = supervisor(Strategy::OneForOne, 3).child(spec.stuck_after(ms(1_000)));
    let _root = RootSupervisor::start(spec, bus).await;
    tokio::time::sleep(FIVE_SECONDS).await;
    w.ask(Behavior::Hang, FIVE_SECONDS).await.unwrap();
    let began = Instant::now();

    assert_eq!(w.ask(Ping, ONE_HOUR).await, Ok((2, 1)));

    assert!(began.elapsed() >= ms(1_000) && began.elapsed() < ms(1_300), "{:?}", began.elapsed());
    let stuck = events.wait_for("child_stuck", "/w").await;
    assert_eq!(stuck.number("outstanding"), Some(1));
    assert!(stuck.number("idle_ms").unwrap() > 1_000);
    let exited = events.wait_for("child_exited", "/w").await;
    assert_eq!((exited.reason, exited.text("detail")), (Some("killed"), Some("watchdog: no progress")));
});

virtual_time_test!(time_in_which_the_process_is_suspended_does_not_count_as_stuck, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    let spec = supervisor(Strategy::OneForOne, 3).child(spec.stuck_after(ms(3_000)));
    let _root = RootSupervisor::start(spec, bus).await;
    w.ask(Behavior::Hang, FIVE_SECONDS).await.unwrap();
    w.try_send(Ping).map_err(|(error, _)| error).unwrap();
    tokio::time::sleep(ms(1_000)).await;

    // The clock jumps: no timer fires in between, as after SIGCONT.
    tokio::time::advance(ONE_HOUR).await;
    let resumed = Instant::now();

    let stuck = events.wait_for("child_stuck", "/w").await;
    assert!(resumed.elapsed() >= ms(3_000) && resumed.elapsed() < ms(3_500), "{:?}", resumed.elapsed());
    assert!(stuck.number("idle_ms").unwrap() < 3_500, "{:?}", stuck.number("idle_ms"));
});

virtual_time_test!(slow_progress_idleness_and_pause_do_not_count_as_stuck, {
    let env = WorkerEnv::default();
    let bus = bus_without_jitter();
    let mut events = EventReader::subscribe(&bus);
    let (w, spec) = worker(&bus, &env, "/w");
    let spec = supervisor(Strategy::OneForOne, 3).child(spec.stuck_after(ms(1_000)));
    let root = RootSupervisor::start(spec, bus).await;

    for step in 1..=5 {
        w.try_send(Slow(step * 800, false)).map_err(|(error, _)| error).unwrap();
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    root.bus().pause("/w", "test").unwrap();
    w.try_send(Ping).map_err(|(error, _)| error).unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    root.bus().resume("/w", "test").unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;

    assert_eq!(w.ask(Ping, FIVE_SECONDS).await, Ok((1, 2)));
    assert!(events.received().iter().all(|event| event.event != "child_stuck"));
});
