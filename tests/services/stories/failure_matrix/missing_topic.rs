//! A topic of another service that was deleted: its events are tried as often as the rule of the topic says, and then parked; every other
//! event is sent.
use std::collections::BTreeMap;
use std::time::Duration;

use kit::wait::until;
use serde_json::json;

use crate::harness::backend::Backend;
use crate::harness::external_events::{self, topic_variable};
use crate::harness::http::tea_order;
use crate::harness::process::Posthaste;

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
