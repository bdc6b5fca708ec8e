//! Commands that read and change a running service: topics, outbox rows, the doctor.
use std::time::Duration;

use kit::wait::until;
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::process::{Posthaste, command, finish, run};

#[test]
fn topics_are_read_while_the_service_runs_and_an_unknown_name_lists_the_known() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
    service.drain();

    let named = format!("\"{}\"", backend.topic("order.events"));
    // The command lists the offsets before a transaction that was committed a moment ago.
    until("the event's offset is listed", Duration::from_secs(60), || {
        let (code, stdout, _) = run(&backend, &["topic", "list", "--json"]);
        assert_eq!(code, 0);
        let events = stdout.lines().find(|line| line.contains(&named)).expect("it is listed");
        let events: Value = serde_json::from_str(events).expect("an object");
        events["offsets"].as_u64().filter(|offsets| *offsets >= 1)
    });
    let (code, stdout, stderr) = run(&backend, &["topic", "tail", "no.such", "--from-beginning"]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains(&backend.topic("order.events")), "{stderr}");
    let (code, stdout, _) = run(&backend, &["outbox", "list", "--status", "SENT", "--json"]);
    assert_eq!((code, stdout.lines().count()), (0, 1));
    let (code, stdout, _) = run(&backend, &["topic", "tail", &backend.topic("order.events-dlt"), "--from-beginning"]);
    assert_eq!((code, stdout.as_str()), (0, ""), "the dead-letter topic exists before the first dead letter");
    let (code, stdout, _) = run(&backend, &["outbox", "partitions", "--json"]);
    assert_eq!((code, stdout.lines().count()), (0, Backend::PARTITIONS));
}

#[test]
fn a_row_is_explained_parked_and_redriven_while_the_service_runs() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__BROKER__KIND", "none")]);
    let order = service.http.post("/orders", &service.http.user(), &[], &tea_order(1)).json();
    let key = order["id"].as_str().expect("an id");
    let diagnose = || -> Value {
        let (code, stdout, stderr) = run(&backend, &["outbox", "why", "--key", key, "--json"]);
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str(&stdout).expect("an object")
    };
    assert_eq!(diagnose()["verdict"], "PENDING");
    let path = format!("/admin/outbox/why?key={key}");
    assert_eq!(
        diagnose(),
        service.http.get(&path, Some(&service.http.admin())).json(),
        "the command and HTTP print the same"
    );
    let (_, stdout, _) =
        finish(command(&backend, &["outbox", "why", "--key", key]).env("POSTHASTE__BROKER__KIND", "none"));
    assert!(stdout.contains("no broker is configured"), "{stdout}");

    let (code, stdout, _) = run(&backend, &["outbox", "park", "1", "--dry-run", "--json"]);
    assert!(code == 0 && stdout.contains("\"PENDING\""), "{stdout}");
    let (code, stdout, _) = run(&backend, &["outbox", "park", "1", "--yes", "--json"]);
    assert!(code == 0 && stdout.contains("\"PARKED\""), "{stdout}");
    assert_eq!(diagnose()["verdict"], "PARKED");
    let (code, stdout, _) = run(&backend, &["outbox", "redrive", "--dry-run"]);
    assert!(code == 0 && stdout.starts_with("ID  STATUS") && stdout.contains(key), "the first rows: {stdout}");
    let (_, stdout, _) = run(&backend, &["outbox", "redrive", "--dry-run", "--json"]);
    let dry: Value = serde_json::from_str(&stdout).expect("an object");
    assert_eq!((&dry["matched"], &dry["redriven"], &dry["rows"][0]["key"]), (&1.into(), &0.into(), &key.into()));
    let (code, _, stderr) = run(&backend, &["outbox", "redrive"]);
    assert!(code == 1 && stderr.contains("--yes"), "without a terminal there is no prompt: {stderr}");
    assert_eq!(diagnose()["verdict"], "PARKED");
    let (code, stdout, _) = run(&backend, &["outbox", "redrive", "--yes", "--rate", "5", "--json"]);
    let redriven: Value = serde_json::from_str(&stdout).expect("an object");
    assert_eq!((code, redriven), (0, serde_json::json!({"dryRun": false, "matched": 1, "redriven": 1})));
    assert_eq!(diagnose()["verdict"], "WAITING_FOR_RETRY", "as /admin/outbox/why names it");
    let (code, stdout, _) = run(&backend, &["outbox", "list", "--after", "1", "--json"]);
    assert_eq!((code, stdout.as_str()), (0, ""));
}

