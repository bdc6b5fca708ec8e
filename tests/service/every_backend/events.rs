//! Events of other services, handed over by HTTP: published once and in the order of each key, under repeated requests, kill -9 and a dead
//! intake.
#[path = "events/topic_dead_letters.rs"]
mod topic_dead_letters;
#[path = "events/topic_rules.rs"]
mod topic_rules;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::actors::kill_and_await_restart;
use crate::harness::backend::Backend;
use crate::harness::http::{Http, Response};
use crate::harness::metrics::{await_metric, metric};
use crate::harness::process::{Posthaste, run};

/// Longest wait for a service that restarts and for its relay: a lease expires, and a partition is acquired.
const WAIT_MAX: Duration = Duration::from_secs(60);
const KEYS: [&str; 4] = ["customer 7", "Ärger/ä", "0190163d-8694-739b-aea5-966c26f8ad90", "k"];
const KILLS: u32 = 3;

fn publish(http: &Http, key: Option<&str>, events: &Value) -> Option<Response> {
    let headers: Vec<(&str, &str)> = key.iter().map(|key| ("Idempotency-Key", *key)).collect();
    http.send_once("POST", "/events", Some(&http.token("shop", "PUBLISHER")), &headers, Some(events.to_string())).ok()
}

/// As [`publish`], where the service runs: repeated while the store is too slow.
fn publish_answered(http: &Http, key: Option<&str>, events: &Value) -> Response {
    let headers: Vec<(&str, &str)> = key.iter().map(|key| ("Idempotency-Key", *key)).collect();
    http.post("/events", &http.token("shop", "PUBLISHER"), &headers, events)
}

fn event(topic: &str, key: &str, value: u32) -> Value {
    json!({"topic": topic, "key": key, "type": "CustomerMoved", "payload": {"value": value}, "headers": {"tenant": "blue"}})
}

fn records(backend: &Backend, topic: &str) -> Vec<Value> {
    let (code, stdout, stderr) = run(backend, &["topic", "tail", topic, "--from-beginning", "--no-follow", "--json"]);
    assert_eq!(code, 0, "{stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).expect("a record a line")).collect()
}

/// For each key its values and its numbers, in the order of the topic.
fn by_key(records: &[Value]) -> BTreeMap<String, (Vec<u64>, Vec<u64>)> {
    let mut found: BTreeMap<String, (Vec<u64>, Vec<u64>)> = BTreeMap::new();
    for record in records {
        let (values, numbers) = found.entry(record["key"].as_str().expect("text").to_owned()).or_default();
        values.push(record["value"]["value"].as_u64().expect("a number"));
        numbers.push(record["headers"]["x-sequence"].as_str().expect("text").parse().expect("a number"));
    }
    found
}

/// Published and sent: nothing waits.
fn drain(service: &Posthaste) {
    until("nothing waits", WAIT_MAX, || service.rows(&["PENDING", "IN_FLIGHT", "FAILED"]).is_empty().then_some(()));
}

#[test]
fn a_batch_of_events_is_published_in_order_and_its_repetition_changes_nothing() {
    let backend = Backend::new();
    let topic = backend.topic("customers");
    let service = Posthaste::start(&backend, &[("POSTHASTE__BROKER__TOPICS", &topic)]);
    let batch: Value = (0..40).map(|value| event(&topic, KEYS[value as usize % KEYS.len()], value)).collect();

    let first = publish_answered(&service.http, Some("k-1"), &batch);
    let again = publish_answered(&service.http, Some("k-1"), &batch);
    let other = publish_answered(&service.http, Some("k-1"), &json!([event(&topic, "k", 99)]));

    assert_eq!((first.status, again.status, other.status), (201, 201, 422), "{}", first.text);
    let ids = |response: &Response| -> Vec<Value> {
        response.json()["events"].as_array().expect("a list").iter().map(|event| event["eventId"].clone()).collect()
    };
    assert_eq!(ids(&first), ids(&again));
    assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), (None, Some("true")));
    let known = json!([{"topic": topic, "key": "k", "type": "CustomerMoved", "payload": 1, "eventId": ids(&first)[3]}]);
    let known = publish_answered(&service.http, None, &known).json();
    assert_eq!(known, json!({"events": [{"eventId": ids(&first)[3], "duplicate": true}]}));
    drain(&service);
    let records = records(&backend, &topic);
    assert_eq!(records.len(), 40);
    for (at, key) in KEYS.iter().enumerate() {
        let (values, numbers) = by_key(&records)[*key].clone();
        assert!(values.iter().copied().eq((0..10).map(|n| n * 4 + at as u64)), "{key}: {values:?}");
        assert!(numbers.iter().copied().eq(1..=10), "{key}: {numbers:?}");
    }
    assert_eq!(records[0]["headers"]["tenant"], "blue");
    assert_eq!(metric(&service.http, "events_accepted_total{result=\"new\"}"), 40.0);
    assert_eq!(metric(&service.http, "events_accepted_total{result=\"duplicate\"}"), 41.0);
    let why = service.http.get(&format!("/admin/outbox/why?key={}", "k"), Some(&service.http.admin()));
    assert_eq!(why.json()["row"]["status"], "SENT", "{}", why.text);
}

