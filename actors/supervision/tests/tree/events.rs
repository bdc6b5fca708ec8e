//! The live stream, the log line and the observer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use supervision::{Bus, Event, Observer, Options, Root, Strategy};

use crate::world::{Act, Ear, Env, Ping, SOON, Slow, log_lines, ms, one, supervisor, worker};

story!(a_subscriber_that_comes_back_gets_what_it_missed_and_nothing_twice, {
    let env = Env::default();
    let (w, root, _ear) = one(&env, 9).await;
    let (before, live) = root.bus().subscribe_after(None);
    let seen = before.last().unwrap().seq;
    drop(live);

    w.ask(Act::Panic, SOON).await.unwrap_err();
    w.ask(Ping, SOON).await.unwrap();
    let (missed, mut live) = root.bus().subscribe_after(Some(seen));
    root.bus().publish_note("breaker_opened", vec![("target", "kafka".into())]);

    let words: Vec<_> = missed.iter().map(|event| event.event).collect();
    assert_eq!(words, ["child_exited", "restart_scheduled", "child_restarted"]);
    let note = live.recv().await.unwrap();
    assert_eq!((note.event, note.get_text("target")), ("breaker_opened", Some("kafka")));
    let seqs: Vec<u64> = before.iter().chain(&missed).map(|event| event.seq).chain([note.seq]).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
});

story!(the_ring_keeps_the_latest_and_a_number_from_another_process_gets_all_of_it, {
    let bus = Bus::default();
    for n in 0..1_500 {
        bus.publish_note("note", vec![("n", n.to_string())]);
    }

    let (all, _) = bus.subscribe_after(None);
    assert_eq!((all.len(), all[0].seq, all[999].seq), (1_000, 501, 1_500));
    assert_eq!(bus.subscribe_after(Some(1_499)).0.len(), 1);
    assert_eq!(bus.subscribe_after(Some(1_500)).0.len(), 0);
    assert_eq!(bus.subscribe_after(Some(7_000)).0.len(), 1_000);
});

#[derive(Default)]
struct Notebook {
    events: Mutex<Vec<String>>,
    handled: Mutex<Vec<(&'static str, Duration, Duration)>>,
}

impl Observer for Notebook {
    fn lifecycle(&self, event: &Event) {
        self.events.lock().unwrap().push(format!("{} {} {}", event.event, event.child, event.kind));
    }

    fn handled(&self, kind: &'static str, wait: Duration, work: Duration) {
        self.handled.lock().unwrap().push((kind, wait, work));
    }
}

story!(the_observer_hears_every_event_and_every_handled_message, {
    let env = Env::default();
    let notebook = Arc::new(Notebook::default());
    let bus = Bus::new(Options::default(), notebook.clone());
    let (w, spec) = worker(&bus, &env, "/w");
    let root = Root::start(supervisor(Strategy::OneForOne, 3).child(spec), bus).await;

    root.bus().pause("/w", "test").unwrap();
    w.try_tell(Slow(30, false)).map_err(|(error, _)| error).unwrap();
    tokio::time::sleep(ms(70)).await;
    root.bus().resume("/w", "test").unwrap();
    tokio::time::sleep(ms(100)).await;
    w.ask(Act::Panic, SOON).await.unwrap_err();
    root.shutdown(SOON).await;

    let handled = notebook.handled.lock().unwrap().clone();
    assert_eq!(handled.len(), 2, "a panic counts too: {handled:?}");
    assert_eq!(handled[0].0, "Worker");
    assert!(handled[0].1 >= ms(70) && handled[0].1 < ms(75) && handled[0].2 >= ms(30) && handled[0].2 < ms(35));
    let events = notebook.events.lock().unwrap().clone();
    assert_eq!(events[0], "child_started /w Worker");
    assert_eq!(events.last().unwrap(), "tree_stopped root ");
});

story!(each_event_is_one_flat_log_line_with_constant_text, {
    let env = Env::default();
    let (w, root, mut ear) = one(&env, 3).await;
    w.ask(Act::Panic, SOON).await.unwrap_err();
    root.bus().pause("/w", "me").unwrap();
    root.shutdown(SOON).await;

    let lines: Vec<_> = log_lines().into_iter().filter(|line| line["target"] == "supervision").collect();
    let heard: Vec<_> = ear.so_far().into_iter().map(|event| event.event).collect();
    let logged: Vec<_> = lines.iter().map(|line| line["event"].as_str()).collect();
    assert_eq!(logged, heard);
    let exited = lines.iter().find(|line| line["event"] == "child_exited").unwrap();
    for (field, value) in [
        ("message", "child exited"),
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
        ("detail", "boom in handler of w"),
        ("handling", "Act"),
        ("max_restarts", "3"),
        ("window_ms", "5000"),
    ] {
        assert_eq!(exited[field], value, "{field}");
    }
    assert!(!exited.contains_key("delay_ms"), "what an event does not carry is absent");
    let fault = lines.iter().find(|line| line["event"] == "fault_injected").unwrap();
    assert_eq!((fault["fault"].as_str(), fault["by"].as_str(), fault["level"].as_str()), ("pause", "me", "WARN"));
});

story!(what_an_injected_fault_causes_stands_behind_it, {
    let env = Env::default();
    let (_w, root, mut ear) = one(&env, 3).await;
    root.bus().panic("/w", "test").unwrap();
    ear_until_restart(&mut ear).await;
});

async fn ear_until_restart(ear: &mut Ear) {
    let mut words = Vec::new();
    while words.last() != Some(&"child_restarted") {
        words.push(ear.next().await.event);
    }
    assert_eq!(words, ["child_started", "fault_injected", "child_exited", "restart_scheduled", "child_restarted"]);
}
