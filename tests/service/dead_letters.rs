//! Dead letters as operators meet them: seen, explained, sent back once, over HTTP and beside the running service.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::http::tea;
use crate::process::{Posthaste, run};

const KEY: &str = "0197a1f0-0000-7000-8000-00000000000a";

fn told(ground: &Ground, arguments: &[&str]) -> Vec<Value> {
    let (code, stdout, stderr) = run(ground, arguments);
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

fn letters(ground: &Ground, count: usize) -> Vec<Value> {
    until(&format!("{count} letters were set aside"), Duration::from_secs(20), || {
        Some(told(ground, &["dlt", "list", "--json"])).filter(|letters| letters.len() == count)
    })
}

fn place(letter: &Value) -> String {
    format!("{}/{}", letter["partition"], letter["offset"])
}

#[test]
fn a_dead_letter_is_explained_and_goes_back_once() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[]);
    let admin = service.http.admin();
    service.http.post("/orders", &service.http.user(), &[], &tea(1));
    service.drain();
    assert_eq!(told(&ground, &["dlt", "list", "--json"]), Vec::<Value>::new());

    ground.put("order.events", KEY, "{\"schemaVersion\":99}");
    let letter = letters(&ground, 1).remove(0);
    let dead = place(&letter);

    assert_eq!((&letter["key"], &letter["failureType"]), (&json!(KEY), &json!("VALIDATION")));
    assert_eq!(letter["topic"], json!(ground.topic("order.events-dlt")));
    assert_eq!(letter["original"]["topic"], json!(ground.topic("order.events")));
    assert!(letter["reason"].as_str().is_some_and(|reason| reason.contains("99")), "{letter}");
    let listed = service.http.get("/admin/dlt", Some(&admin)).json();
    assert_eq!((&listed["letters"], &listed["next"]), (&json!([letter]), &Value::Null), "one serializer, two faces");
    assert_eq!(service.http.get(&format!("/admin/dlt/{dead}"), Some(&admin)).json(), letter);
    assert_eq!(told(&ground, &["dlt", "show", &dead, "--json"]), [letter]);

    let before = ground.events().len();
    let (code, _, stderr) = run(&ground, &["dlt", "redrive"]);
    assert!(code == 1 && stderr.contains("1 dead letters match") && stderr.contains("--yes"), "{stderr}");
    let dry = told(&ground, &["dlt", "redrive", "--dry-run", "--json"]);
    assert_eq!(dry, [json!({"dryRun": true, "matched": 1, "redriven": 0})]);
    assert_eq!(ground.events().len(), before, "nothing was changed");
    let sent = told(&ground, &["dlt", "redrive", "--failure", "VALIDATION", "--reason", "mended", "--yes", "--json"]);
    assert_eq!(sent, [json!({"dryRun": false, "matched": 1, "redriven": 1})]);

    // Nothing was mended: it is set aside once more, as another letter.
    let both = letters(&ground, 2);
    let (first, second): (Vec<_>, Vec<_>) = both.into_iter().partition(|letter| place(letter) == dead);
    assert_eq!((&first[0]["redriven"]["reason"], &first[0]["redriven"]["arrived"]), (&json!("mended"), &json!(true)));
    assert_eq!(second[0]["redriven"], Value::Null);
    assert!(second[0]["headers"]["x-redriven-by"].is_string(), "{}", second[0]);
    let again = service.http.post(&format!("/admin/dlt/{dead}/redrive"), &admin, &[], &json!({"dryRun": false}));
    assert_eq!(again.status, 409, "it went back before");

    let body = json!({"key": KEY, "dryRun": false, "reason": "once more"});
    let sent = service.http.post("/admin/dlt/redrive", &admin, &[], &body).json();
    assert_eq!((&sent["matched"], &sent["redriven"]), (&json!(1), &json!(1)), "{sent}");
    letters(&ground, 3);
    let log = until("the log tells it", Duration::from_secs(5), || service.logged("dead_letters_redriven").pop());
    assert_eq!((&log["by"], &log["reason"], &log["redriven"]), (&json!("root"), &json!("once more"), &json!(1)));
    let metrics = service.http.get("/metrics", None).text;
    assert!(metrics.lines().any(|line| line == "kafka_consumer_dlq_count_total 3"), "counted");
    assert_eq!(ground.events().len(), before + 2, "each letter went back once");
}