#[test]
fn topics_and_headers_of_the_service_are_refused() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let own = ["order.events", "order.events-retry-0", "webhooks-retry-0", "webhooks-dlt", "relay-watermarks"];

    for name in own {
        let refused = publish_answered(&service.http, None, &event(&backend.topic(name), "k", 1));
        assert!(refused.status == 400 && refused.text.contains("writes itself"), "{name}: {}", refused.text);
    }
    let mut forged = event(&backend.topic("customers"), "k", 1);
    forged["headers"] = json!({"x-webhook": "0190163d-8694-739b-aea5-966c26f8ad90"});
    let refused = publish_answered(&service.http, None, &forged);
    assert!(refused.status == 400 && refused.text.contains("x-webhook"), "{}", refused.text);
}

/// Publishes a value with an idempotency key of its own, and returns whether the service acknowledged it. Without a response it may be repeated.
fn publish_value(http: &Http, topic: &str, key: &str, value: u32) -> bool {
    let request = format!("{key}-{value}").escape_default().to_string();
    publish(http, Some(&request), &event(topic, key, value)).is_some_and(|response| {
        // 408: this machine delayed the client for longer than `http.header_timeout`.
        assert!(matches!(response.status, 201 | 408 | 500 | 503), "{}", response.text);
        response.status == 201
    })
}

#[test]
fn events_survive_kill_9_and_repeated_requests_publish_them_once() {
    let backend = Backend::new();
    let topic = backend.topic("customers");
    let settings = [("POSTHASTE__BROKER__TOPICS", topic.as_str())];
    let mut service = Posthaste::start(&backend, &settings);
    for kill in 0..KILLS {
        // The last request of each key may have been committed: it is repeated after the restart.
        let values = kill * 10..(kill + 1) * 10;
        std::thread::scope(|scope| {
            for key in KEYS {
                let (http, topic, values) = (service.http.clone(), &topic, values.clone());
                scope.spawn(move || values.for_each(|value| while !publish_value(&http, topic, key, value) {}));
            }
        });
        let (http, killed_topic) = (service.http.clone(), topic.clone());
        let unanswered = std::thread::spawn(move || publish_value(&http, &killed_topic, "k", (kill + 1) * 10));
        service.kill();
        let _ = unanswered.join();
        service = Posthaste::start(&backend, &settings);
        until("the event is acknowledged", WAIT_MAX, || {
            publish_value(&service.http, &topic, "k", (kill + 1) * 10).then_some(())
        });
    }

    drain(&service);

    for (key, (values, numbers)) in by_key(&records(&backend, &topic)) {
        let expected: BTreeSet<u64> = (0..u64::from(KILLS) * 10 + u64::from(key == "k")).collect();
        assert_eq!(values.len(), expected.len(), "{key}: each event once: {values:?}");
        assert_eq!(values.iter().copied().collect::<BTreeSet<u64>>(), expected, "{key}");
        assert!(values.is_sorted(), "{key}: {values:?}");
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{key}: {numbers:?}");
    }
}

#[test]
fn a_failed_intake_is_restarted_and_accepts_events() {
    let backend = Backend::new();
    let topic = backend.topic("customers");
    let settings = [("POSTHASTE__BROKER__TOPICS", topic.as_str()), ("POSTHASTE__FAULT_INJECTION__ENABLED", "true")];
    let service = Posthaste::start(&backend, &settings);

    kill_and_await_restart(&service, "/event-intake", "panic");

    let response = publish_answered(&service.http, None, &event(&topic, "k", 0));
    assert_eq!(response.status, 201, "{}", response.text);
    await_metric(&service.http, "outbox_entries_delivered_total", WAIT_MAX, |sent| sent == 1.0);
}
