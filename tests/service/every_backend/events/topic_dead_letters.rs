//! The dead letters of a topic of another service: operators list, explain and redrive them once, over HTTP and with commands.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::endpoint::{Endpoint, EndpointResponse};
use crate::harness::external_events::{self, topic_variable};
use crate::harness::metrics::metric;
use crate::harness::process::{Posthaste, run_with};

/// A new consumer group.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A service whose topic has consumers, and the settings that its commands share.
struct Setup {
    backend: Backend,
    topic: String,
    settings: Vec<(String, String)>,
    service: Posthaste,
}

impl Setup {
    fn start(endpoint: &Endpoint) -> Self {
        let backend = Backend::new();
        let topic = backend.topic("customers");
        let variable = |key| topic_variable(&topic, key);
        let settings = vec![(variable("CONSUMERS"), "2".to_owned()), (variable("CONSUMER_URL"), endpoint.url())];
        let borrowed: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        let service = Posthaste::start(&backend, &borrowed);
        Self { backend, topic, settings, service }
    }

    fn publish(&self, key: &str, value: u32) {
        let event = json!({"topic": self.topic, "key": key, "type": "CustomerMoved", "payload": {"value": value}});
        external_events::publish(&self.service.http, &event);
    }

    /// The lines that a command prints, and its messages.
    fn run(&self, arguments: &[&str]) -> (Vec<Value>, String) {
        let environment: Vec<(&str, &str)> = self.settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        let (code, stdout, stderr) = run_with(&self.backend, arguments, &environment);
        assert_eq!(code, 0, "{arguments:?}: {stderr}");
        (stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(), stderr)
    }

    /// The dead letters of the topic that match a filter.
    fn dead_letters(&self, filter: &str) -> Vec<Value> {
        let path = format!("/admin/dlt?topic={}{filter}", self.topic);
        let listed = self.service.http.get(&path, Some(&self.service.http.admin())).json();
        listed["letters"].as_array().expect("a list").clone()
    }
}

fn position(dead_letter: &Value) -> String {
    format!("{}/{}", dead_letter["partition"], dead_letter["offset"])
}

#[test]
fn dead_letters_of_a_topic_are_explained_and_redriven_once_in_order() {
    let endpoint = Endpoint::start(EndpointResponse::Status(400));
    let setup = Setup::start(&endpoint);
    let (topic, http, admin) = (setup.topic.as_str(), &setup.service.http, setup.service.http.admin());
    (1..=3).for_each(|value| setup.publish("k", value));
    setup.publish("other", 4);

    let all = until("there are four dead letters", WAIT_MAX, || {
        Some(setup.dead_letters("")).filter(|listed| listed.len() == 4)
    });
    let first = all.iter().find(|of| of["value"]["value"] == 1).expect("the first event");
    assert_eq!((&first["key"], &first["failureType"]), (&json!("k"), &json!("VALIDATION")), "{first}");
    assert_eq!(first["topic"], json!(outbox::topics::dead_letter_topic(topic)));
    assert_eq!(first["original"]["topic"], json!(topic));
    assert_eq!(first["headers"]["kafka_original-consumer-group"], json!(format!("posthaste-{topic}")));
    assert_eq!(setup.run(&["dlt", "list", "--topic", topic, "--json"]).0, all, "the command and HTTP print the same");
    let first_position = position(first);
    assert_eq!(setup.run(&["dlt", "show", &first_position, "--topic", topic, "--json"]).0, std::slice::from_ref(first));
    let (of_orders, message) = setup.run(&["dlt", "list"]);
    assert_eq!(of_orders, Vec::<Value>::new());
    assert!(message.contains(&format!("4 of {topic} were not sent back yet: --topic {topic}")), "{message}");
    assert_eq!(http.get("/admin/dlt", Some(&admin)).json()["letters"], json!([]), "those of the orders");
    assert_eq!(http.get("/admin/dlt?topic=unknown", Some(&admin)).status, 404);

    endpoint.set_response(EndpointResponse::Status(202));
    let one = format!("/admin/dlt/{first_position}/redrive?topic={topic}");
    let body = json!({"dryRun": false, "reason": "the endpoint is fixed"});
    assert_eq!(http.post(&one, &admin, &[], &body).json()["redriven"]["by"], "root");
    assert_eq!(http.post(&one, &admin, &[], &body).status, 409, "it was sent back before");
    until("it is accepted", WAIT_MAX, || (endpoint.accepted_for("k") == [1]).then_some(()));
    let (two, message) = setup.run(&["dlt", "redrive", "--topic", topic, "--limit", "2", "--dry-run", "--json"]);
    assert!(message.contains(&format!("at least 2 dead letters match in {topic}: raise --limit")), "{message}");
    assert!(two[0]["matched"] == 2 && two[0]["next"].is_string(), "three wait: {two:?}");
    let (sent, _) = setup.run(&["dlt", "redrive", "--topic", topic, "--reason", "all of them", "--yes", "--json"]);
    assert_eq!(sent, [json!({"dryRun": false, "matched": 3, "redriven": 3})]);

    until("all are accepted", WAIT_MAX, || (endpoint.accepted_for("k").len() == 3).then_some(()));
    until("all are accepted", WAIT_MAX, || (endpoint.accepted_for("other").len() == 1).then_some(()));
    assert_eq!(endpoint.accepted_for("k"), [1, 2, 3], "in the order of their key");
    let redriven = setup.dead_letters("&redriven=true");
    assert!(redriven.iter().all(|of| of["redriven"]["arrived"] == true) && redriven.len() == 4, "{redriven:?}");
    let again = http.post(&format!("/admin/dlt/redrive?topic={topic}"), &admin, &[], &body).json();
    assert_eq!((&again["matched"], &again["redriven"]), (&json!(0), &json!(0)), "each is sent back once");
    let log = until("the first is logged", WAIT_MAX, || setup.service.logged("dead_letters_redriven").pop());
    assert_eq!((&log["by"], &log["topic"], &log["redriven"]), (&json!("root"), &json!(topic), &json!(1)));
    // The service counts an event after the endpoint has accepted it.
    let counted = || metric(&setup.service.http, "kafka_consumer_processed_count_total") == 4.0;
    until("all are counted", WAIT_MAX, || counted().then_some(()));
}