#[test]
fn the_doctor_reports_configuration_origins_topics_and_store_latency() {
    let backend = Backend::new();
    let _service = Posthaste::start(&backend, &[]);
    // Partitions are acquired one by one after the service is ready.
    let stdout = kit::wait::until("the doctor finds no problem", Duration::from_secs(30), || {
        let (code, stdout, _) = run(&backend, &["doctor", "--json"]);
        (code == 0 && stdout.contains(&format!("{0} of {0} owned", Backend::PARTITIONS))).then_some(stdout)
    });
    for text in ["POSTHASTE__HTTP__LISTEN", "\"topics\"", "none missing"] {
        assert!(stdout.contains(text), "{text} is missing in: {stdout}");
    }
    let store = stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object a line"));
    let store = store.into_iter().find(|finding| finding["check"] == "store").expect("a finding");
    assert!(store["latencyMs"].as_f64() > Some(0.0), "{store}");

    let (code, stdout, _) = finish(command(&backend, &["doctor"]).env("POSTHASTE__OUTBOX__PARTITIONS", "7"));
    let expected = format!(
        "BAD  partitions: outbox.partitions is 7, and the store was created with {0}: set it to {0}",
        Backend::PARTITIONS
    );
    assert!(code == 1 && stdout.contains(&expected), "{stdout}");
}

#[test]
fn the_audit_table_names_operator_action_row_and_reason() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__BROKER__KIND", "none")]);
    let (code, stdout, stderr) = run(&backend, &["audit"]);
    assert_eq!((code, stdout.as_str()), (0, ""));
    assert!(stderr.contains("no operator has changed a row"), "{stderr}");
    service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
    let park = ["outbox", "park", "1", "--reason", "spam"];
    assert_eq!(finish(command(&backend, &park).env_remove("SUDO_USER").env("USER", "olga")).0, 0);
    let body = serde_json::json!({"reason": "no spam"});
    let retried = service.http.post("/admin/outbox/1/retry", &service.http.admin(), &[], &body);
    assert_eq!(retried.status, 200, "{}", retried.text);

    let (code, stdout, stderr) = run(&backend, &["audit", "-o", "json"]);

    assert_eq!(code, 0, "{stderr}");
    let entries: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    let facts = |entry: &Value| ["action", "row", "by", "reason"].map(|name| entry[name].clone());
    let facts = serde_json::to_value(entries.iter().map(facts).collect::<Vec<_>>()).expect("JSON");
    assert_eq!(facts, serde_json::json!([["retry", 1, "root", "no spam"], ["park", 1, "olga", "spam"]]));
    let served = service.http.get("/admin/audit?limit=1", Some(&service.http.admin())).json();
    assert_eq!((&served["entries"][0], &served["next"]), (&entries[0], &entries[0]["id"]));
    let (_, stdout, stderr) = run(&backend, &["audit", "--action", "PARK", "--by", "olga", "--row", "1", "-n", "1"]);
    assert!(stdout.starts_with("ID  AT ") && stdout.ends_with("olga  spam\n") && stderr.is_empty(), "{stdout}{stderr}");
}

#[test]
fn a_row_is_shown_with_its_record_and_explained_by_any_of_its_ids() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let order = service.http.post("/orders", &service.http.user(), &[], &tea_order(1)).json();
    service.drain();

    let (code, stdout, stderr) = run(&backend, &["outbox", "show", "1", "--json"]);

    assert_eq!(code, 0, "{stderr}");
    let shown: Value = serde_json::from_str(&stdout).expect("an object");
    assert_eq!(
        (&shown["key"], &shown["status"], &shown["why"]["verdict"]),
        (&order["id"], &"SENT".into(), &"SENT".into())
    );
    let record = &shown["record"];
    assert_eq!((&record["topic"], &record["sequence"]), (&backend.topic("order.events").into(), &1.into()));
    assert_eq!((&record["headers"]["x-sequence"], &record["headers"]["ce_id"]), (&"1".into(), &shown["eventId"]));
    assert_eq!((&record["value"]["orderId"], &record["value"]["eventId"]), (&order["id"], &shown["eventId"]));
    let (_, text, _) = run(&backend, &["outbox", "show", "1"]);
    for part in ["SENT: ", "last attempt", "x-sequence: 1", "\"schemaVersion\": 2", "→ posthaste topic tail "] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    for id in ["1".to_owned(), text(&order["id"]), text(&shown["eventId"])] {
        let (code, explained, stderr) = run(&backend, &["outbox", "why", &id, "--json"]);
        assert_eq!(code, 0, "{id}: {stderr}");
        let explained: Value = serde_json::from_str(&explained).expect("an object");
        assert_eq!(explained["row"]["id"], 1, "{id}");
    }
}
