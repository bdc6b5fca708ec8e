//! The relay without a broker, without an outbox, with rows that an operator parks and retries, and with framed values.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::event_log;
use crate::harness::http::tea_order;
use crate::harness::process::{Posthaste, run};

/// Longest wait for any condition here; no test judges the duration.
const WAIT_MAX: Duration = Duration::from_secs(30);

#[test]
fn without_a_broker_events_stay_pending_with_one_warning_and_are_sent_later() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__BROKER__KIND", "none")]);
    let user = service.http.user();
    let ids: Vec<String> = (1..=20)
        .map(|n| service.http.post("/orders", &user, &[], &tea_order(n)).json()["id"].as_str().expect("id").to_owned())
        .collect();
    assert_eq!(service.rows(&["PENDING"]).len(), 20);
    service.await_logged("broker_absent", 1);
    until("it is ready", WAIT_MAX, || service.is_ready().then_some(()));
    assert!(service.stop().success());

    let service = Posthaste::start(&backend, &[]);
    service.drain();

    event_log::assert_complete(&backend, &ids.into_iter().map(|id| (id, 1)).collect());
}

#[test]
fn with_its_publisher_disabled_an_instance_relays_nothing() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__OUTBOX__PUBLISHER__ENABLED", "false")]);
    let (user, admin) = (service.http.user(), service.http.admin());
    let place_order =
        |n| service.http.post("/orders", &user, &[], &tea_order(n)).json()["id"].as_str().expect("id").to_owned();
    let ids: Vec<String> = (1..=20).map(place_order).collect();
    assert_eq!(service.rows(&["PENDING"]).len(), 20);
    service.await_logged("publisher_disabled", 1);
    until("it is ready", WAIT_MAX, || service.is_ready().then_some(()));
    let partitions = service.http.get("/admin/partitions", Some(&admin)).json();
    let owners = partitions["partitions"].as_array().expect("partitions").iter().map(|one| &one["owner"]);
    assert!(owners.clone().all(Value::is_null), "{partitions}");
    assert!(service.stop().success());

    let service = Posthaste::start(&backend, &[("POSTHASTE__OUTBOX__POLL_INTERVAL", "100ms")]);
    service.drain();

    event_log::assert_complete(&backend, &ids.into_iter().map(|id| (id, 1)).collect());
}

#[test]
fn without_an_outbox_events_are_published_directly() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__OUTBOX__ENABLED", "false")]);

    let create = || service.http.post("/orders", &service.http.user(), &[], &tea_order(1)).json()["id"].clone();
    let mut ids = vec![create()];

    // Without an outbox a broker that is too slow costs the event, and the log says so: only then is another order placed.
    let events = until("an event is published", WAIT_MAX, || {
        if service.logged("direct_publish_failed").len() == ids.len() {
            ids.push(create());
        }
        Some(backend.events()).filter(|events| !events.is_empty())
    });
    assert!(ids.contains(&events[0]["key"]), "{ids:?} {events:?}");
    assert!(service.rows(&["PENDING", "IN_FLIGHT", "SENT"]).is_empty());
}

#[test]
fn a_parked_row_blocks_its_key_until_an_operator_retries_it() {
    let backend = Backend::new();
    let no_broker = [("POSTHASTE__BROKER__KIND", "none")];
    let service = Posthaste::start(&backend, &no_broker);
    let (user, admin) = (service.http.user(), service.http.admin());
    let id = service.http.post("/orders", &user, &[], &tea_order(1)).json()["id"].as_str().expect("id").to_owned();
    service.http.patch(&format!("/orders/{id}/cancel"), &user, &[], &json!({}));
    let other = service.http.post("/orders", &user, &[], &tea_order(2)).json()["id"].as_str().expect("id").to_owned();
    let rows = service.rows(&["PENDING"]);
    let head =
        rows.iter().find(|row| row["key"] == json!(id)).expect("its first row")["id"].as_i64().expect("a number");

    let parked = service.http.post(&format!("/admin/outbox/{head}/park"), &admin, &[], &json!({"reason": "looking"}));
    assert!((200..300).contains(&parked.status), "{}", parked.text);
    assert!(service.stop().success());
    let service = Posthaste::start(&backend, &[]);
    until("the other order's event is published", WAIT_MAX, || (backend.events().len() == 1).then_some(()));

    assert_eq!(backend.events()[0]["key"], json!(other));
    let diagnosis = service.http.get(&format!("/admin/outbox/why?key={id}"), Some(&admin)).json();
    assert_eq!(diagnosis["verdict"], "PARKED", "{diagnosis}");
    let (code, stdout, _) = run(&backend, &["outbox", "why", "--key", &id, "--json"]);
    assert_eq!((code, stdout.contains("PARKED")), (0, true), "{stdout}");
    let (code, _, stderr) = run(&backend, &["outbox", "retry", &head.to_string(), "--reason", "checked"]);
    assert_eq!(code, 0, "{stderr}");
    service.drain();
    event_log::assert_complete(&backend, &[(id, 2), (other, 1)].into());
    let sent = service.http.post(&format!("/admin/outbox/{head}/retry"), &admin, &[], &json!({}));
    assert_eq!(sent.status, 409, "a sent row cannot be retried");
}

#[test]
fn values_are_framed_for_a_schema_registry_and_read_with_or_without_framing() {
    let backend = Backend::new();
    let user = |service: &Posthaste| service.http.user();
    let place_order = |service: &Posthaste| {
        assert_eq!(service.http.post("/orders", &user(service), &[], &tea_order(1)).status, 201);
        service.drain();
    };
    let plain = Posthaste::start(&backend, &[]);
    place_order(&plain);
    assert!(plain.stop().success());

    let framing = Posthaste::start(&backend, &[("POSTHASTE__EVENTS__SCHEMA_IDS", "1:17,2:18")]);
    place_order(&framing);

    let topic = backend.topic("order.events");
    // A read ends before a transaction that was committed a moment ago.
    let events: Vec<Value> = until("both events are read", Duration::from_secs(60), || {
        let (code, stdout, stderr) = run(&backend, &["topic", "tail", &topic, "--from-beginning", "--json"]);
        assert_eq!(code, 0, "{stderr}");
        let events = stdout.lines().map(|line| serde_json::from_str(line).expect("a record a line"));
        Some(events.collect::<Vec<_>>()).filter(|events| events.len() >= 2)
    });
    let ids: Vec<&Value> = events.iter().map(|event| &event["schemaId"]).collect();
    assert!(ids.len() == 2 && ids.contains(&&Value::Null) && ids.contains(&&json!(18)), "{ids:?}");
    assert!(events.iter().all(|event| event["value"]["schemaVersion"] == 2), "the command prints JSON for both");
    let listed = framing.http.get("/admin/dlt", Some(&framing.http.admin())).json();
    assert_eq!(listed["letters"], json!([]), "the consumer accepts both");
    let (code, stdout, stderr) = run(&backend, &["schema", "show", "--registry"]);
    assert_eq!(code, 0, "{stderr}");
    let body: Value = serde_json::from_str(&stdout).expect("a body");
    assert_eq!(body["schemaType"], "JSON");
    let schema: Value = serde_json::from_str(body["schema"].as_str().expect("text")).expect("a schema");
    assert_eq!(schema["oneOf"][1]["properties"]["schemaVersion"]["const"], 2);
    let (code, _, stderr) = run(&backend, &["schema", "show", "--version", "3"]);
    assert!(code == 1 && stderr.contains("there are 1 to 2"), "{stderr}");
}
