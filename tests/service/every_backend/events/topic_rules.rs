//! Topics of other services with rules of their own (`[topics.NAME]`): what the relay does with events that it cannot publish, the number of
//! partitions, and consumers that send the events to a URL.
use std::time::{Duration, Instant};

use kit::wait::{until, until_ok};
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::endpoint::{Endpoint, EndpointResponse};
use crate::harness::external_events::{self, topic_variable};
use crate::harness::metrics::metric;
use crate::harness::process::{Posthaste, run};

/// A new consumer group, a restart, and all retries.
const WAIT_MAX: Duration = Duration::from_secs(60);
const ACCEPTED: EndpointResponse = EndpointResponse::Status(202);
const REFUSED: EndpointResponse = EndpointResponse::Status(400);
const UNAVAILABLE: EndpointResponse = EndpointResponse::Status(503);

fn start(backend: &Backend, settings: &[(String, &str)]) -> Posthaste {
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    Posthaste::start(backend, &settings)
}

fn publish(service: &Posthaste, topic: &str, key: &str, kind: &str, value: u32) {
    let event = json!({"topic": topic, "key": key, "type": kind, "payload": {"value": value}});
    external_events::publish(&service.http, &event);
}

fn lines(backend: &Backend, arguments: &[&str]) -> Vec<Value> {
    let (code, stdout, stderr) = run(backend, arguments);
    assert_eq!(code, 0, "{stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

/// Type and value of each record of a topic.
fn records(backend: &Backend, topic: &str) -> Vec<(String, u64)> {
    let records = lines(backend, &["topic", "tail", topic, "--from-beginning", "--no-follow", "--json"]);
    let one = |record: &Value| {
        let kind = record["headers"]["ce_type"].as_str().expect("a type").to_owned();
        (kind, record["value"]["value"].as_u64().expect("a number"))
    };
    records.iter().map(one).collect()
}

/// Waits until a topic has these records: a read ends before a transaction that was committed a moment ago.
#[track_caller]
fn await_records(backend: &Backend, topic: &str, wanted: &[(String, u64)]) {
    until_ok(Instant::now(), WAIT_MAX, || {
        let found = records(backend, topic);
        if found == wanted { Ok(()) } else { Err(format!("{wanted:?} in {topic}, which has {found:?}")) }
    });
}

/// The number of partitions of a topic.
fn partitions(backend: &Backend, topic: &str) -> Option<u64> {
    let listed = lines(backend, &["topic", "list", "--json"]);
    listed.into_iter().find(|of| of["topic"] == topic)?["partitions"].as_u64()
}

#[test]
fn topic_rules_apply_to_an_event_that_cannot_be_published() {
    let backend = Backend::new();
    let [skipping, blocking, diverting] = ["skipping", "blocking", "diverting"].map(|name| backend.topic(name));
    let writer = start(&backend, &[("POSTHASTE__OUTBOX__PUBLISHER__ENABLED".to_owned(), "false")]);
    for topic in [&skipping, &blocking, &diverting] {
        // A key of its own: a blocked key waits in all topics.
        publish(&writer, topic, topic, "Broken", 1);
        publish(&writer, topic, topic, "Whole", 2);
    }
    assert!(writer.stop().success());
    backend.break_content_types("Broken");

    let relay = start(
        &backend,
        &[
            (topic_variable(&skipping, "POISON"), "skip-row"),
            (topic_variable(&blocking, "PARTITIONS"), "2"),
            (topic_variable(&diverting, "FALLBACK"), "dead-letter"),
            (topic_variable(&diverting, "PARTITIONS"), "3"),
        ],
    );

    // The relay creates them when it first reaches the broker.
    let topics = [&skipping, &blocking, &diverting];
    until("the topics are there", WAIT_MAX, || {
        topics.iter().all(|topic| partitions(&backend, topic).is_some()).then_some(())
    });
    let whole = ("Whole".to_owned(), 2);
    for topic in [&skipping, &diverting] {
        await_records(&backend, topic, std::slice::from_ref(&whole));
    }
    let dead_letters = outbox::topics::dead_letter_topic(&diverting);
    let broken = ("Broken".to_owned(), 1);
    await_records(&backend, &dead_letters, std::slice::from_ref(&broken));
    until("both events are parked", WAIT_MAX, || (relay.rows(&["PARKED"]).len() == 2).then_some(()));
    // The last settlement follows its records.
    let waiting = until("one event waits", WAIT_MAX, || {
        Some(relay.rows(&["PENDING", "IN_FLIGHT", "FAILED"])).filter(|waiting| waiting.len() == 1)
    });
    assert_eq!(waiting.iter().map(|row| &row["type"]).collect::<Vec<_>>(), ["Whole"], "it waits in the blocking topic");
    assert_eq!(records(&backend, &blocking), []);
    assert_eq!(
        [&blocking, &diverting, &dead_letters].map(|topic| partitions(&backend, topic)),
        [Some(2), Some(3), Some(3)]
    );

    // An operator publishes the one that the relay has diverted.
    let redrive = format!("/admin/dlt/redrive?topic={diverting}");
    let sent = relay.http.post(&redrive, &relay.http.admin(), &[], &json!({"dryRun": false, "reason": "once"})).json();
    assert_eq!((&sent["matched"], &sent["redriven"]), (&json!(1), &json!(1)), "{sent}");
    await_records(&backend, &diverting, &[whole, broken]);
}

#[test]
fn consumers_of_a_topic_send_each_keys_events_in_order() {
    let backend = Backend::new();
    let topic = backend.topic("customers");
    let endpoint = Endpoint::start(ACCEPTED);
    let url = endpoint.url();
    let settings = [
        (topic_variable(&topic, "CONSUMERS"), "2"),
        (topic_variable(&topic, "CONSUMER_URL"), url.as_str()),
        (topic_variable(&topic, "PARTITIONS"), "4"),
    ];
    let service = start(&backend, &settings);
    let keys: Vec<String> = (0..5).map(|key| format!("customer {key}")).collect();

    for value in 0..4 {
        keys.iter().for_each(|key| publish(&service, &topic, key, "CustomerMoved", value));
    }

    for key in &keys {
        until("the events arrive", WAIT_MAX, || (endpoint.accepted_for(key).len() >= 4).then_some(()));
        assert_eq!(endpoint.accepted_for(key), [1, 2, 3, 4], "{key}");
        let received = endpoint.received_for(key);
        assert_eq!((received[3].kind(), &received[3].body), ("CustomerMoved", &json!({"value": 3})));
    }
    assert_eq!(partitions(&backend, &outbox::topics::retry_topic(&topic, 0)), Some(4));
    let actors = service.http.get("/admin/actors", Some(&service.http.admin())).text;
    assert!(actors.contains(&format!("consumer-{topic}-1")), "{actors}");
    service.drain();
    assert!(service.stop().success());
}

#[test]
fn event_that_the_endpoint_of_a_topic_refuses_is_a_dead_letter_after_its_attempts() {
    let backend = Backend::new();
    let topic = backend.topic("customers");
    let endpoint = Endpoint::start_with(|headers| match headers["ce-type"].as_str() {
        "Late" => UNAVAILABLE,
        "Never" => REFUSED,
        _ => ACCEPTED,
    });
    let url = endpoint.url();
    let settings = [
        (topic_variable(&topic, "CONSUMERS"), "1"),
        (topic_variable(&topic, "CONSUMER_URL"), url.as_str()),
        (topic_variable(&topic, "CONSUMER_ATTEMPTS_MAX"), "2"),
        ("POSTHASTE__CONSUMER__RETRY_DELAYS".to_owned(), "100ms,100ms,100ms,100ms"),
    ];
    let service = start(&backend, &settings);

    for (value, kind) in (1..).zip(["Moved", "Late", "Moved", "Never", "Moved"]) {
        publish(&service, &topic, "k", kind, value);
    }

    until("the last event arrives", WAIT_MAX, || (endpoint.accepted_for("k").len() >= 3).then_some(()));
    let sequences: Vec<u64> = endpoint.received_for("k").iter().map(|event| event.sequence()).collect();
    assert_eq!(sequences, [1, 2, 2, 3, 4, 5], "two attempts for 503, one for 400, and the key's order");
    let dead_letters = outbox::topics::dead_letter_topic(&topic);
    until("both are dead letters", WAIT_MAX, || (records(&backend, &dead_letters).len() == 2).then_some(()));
    assert_eq!(records(&backend, &dead_letters), [("Late".to_owned(), 2), ("Never".to_owned(), 4)]);
    let counted = || metric(&service.http, "kafka_consumer_dlq_count_total") == 2.0;
    until("both are counted", WAIT_MAX, || counted().then_some(()));
    let logged = until("both are logged", WAIT_MAX, || {
        Some(service.logged("message_dead_lettered")).filter(|lines| lines.len() == 2)
    });
    assert!(logged.iter().all(|line| line["key"] == "k" && line["order_id"].is_null()), "keys of no order: {logged:?}");
}

#[test]
fn fallback_of_a_topic_receives_what_its_endpoint_does_not_accept() {
    let backend = Backend::new();
    let topic = backend.topic("customers");
    let (endpoint, fallback) = (Endpoint::start(REFUSED), Endpoint::start(ACCEPTED));
    let (url, fallback_url) = (endpoint.url(), fallback.url());
    let settings = [
        (topic_variable(&topic, "CONSUMERS"), "1"),
        (topic_variable(&topic, "CONSUMER_URL"), url.as_str()),
        (topic_variable(&topic, "CONSUMER_FALLBACK"), "post"),
        (topic_variable(&topic, "CONSUMER_FALLBACK_URL"), fallback_url.as_str()),
    ];
    let relay = Posthaste::start_command(
        &backend,
        "relay",
        &settings.iter().map(|(name, value)| (name.as_str(), *value)).collect::<Vec<_>>(),
    );

    publish(&relay, &topic, "k", "CustomerMoved", 1);
    publish(&relay, &topic, "k", "CustomerMoved", 2);

    until("the fallback has both events", WAIT_MAX, || (fallback.accepted_for("k").len() >= 2).then_some(()));
    assert_eq!(fallback.accepted_for("k"), [1, 2]);
    // The service counts and logs an event after the endpoint has accepted it.
    let counted = || metric(&relay.http, "kafka_consumer_fallback_count_total") == 2.0;
    until("both are counted", WAIT_MAX, || counted().then_some(()));
    until("both are logged", WAIT_MAX, || (relay.logged("message_handled_by_fallback").len() == 2).then_some(()));
}
