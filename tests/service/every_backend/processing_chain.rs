//! The processing chain of consumed events: handler, retries, fallback, permanent failure; each with the order of its key, and its traces.
#[path = "processing_chain/traces.rs"]
mod traces;
#[path = "processing_chain/webhooks.rs"]
mod webhooks;

use std::time::Duration;

use kit::wait::{scaled, until};
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::endpoint::{Endpoint, EndpointResponse};
use crate::harness::http::tea_order;
use crate::harness::process::{Posthaste, call_setting, run};

/// Longer than all delays of the retry topics.
const WAIT_MAX: Duration = Duration::from_secs(60);
const ACCEPTED: EndpointResponse = EndpointResponse::Status(202);
const RETRY_DELAYS: &str = "POSTHASTE__CONSUMER__RETRY_DELAYS";

/// Delays for tests that do something between an event's first attempt and its last one, which is 26 s after the first with four attempts and
/// 41 s with five, and somewhat later on a slow machine, so that it does it in time.
fn long_delays() -> String {
    let last = scaled(Duration::from_secs(15)).min(Duration::from_secs(20)).as_secs();
    format!("1s,10s,{last}s,{last}s")
}

/// The settings that send the creations to `endpoint`, with three retries, and later changes as well; `more` comes in addition.
fn start(backend: &Backend, endpoint: &Endpoint, more: &[(&str, &str)]) -> Posthaste {
    let url = endpoint.url();
    let settings = [
        ("POSTHASTE__CONSUMER__HANDLER__ORDER_CREATED", "post"),
        ("POSTHASTE__CONSUMER__URL__ORDER_CREATED", url.as_str()),
        ("POSTHASTE__CONSUMER__ATTEMPTS_MAX__ORDER_CREATED", "4"),
        ("POSTHASTE__CONSUMER__HANDLER__ORDER_CANCELLED", "post"),
        ("POSTHASTE__CONSUMER__URL__ORDER_CANCELLED", url.as_str()),
    ];
    Posthaste::start(backend, &[&settings, more].concat())
}

fn place_order(service: &Posthaste) -> String {
    let created = service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
    created.json()["id"].as_str().expect("an id").to_owned()
}

fn cancel(service: &Posthaste, id: &str) {
    let cancelled = service.http.patch(&format!("/orders/{id}/cancel"), &service.http.user(), &[], &json!({}));
    assert_eq!(cancelled.status, 200, "{}", cancelled.text);
}

fn metric(service: &Posthaste, name: &str) -> u64 {
    let text = service.http.get("/metrics", None).text;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a whole number")
}

/// Waits for a counter: a consumer counts an event after its effects are stored, and so after its handler has received it.
#[track_caller]
fn await_count(service: &Posthaste, name: &str, count: u64) {
    until(name, WAIT_MAX, || (metric(service, name) == count).then_some(()));
}

fn retries(service: &Posthaste) -> u64 {
    metric(service, "kafka_consumer_retry_count_total")
}

