//! The console of the service with a browser's requests: forms, a session cookie, pages and the event stream.
use std::time::Duration;

use kit::wait::until;
use serde_json::json;

use crate::harness::backend::Backend;
use crate::harness::console_browser::Browser;
use crate::harness::http::tea_order;
use crate::harness::process::Posthaste;

/// Longest wait for any condition here; no test judges the duration.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Reads the stream up to an event with this name and child, and returns its id.
fn id_of(lines: &mut impl Iterator<Item = String>, event: &str, child: &str) -> String {
    let (mut id, mut name) = (String::new(), String::new());
    let child = format!("\"child\":\"{child}\"");
    for line in lines {
        match line.split_once(": ") {
            Some(("id", value)) => id = value.to_owned(),
            Some(("event", value)) => name = value.to_owned(),
            Some(("data", value)) if name == event && value.contains(&child) => return id,
            _ => {}
        }
    }
    panic!("the stream ended before {event}");
}

#[test]
fn the_console_kills_an_actor_and_shows_its_restart_on_page_and_stream() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let browser = Browser::log_in(&service);
    let worker = "/relay/partition-worker-7";
    until("the worker runs", WAIT_MAX, || browser.actor(worker).contains("running").then_some(()));
    let mut live = browser.stream("0");

    let page = browser.submit("/console/actors/fault", &[("path", worker), ("action", "panic")]);

    assert!(page.contains(&format!("{worker}: panic was injected.")), "{page}");
    until("the second generation runs", WAIT_MAX, || {
        let row = browser.actor(worker);
        (row.contains("●</span> running") && row.contains("<span>generation 2</span>")).then_some(())
    });
    let exited = id_of(&mut live, "child_exited", worker);
    let restarted = id_of(&mut live, "child_restarted", worker);
    drop(live);
    let repeated = id_of(&mut browser.stream(&exited), "child_restarted", worker);
    assert_eq!(repeated, restarted, "a reader that reconnects misses no event");
    assert!(browser.get("/console/events?event=child_restarted").text.contains(worker));
    let log = until("the action is logged", WAIT_MAX, || {
        service.logged("operator_action").into_iter().find(|line| line["action"] == "panic")
    });
    assert_eq!((&log["by"], &log["on"]), (&json!("root"), &json!(worker)));
}

#[test]
fn a_row_parked_and_redriven_from_the_console_is_sent() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let browser = Browser::log_in(&service);
    service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
    service.drain();
    // While the publisher is paused no row is sent, so a row can be parked.
    let publisher = "/relay/outbox-publisher";
    browser.submit("/console/actors/fault", &[("path", publisher), ("action", "pause")]);
    until("the publisher is paused", WAIT_MAX, || browser.actor(publisher).contains("paused").then_some(()));
    // A run that the publisher requested before its pause may still claim the next row.
    until("no run is left", WAIT_MAX, || {
        let tree = service.http.get("/admin/actors", Some(&service.http.admin())).json();
        let actors = tree["actors"].as_array().expect("actors");
        let workers = actors.iter().filter(|actor| actor["actor"] == "PartitionWorker");
        workers.map(|worker| worker["mailboxDepth"].as_u64()).all(|depth| depth == Some(0)).then_some(())
    });
    let order = service.http.post("/orders", &service.http.user(), &[], &tea_order(2)).json();
    let key = order["id"].as_str().expect("an id");
    let rows = browser.get(&format!("/console/outbox?key={key}")).text;
    let row = rows.split("href=\"/console/outbox/").nth(1).and_then(|rest| rest.split('"').next()).expect("a row");
    let row = format!("/console/outbox/{row}");

    let page = browser.submit(&format!("{row}/park"), &[("reason", "inspect first")]);
    assert!(page.contains("■</span> PARKED"), "{page}");
    browser.submit("/console/actors/fault", &[("path", publisher), ("action", "resume")]);
    until("the overview shows the parked row", WAIT_MAX, || {
        browser.get("/console").text.contains("PARKED: 1 now").then_some(())
    });
    let counted = browser.get(&format!("/console/outbox/redrive?key={key}")).text;
    assert!(counted.contains("<strong>1</strong> parked row matches"), "{counted}");
    assert!(browser.get(&row).text.contains("PARKED"), "counting changes nothing");
    let done = browser.submit("/console/outbox/redrive", &[("key", key), ("matched", "1"), ("reason", "inspected")]);
    assert!(done.contains("1 parked row is due now."), "{done}");

    until("it is sent", WAIT_MAX, || browser.get(&row).text.contains("●</span> SENT").then_some(()));
    assert!(backend.events().iter().any(|event| event["key"] == key), "the topic has its event");
    let actions = until("both actions are logged", WAIT_MAX, || {
        let actions = service.logged("operator_action");
        let reasons = ["inspect first", "inspected"];
        reasons.iter().all(|reason| actions.iter().any(|line| line["reason"] == *reason)).then_some(actions)
    });
    assert!(actions.iter().all(|line| line["by"] == "root"), "{actions:?}");
}
