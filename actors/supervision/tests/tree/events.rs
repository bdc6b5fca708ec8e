//! The event stream, the log line and the observer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use supervision::{Observer, Options, RootSupervisor, Strategy, SupervisionBus, SupervisionEvent};

use crate::fixture::{
    Behavior, EventReader, FIVE_SECONDS, Ping, Slow, WorkerEnv, ms, supervisor, take_log_lines, tree_of_one, worker,
};

virtual_time_test!(reconnected_subscriber_gets_missed_events_once, {
    let env = WorkerEnv::default();
    let (w, root, _events) = tree_of_one(&env, 9).await;
    let (before, live) = root.bus().subscribe_after(None);
    let seen = before.last().unwrap().seq;
    drop(live);

    w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
    w.ask(Ping, FIVE_SECONDS).await.unwrap();
    let (missed, mut live) = root.bus().subscribe_after(Some(seen));
    root.bus().publish_external("breaker_opened", vec![("target", "kafka".into())]);

    let names: Vec<_> = missed.iter().map(|event| event.event).collect();
    assert_eq!(names, ["child_exited", "restart_scheduled", "child_restarted"]);
    let external = live.recv().await.unwrap();
    assert_eq!((external.event, external.text("target")), ("breaker_opened", Some("kafka")));
    let seqs: Vec<u64> = before.iter().chain(&missed).map(|event| event.seq).chain([external.seq]).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
});

virtual_time_test!(ring_keeps_latest_events_and_returns_all_for_an_unknown_sequence_number, {
    let bus = SupervisionBus::default();
    for n in 0..1_500 {
        bus.publish_external("external", vec![("n", n.to_string())]);
    }

    let (all, _) = bus.subscribe_after(None);
    assert_eq!((all.len(), all[0].seq, all[999].seq), (1_000, 501, 1_500));
    assert_eq!(bus.subscribe_after(Some(1_499)).0.len(), 1);
    assert_eq!(bus.subscribe_after(Some(1_500)).0.len(), 0);
    assert_eq!(bus.subscribe_after(Some(7_000)).0.len(), 1_000);
});

virtual_time_test!(subscriber_of_an_earlier_process_gets_every_event_of_the_next_one, {
    struct Ignored;
    impl Observer for Ignored {}
    let process = |first_event_seq| {
        let bus = SupervisionBus::new(Options { first_event_seq, ..Options::default() }, Arc::new(Ignored));
        (0..10).for_each(|_| bus.publish_external("external", vec![]));
        bus
    };
    let last_seen = process(1_000).subscribe_after(None).0[4].seq;

    let (events, _) = process(2_000).subscribe_after(Some(last_seen));

    let seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (2_000..2_010).collect::<Vec<_>>());
});

#[derive(Default)]
struct RecordingObserver {
    events: Mutex<Vec<String>>,
    handled: Mutex<Vec<(&'static str, Duration, Duration)>>,
}

impl Observer for RecordingObserver {
    fn lifecycle(&self, event: &SupervisionEvent) {
        self.events.lock().unwrap().push(format!("{} {} {}", event.event, event.child, event.kind));
    }

    fn handled(&self, kind: &'static str, wait: Duration, work: Duration) {
        self.handled.lock().unwrap().push((kind, wait, work));
    }
}

virtual_time_test!(observer_receives_every_event_and_every_handled_message, {
    let env = WorkerEnv::default();
    let observer = Arc::new(RecordingObserver::default());
    let bus = SupervisionBus::new(Options::default(), observer.clone());
    let (w, spec) = worker(&bus, &env, "/w");
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, 3).child(spec), bus).await;

    root.bus().pause("/w", "test").unwrap();
    w.try_send(Slow(30, false)).map_err(|(error, _)| error).unwrap();
    tokio::time::sleep(ms(70)).await;
    root.bus().resume("/w", "test").unwrap();
    tokio::time::sleep(ms(100)).await;
    w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
    root.shutdown(FIVE_SECONDS).await;

    let handled = observer.handled.lock().unwrap().clone();
    assert_eq!(handled.len(), 2, "a panic counts too: {handled:?}");
    assert_eq!(handled[0].0, "Worker");
    assert!(handled[0].1 >= ms(70) && handled[0].1 < ms(75) && handled[0].2 >= ms(30) && handled[0].2 < ms(35));
    let events = observer.events.lock().unwrap().clone();
    assert_eq!(events[0], "child_started /w Worker");
    assert_eq!(events.last().unwrap(), "tree_stopped root ");
});

virtual_time_test!(each_event_is_one_flat_log_line_with_a_sentence, {
    let env = WorkerEnv::default();
    let (w, root, mut events) = tree_of_one(&env, 3).await;
    w.ask(Behavior::Panic, FIVE_SECONDS).await.unwrap_err();
    root.bus().pause("/w", "me").unwrap();
    root.shutdown(FIVE_SECONDS).await;

    let lines: Vec<_> = take_log_lines().into_iter().filter(|line| line["target"] == "supervision").collect();
    let published: Vec<_> = events.received().into_iter().map(|event| event.event).collect();
    let logged: Vec<_> = lines.iter().map(|line| line["event"].as_str()).collect();
    assert_eq!(logged, published);
    let exited = lines.iter().find(|line| line["event"] == "child_exited").unwrap();
    for (field, value) in [
        ("level", "ERROR"),
        ("child", "/w"),
        ("child_type", "worker"),
        ("actor", "Worker"),
        ("supervisor", "root"),
        ("generation", "1"),
        ("restart", "permanent"),
        ("shutdown", "5000"),
        ("strategy", "one_for_one"),
        ("reason", "panic"),
        ("detail", "failure in handler of w"),
        ("handling", "Behavior"),
        ("max_restarts", "3"),
        ("window_ms", "5000"),
    ] {
        assert_eq!(exited[field], value, "{field}");
    }
    let sentence = "Worker /w panicked while it handled Behavior: failure in handler of w (";
    assert!(exited["message"].starts_with(sentence), "{}", exited["message"]);
    assert!(!exited.contains_key("delay_ms"), "a field that the event does not have is absent");
    let fault = lines.iter().find(|line| line["event"] == "fault_injected").unwrap();
    assert_eq!((fault["fault"].as_str(), fault["by"].as_str(), fault["level"].as_str()), ("pause", "me", "WARN"));
});

virtual_time_test!(fault_injected_event_precedes_its_effects, {
    let env = WorkerEnv::default();
    let (_w, root, mut events) = tree_of_one(&env, 3).await;
    root.bus().panic("/w", "test").unwrap();
    assert_event_order(&mut events).await;
});

async fn assert_event_order(events: &mut EventReader) {
    let mut names = Vec::new();
    while names.last() != Some(&"child_restarted") {
        names.push(events.next().await.event);
    }
    assert_eq!(names, ["child_started", "fault_injected", "child_exited", "restart_scheduled", "child_restarted"]);
}