fn dead_letters(backend: &Backend) -> Vec<Value> {
    let (code, stdout, stderr) = run(backend, &["dlt", "list", "--json"]);
    assert_eq!(code, 0, "{stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

/// The records of a topic around `order.events`.
fn records(backend: &Backend, suffix: &str) -> Vec<Value> {
    let topic = backend.topic(&format!("order.events{suffix}"));
    let (code, stdout, stderr) = run(backend, &["topic", "tail", &topic, "--from-beginning", "--json"]);
    assert_eq!(code, 0, "{stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).expect("a record a line")).collect()
}

#[test]
fn scenario_1_time_outs_use_up_the_retries_and_the_fallback_completes_the_event() {
    let backend = Backend::new();
    let (primary, fallback) = (Endpoint::start(EndpointResponse::Silence), Endpoint::start(ACCEPTED));
    let (url, timeout) = (fallback.url(), call_setting(Duration::from_secs(2)));
    let more = [
        ("POSTHASTE__CONSUMER__FALLBACK__ORDER_CREATED", "post"),
        ("POSTHASTE__CONSUMER__FALLBACK_URL__ORDER_CREATED", url.as_str()),
        // The fallback has as much time, once.
        ("POSTHASTE__CONSUMER__POST__TIMEOUT", timeout.as_str()),
    ];
    let service = start(&backend, &primary, &more);
    let id = place_order(&service);

    until("the fallback has the event", WAIT_MAX, || (!fallback.received().is_empty()).then_some(()));
    service.drain();

    let attempts = primary.received();
    assert_eq!(attempts.len(), 4, "the first attempt and three retries");
    let event_ids: Vec<&str> = attempts.iter().map(|event| event.headers["ce-id"].as_str()).collect();
    assert!(event_ids.iter().all(|event_id| *event_id == event_ids[0]), "{event_ids:?}");
    let received = fallback.received();
    assert_eq!((received.len(), received[0].key(), received[0].kind()), (1, id.as_str(), "ORDER_CREATED"));
    assert_eq!(received[0].headers["content-type"], "application/json");
    assert_eq!((&received[0].body["orderId"], &received[0].body["status"]), (&json!(id), &json!("PENDING")));
    await_count(&service, "kafka_consumer_processed_count_total", 1);
    assert_eq!(retries(&service), 3);
    assert_eq!(metric(&service, "kafka_consumer_fallback_count_total"), 1);
    service.await_logged("message_handled_by_fallback", 1);
    assert_eq!(dead_letters(&backend), Vec::<Value>::new());
    let stages: Vec<usize> = (0..4).map(|stage| records(&backend, &format!("-retry-{stage}")).len()).collect();
    assert_eq!(stages, [1, 1, 1, 0], "one record in each retry topic");
}

#[test]
fn scenario_2_a_refusal_goes_to_the_fallback_at_once() {
    let backend = Backend::new();
    let (primary, fallback) = (Endpoint::start(EndpointResponse::Status(422)), Endpoint::start(ACCEPTED));
    let url = fallback.url();
    let more = [
        ("POSTHASTE__CONSUMER__FALLBACK__ORDER_CREATED", "post"),
        ("POSTHASTE__CONSUMER__FALLBACK_URL__ORDER_CREATED", url.as_str()),
    ];
    let service = start(&backend, &primary, &more);
    let id = place_order(&service);

    until("the fallback has the event", WAIT_MAX, || (!fallback.received().is_empty()).then_some(()));
    service.drain();

    assert_eq!((primary.received().len(), fallback.accepted_for(&id)), (1, vec![1]));
    await_count(&service, "kafka_consumer_processed_count_total", 1);
    assert_eq!((retries(&service), metric(&service, "kafka_consumer_fallback_count_total")), (0, 1));
    assert_eq!(dead_letters(&backend), Vec::<Value>::new());
}

#[test]
fn scenario_3_without_a_fallback_the_event_becomes_a_dead_letter_to_replay() {
    let backend = Backend::new();
    let endpoint = Endpoint::start_with(|headers| match headers["ce-type"].as_str() {
        "ORDER_CREATED" => EndpointResponse::Status(503),
        _ => ACCEPTED,
    });
    let service = start(&backend, &endpoint, &[(RETRY_DELAYS, &long_delays())]);
    let id = place_order(&service);
    until("the first attempt has failed", WAIT_MAX, || (!endpoint.received().is_empty()).then_some(()));
    cancel(&service, &id);

    let dead_letter = until("there is a dead letter", WAIT_MAX, || dead_letters(&backend).pop());
    until("the key continues", WAIT_MAX, || (endpoint.accepted_for(&id) == [2]).then_some(()));
    service.drain();

    let sequences: Vec<u64> = endpoint.received_for(&id).iter().map(|event| event.sequence()).collect();
    assert_eq!(sequences, [1, 1, 1, 1, 2], "the later event waits for the earlier one");
    assert_eq!((&dead_letter["attempts"], &dead_letter["failureType"]), (&json!(4), &json!("SYSTEM")));
    assert!(dead_letter["reason"].as_str().is_some_and(|reason| reason.contains("503")), "{dead_letter}");
    assert_eq!(dead_letter["original"]["topic"], json!(backend.topic("order.events")));
    let header = |name: &str| dead_letter["headers"][name].as_str().unwrap_or_default().to_owned();
    assert_eq!(header("retry_topic-attempts"), "0x00000005", "the next attempt, as Spring counts");
    assert_eq!(header("kafka_original-consumer-group"), "order-processing-group");
    assert_eq!(header("retry_topic-original-timestamp").len(), "0x".len() + 12, "six bytes until the year 6429");
    await_count(&service, "kafka_consumer_processed_count_total", 1);
    await_count(&service, "kafka_consumer_dlq_count_total", 1);
    assert!(retries(&service) >= 4, "three retries, and the later event behind them");

    endpoint.set_response(ACCEPTED);
    let (code, _, stderr) = run(&backend, &["dlt", "redrive", "--reason", "the endpoint is back", "--yes"]);
    assert_eq!(code, 0, "{stderr}");
    until("the replayed event is accepted", WAIT_MAX, || (endpoint.accepted_for(&id) == [2, 1]).then_some(()));
}

#[test]
fn a_failing_key_keeps_its_order_and_delays_no_other_key() {
    let backend = Backend::new();
    let endpoint = Endpoint::start(EndpointResponse::Status(500));
    let delays = long_delays();
    let more = [(RETRY_DELAYS, delays.as_str()), ("POSTHASTE__CONSUMER__ATTEMPTS_MAX__ORDER_CREATED", "5")];
    let service = start(&backend, &endpoint, &more);
    let slow = place_order(&service);
    until("the first attempt has failed", WAIT_MAX, || (!endpoint.received().is_empty()).then_some(()));
    let id = slow.clone();
    endpoint.set_response_with(
        move |headers| {
            if headers["ce-partitionkey"] == id { EndpointResponse::Status(500) } else { ACCEPTED }
        },
    );
    cancel(&service, &slow);
    let others: Vec<String> = (0..20).map(|_| place_order(&service)).collect();
    others.iter().for_each(|other| cancel(&service, other));

    until("the other orders' events are accepted", WAIT_MAX, || {
        others.iter().all(|other| endpoint.accepted_for(other) == [1, 2]).then_some(())
    });
    assert!(endpoint.accepted_for(&slow).is_empty());
    endpoint.set_response(ACCEPTED);
    until("the slow order's events are accepted", WAIT_MAX, || (endpoint.accepted_for(&slow).len() == 2).then_some(()));
    service.drain();

    assert_eq!(endpoint.accepted_for(&slow), [1, 2]);
    assert!(endpoint.received_for(&slow).iter().map(|event| event.sequence()).is_sorted());
    assert_eq!(dead_letters(&backend), Vec::<Value>::new());
}

#[test]
fn block_key_holds_the_later_events_until_the_endpoint_accepts_the_first() {
    let backend = Backend::new();
    let endpoint = Endpoint::start(EndpointResponse::Status(400));
    let more = [
        ("POSTHASTE__CONSUMER__POISON__ORDER_CREATED", "block-key"),
        ("POSTHASTE__CONSUMER__ATTEMPTS_MAX__ORDER_CREATED", "1"),
    ];
    let service = start(&backend, &endpoint, &more);
    let id = place_order(&service);
    until("the event is refused", WAIT_MAX, || (!endpoint.received().is_empty()).then_some(()));
    cancel(&service, &id);
    until("the event is refused again", WAIT_MAX, || (endpoint.received().len() >= 3).then_some(()));

    assert!(endpoint.received().iter().all(|event| event.sequence() == 1), "the later event waits");
    assert_eq!(dead_letters(&backend), Vec::<Value>::new());
    until("it is logged", WAIT_MAX, || (!service.logged("message_blocks_key").is_empty()).then_some(()));
    endpoint.set_response(ACCEPTED);
    until("both events are accepted", WAIT_MAX, || (endpoint.accepted_for(&id) == [1, 2]).then_some(()));
    service.drain();
}

#[test]
fn events_that_a_killed_service_was_posting_arrive_again_in_their_order() {
    let backend = Backend::new();
    let endpoint = Endpoint::start(ACCEPTED);
    let service = start(&backend, &endpoint, &[]);
    let ids: Vec<String> = (0..40).map(|_| place_order(&service)).collect();
    ids.iter().for_each(|id| cancel(&service, id));
    until("some events have arrived", WAIT_MAX, || (endpoint.received().len() >= 10).then_some(()));
    service.kill();

    let service = start(&backend, &endpoint, &[]);
    until("every event has arrived", WAIT_MAX, || {
        ids.iter().all(|id| endpoint.accepted_for(id).contains(&2)).then_some(())
    });
    service.drain();

    for id in &ids {
        let mut seen = endpoint.accepted_for(id);
        let arrived = seen.clone();
        // A repetition begins with an event that arrived before; none begins with one whose predecessor has not arrived.
        assert_eq!(seen.first(), Some(&1), "{arrived:?}");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [1, 2], "{arrived:?}");
    }
    let repeated = endpoint.received().len().saturating_sub(2 * ids.len());
    assert!(repeated <= 32, "a crash repeats at most one poll: {repeated}");
    assert_eq!(dead_letters(&backend), Vec::<Value>::new());
}

/// The endpoint may have stored the event that it did not answer: only the id shows it the repetition.
#[test]
fn an_event_that_is_posted_again_after_a_crash_has_the_same_id() {
    let backend = Backend::new();
    let endpoint = Endpoint::start(EndpointResponse::Silence);
    let service = start(&backend, &endpoint, &[]);
    let id = place_order(&service);
    until("the event has arrived", WAIT_MAX, || (!endpoint.received().is_empty()).then_some(()));
    service.kill();
    endpoint.set_response(ACCEPTED);

    let service = start(&backend, &endpoint, &[]);
    until("the event is accepted", WAIT_MAX, || (endpoint.accepted_for(&id) == [1]).then_some(()));
    service.drain();

    let received = endpoint.received_for(&id);
    assert!(received.len() >= 2, "before and after the crash");
    let event_ids: Vec<&str> = received.iter().map(|event| event.headers["ce-id"].as_str()).collect();
    assert!(event_ids.iter().all(|event_id| *event_id == event_ids[0]), "{event_ids:?}");
    assert!(received.iter().all(|event| event.body == received[0].body), "{received:?}");
}
