//! A topic that was deleted. Of one of another service, the events are tried as often as the rule of the topic says, and then parked; every other
//! event is sent. One of the service itself is created again.
use std::collections::BTreeMap;
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::external_events::{self, topic_variable};
use crate::harness::http::tea_order;
use crate::harness::metrics::{await_metric, metric};
use crate::harness::process::{Posthaste, is_unanswered, run};

/// Three attempts, each of which may wait some seconds for the topic. At least once, a producer that knew the topic first waits for its delivery
/// timeout, and the breaker may open meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(120);

fn publish(service: &Posthaste, topic: &str) {
    let event = json!({"topic": topic, "key": topic, "type": "CustomerMoved", "payload": {}});
    external_events::publish(&service.http, &event);
}

#[test]
fn events_of_a_missing_topic_are_parked_after_the_attempts_of_the_topic() {
    park_events_of_missing_topics("exactly-once");
}

#[test]
fn events_of_a_missing_topic_are_parked_at_least_once_too() {
    park_events_of_missing_topics("at-least-once");
}

fn park_events_of_missing_topics(delivery: &str) {
    let backend = Backend::new();
    let [with_rule, without] = ["deleted.with.rule", "deleted.without"].map(|name| backend.topic(name));
    let rule = topic_variable(&with_rule, "ATTEMPTS_MAX");
    let mut settings = vec![
        ("POSTHASTE__BROKER__TOPICS", without.as_str()),
        ("POSTHASTE__BROKER__DELIVERY", delivery),
        (rule.as_str(), "2"),
        ("POSTHASTE__OUTBOX__RETRY__ATTEMPTS_MAX", "3"),
        ("POSTHASTE__OUTBOX__RETRY__BASE", "100ms"),
    ];
    let topics = [&with_rule, &without];
    let publish_and_drain = |service: &Posthaste| {
        topics.into_iter().for_each(|topic| publish(service, topic));
        service.drain();
    };
    let creator = Posthaste::start(&backend, &settings);
    publish_and_drain(&creator);
    assert!(creator.stop().success());
    // After an outage, a service that may create topics would create the deleted ones again.
    settings.push(("POSTHASTE__BROKER__CREATE_TOPICS", "false"));
    let service = Posthaste::start(&backend, &settings);
    publish_and_drain(&service);

    backend.delete_topics("deleted.");
    topics.into_iter().for_each(|topic| publish(&service, topic));
    service.http.post("/orders", &service.http.user(), &[], &tea_order(1));

    until("both events are parked", WAIT_MAX, || (service.rows(&["PARKED"]).len() == 2).then_some(()));
    let parked = service.rows(&["PARKED"]);
    let attempts: BTreeMap<&str, u64> = parked
        .iter()
        .map(|row| (row["key"].as_str().expect("text"), row["retryCount"].as_u64().expect("a number")))
        .collect();
    assert_eq!(attempts, BTreeMap::from([(&*with_rule, 2), (&*without, 3)]), "{parked:?}");
    service.drain();
    assert_eq!(backend.events().len(), 1, "the event of the order is sent");
}

/// By this time after its deletion, a topic of the service is back and in use.
const RESTORED_MAX: Duration = Duration::from_secs(30);

#[test]
fn deleted_topics_of_a_running_service_are_created_again_and_consumption_continues() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let processed = || metric(&service.http, "kafka_consumer_processed_count_total");
    let order = || service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
    order();
    service.drain();
    until("the first event is consumed", WAIT_MAX, || (processed() == 1.0).then_some(()));

    for deleted in ["order.events-retry-0", "order.events"] {
        let (before, topic) = (processed(), backend.topic(deleted));
        let is_created = || service.logged("topic_created").iter().filter(|line| line["topic"] == *topic).count();
        let created_before = is_created();
        backend.request_deletion(deleted);
        until("the topic is created again", RESTORED_MAX, || (is_created() > created_before).then_some(()));

        order();

        let consumed = |count: f64| count == before + 1.0;
        await_metric(&service.http, "kafka_consumer_processed_count_total", RESTORED_MAX, consumed);
    }
    let health = || service.http.get("/actuator/health/broker", Some(&service.http.admin()));
    until("the broker is up", RESTORED_MAX, || (health().status == 200).then_some(()));
}

#[test]
fn deleted_watermark_topic_is_reported_and_restored_by_migrate_up() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let order = || service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
    order();
    service.drain();

    backend.delete_topics("relay-watermarks");

    let broker = || service.http.get("/actuator/health/broker", Some(&service.http.admin()));
    until("the health shows it", WAIT_MAX, || (broker().status == 503).then_some(()));
    let has_remedy = |line: &Value| {
        line["event"] == "broker_refused" && line["error"].as_str().is_some_and(|error| error.contains("IN_FLIGHT"))
    };
    let refused = until("the remedy is logged", WAIT_MAX, || {
        Some(service.log_lines(has_remedy)).filter(|lines| !lines.is_empty())
    });
    assert_eq!(refused.len(), 1, "{refused:?}");
    order();
    assert_eq!(backend.events().len(), 1, "no event is published without a watermark");

    let (code, _, messages) = until("the broker responds in time", WAIT_MAX, || {
        Some(run(&backend, &["migrate", "up"])).filter(|(_, _, messages)| !is_unanswered(messages))
    });

    assert_eq!(code, 0, "{messages}");
    service.drain();
    assert_eq!(backend.events().len(), 2);
    until("the broker is up", WAIT_MAX, || (broker().status == 200).then_some(()));
}
