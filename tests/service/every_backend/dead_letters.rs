//! Dead letters for operators: listed, explained and redriven once, over HTTP and with commands while the service runs.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::metrics::await_metric;
use crate::harness::process::{Posthaste, run};

const KEY: &str = "0197a1f0-0000-7000-8000-00000000000a";

fn command_output(backend: &Backend, arguments: &[&str]) -> Vec<Value> {
    let (code, stdout, stderr) = run(backend, arguments);
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

fn await_dead_letters(backend: &Backend, count: usize) -> Vec<Value> {
    until(&format!("there are {count} dead letters"), Duration::from_secs(20), || {
        Some(command_output(backend, &["dlt", "list", "--json"])).filter(|listed| listed.len() == count)
    })
}

fn position(record: &Value) -> String {
    format!("{}/{}", record["partition"], record["offset"])
}

#[test]
fn a_dead_letter_is_explained_and_redriven_once() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let admin = service.http.admin();
    service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
    service.drain();
    assert_eq!(command_output(&backend, &["dlt", "list", "--json"]), Vec::<Value>::new());

    backend.append_record("order.events", KEY, "{\"schemaVersion\":99}");
    let dead_letter = await_dead_letters(&backend, 1).remove(0);
    let first_position = position(&dead_letter);

    assert_eq!((&dead_letter["key"], &dead_letter["failureType"]), (&json!(KEY), &json!("VALIDATION")));
    assert_eq!(dead_letter["topic"], json!(backend.topic("order.events-dlt")));
    assert_eq!(dead_letter["original"]["topic"], json!(backend.topic("order.events")));
    assert!(dead_letter["reason"].as_str().is_some_and(|reason| reason.contains("99")), "{dead_letter}");
    let listed = service.http.get("/admin/dlt", Some(&admin)).json();
    assert_eq!(
        (&listed["letters"], &listed["next"]),
        (&json!([dead_letter]), &Value::Null),
        "the command and HTTP print the same"
    );
    assert_eq!(service.http.get(&format!("/admin/dlt/{first_position}"), Some(&admin)).json(), dead_letter);
    assert_eq!(command_output(&backend, &["dlt", "show", &first_position, "--json"])[0], dead_letter);

    let before = backend.events().len();
    let (code, _, stderr) = run(&backend, &["dlt", "redrive"]);
    assert!(code == 1 && stderr.contains("1 dead letter matches in ") && stderr.contains("--yes"), "{stderr}");
    let dry = command_output(&backend, &["dlt", "redrive", "--dry-run", "--json"]);
    assert_eq!(dry, [json!({"dryRun": true, "matched": 1, "redriven": 0, "letters": [dead_letter]})]);
    let (_, stdout, _) = run(&backend, &["dlt", "redrive", "--dry-run"]);
    assert!(stdout.starts_with("POSITION  ") && stdout.contains(&first_position), "the first ones: {stdout}");
    assert_eq!(backend.events().len(), before, "a dry run changes nothing");
    let sent = command_output(
        &backend,
        &["dlt", "redrive", "--failure", "VALIDATION", "--reason", "fixed", "--rate", "10", "-y", "--json"],
    );
    assert_eq!(sent, [json!({"dryRun": false, "matched": 1, "redriven": 1})]);

    // The record is still invalid, so the consumer writes a second dead letter.
    let both = await_dead_letters(&backend, 2);
    let (_, stdout, stderr) = run(&backend, &["dlt", "list", "--limit", "1", "--json"]);
    let more = format!("more: --after {}", position(&both[0]));
    assert!(stdout.lines().count() == 1 && stderr.contains(&more), "a list that ends early says so: {stdout}{stderr}");
    let (first, second): (Vec<_>, Vec<_>) = both.into_iter().partition(|record| position(record) == first_position);
    assert_eq!((&first[0]["redriven"]["reason"], &first[0]["redriven"]["arrived"]), (&json!("fixed"), &json!(true)));
    assert_eq!(second[0]["redriven"], Value::Null);
    assert!(second[0]["headers"]["x-redriven-by"].is_string(), "{}", second[0]);
    let again =
        service.http.post(&format!("/admin/dlt/{first_position}/redrive"), &admin, &[], &json!({"dryRun": false}));
    assert_eq!(again.status, 409, "it was replayed before");

    let body = json!({"key": KEY, "dryRun": false, "reason": "once more"});
    let sent = service.http.post("/admin/dlt/redrive", &admin, &[], &body).json();
    assert_eq!((&sent["matched"], &sent["redriven"]), (&json!(1), &json!(1)), "{sent}");
    await_dead_letters(&backend, 3);
    let log = until("the replay is logged", Duration::from_secs(20), || service.logged("dead_letters_redriven").pop());
    assert_eq!((&log["by"], &log["reason"], &log["redriven"]), (&json!("root"), &json!("once more"), &json!(1)));
    // The consumer counts a dead letter after it has sent it.
    await_metric(&service.http, "kafka_consumer_dlq_count_total", Duration::from_secs(20), |count| count == 3.0);
    assert_eq!(backend.events().len(), before + 2, "each dead letter was replayed once");
}
