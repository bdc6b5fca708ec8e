//! The relay as operators meet it: no broker yet, no outbox, retry and park by hand.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::check;
use crate::ground::Ground;
use crate::http::tea;
use crate::process::{Posthaste, run};

#[test]
fn without_a_broker_events_wait_with_one_warning_and_leave_once_there_is_one() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[("POSTHASTE__BROKER__KIND", "none")]);
    let user = service.http.user();
    let ids: Vec<String> = (1..=20)
        .map(|n| service.http.post("/orders", &user, &[], &tea(n)).json()["id"].as_str().expect("id").to_owned())
        .collect();
    assert_eq!(service.rows(&["PENDING"]).len(), 20);
    assert_eq!(service.logged("broker_absent").len(), 1);
    assert_eq!(service.http.get("/readyz", None).status, 200);
    assert!(service.stop().success());

    let service = Posthaste::start(&ground, &[]);
    service.drain();

    check::laws(&ground, &ids.into_iter().map(|id| (id, 1)).collect());
}

#[test]
fn without_an_outbox_events_are_published_directly() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[("POSTHASTE__OUTBOX__ENABLED", "false")]);

    let order = service.http.post("/orders", &service.http.user(), &[], &tea(1)).json();

    let events =
        until("the event is there", Duration::from_secs(5), || Some(ground.events()).filter(|e| !e.is_empty()));
    assert_eq!(events[0]["key"], order["id"]);
    assert!(service.rows(&["PENDING", "IN_FLIGHT", "SENT"]).is_empty());
}

#[test]
fn an_operator_parks_explains_and_retries_and_the_orders_line_waits() {
    let ground = Ground::new();
    let waiting = [("POSTHASTE__BROKER__KIND", "none")];
    let service = Posthaste::start(&ground, &waiting);
    let (user, admin) = (service.http.user(), service.http.admin());
    let id = service.http.post("/orders", &user, &[], &tea(1)).json()["id"].as_str().expect("id").to_owned();
    service.http.patch(&format!("/orders/{id}/cancel"), &user, &[], &json!({}));
    let other = service.http.post("/orders", &user, &[], &tea(2)).json()["id"].as_str().expect("id").to_owned();
    let rows = service.rows(&["PENDING"]);
    let head =
        rows.iter().find(|row| row["key"] == json!(id)).expect("its first row")["id"].as_i64().expect("a number");

    let parked = service.http.post(&format!("/admin/outbox/{head}/park"), &admin, &[], &json!({"reason": "looking"}));
    assert!((200..300).contains(&parked.status), "{}", parked.text);
    assert!(service.stop().success());
    let service = Posthaste::start(&ground, &[]);
    until("the other order's event left", Duration::from_secs(10), || (ground.events().len() == 1).then_some(()));

    assert_eq!(ground.events()[0]["key"], json!(other));
    let why = service.http.get(&format!("/admin/outbox/why?key={id}"), Some(&admin)).json();
    assert_eq!(why["verdict"], "PARKED", "{why}");
    let (code, stdout, _) = run(&ground, &["outbox", "why", "--key", &id, "--json"]);
    assert_eq!((code, stdout.contains("PARKED")), (0, true), "{stdout}");
    let (code, _, stderr) = run(&ground, &["outbox", "retry", &head.to_string(), "--reason", "seen enough"]);
    assert_eq!(code, 0, "{stderr}");
    service.drain();
    check::laws(&ground, &[(id, 2), (other, 1)].into());
    let sent = service.http.post(&format!("/admin/outbox/{head}/retry"), &admin, &[], &json!({}));
    assert_eq!(sent.status, 409, "what has left is not touched");
}

#[test]
fn values_are_framed_for_a_schema_registry_and_read_framed_or_plain() {
    let ground = Ground::new();
    let user = |service: &Posthaste| service.http.user();
    let place = |service: &Posthaste| {
        assert_eq!(service.http.post("/orders", &user(service), &[], &tea(1)).status, 201);
        service.drain();
    };
    let plain = Posthaste::start(&ground, &[]);
    place(&plain);
    assert!(plain.stop().success());

    let framing = Posthaste::start(&ground, &[("POSTHASTE__EVENTS__SCHEMA_IDS", "1:17,2:18")]);
    place(&framing);

    let topic = ground.topic("order.events");
    let (code, stdout, stderr) = run(&ground, &["topic", "tail", &topic, "--from-beginning", "--json"]);
    assert_eq!(code, 0, "{stderr}");
    let events: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect("a record a line")).collect();
    let ids: Vec<&Value> = events.iter().map(|event| &event["schemaId"]).collect();
    assert!(ids.len() == 2 && ids.contains(&&Value::Null) && ids.contains(&&json!(18)), "{ids:?}");
    assert!(events.iter().all(|event| event["value"]["schemaVersion"] == 2), "people read JSON either way");
    let letters = framing.http.get("/admin/dlt", Some(&framing.http.admin())).json();
    assert_eq!(letters["letters"], json!([]), "both were understood");
    let (code, stdout, stderr) = run(&ground, &["schema", "show", "--registry"]);
    assert_eq!(code, 0, "{stderr}");
    let body: Value = serde_json::from_str(&stdout).expect("a body");
    assert_eq!(body["schemaType"], "JSON");
    let schema: Value = serde_json::from_str(body["schema"].as_str().expect("text")).expect("a schema");
    assert_eq!(schema["oneOf"][1]["properties"]["schemaVersion"]["const"], 2);
    let (code, _, stderr) = run(&ground, &["schema", "show", "--version", "3"]);
    assert!(code == 1 && stderr.contains("there are 1 to 2"), "{stderr}");
}
