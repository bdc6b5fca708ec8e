//! Events of other services over HTTP, and the settings of their topics.
use serde_json::Value;

use crate::harness::http::Http;

/// The environment variable of a topic's key.
pub fn topic_variable(topic: &str, key: &str) -> String {
    format!("POSTHASTE__TOPICS__{}__{key}", topic.replace('.', "__").to_uppercase())
}

/// Publishes an event, which the service accepts.
pub fn publish(http: &Http, event: &Value) {
    let response = http.post("/events", &http.token("shop", "PUBLISHER"), &[], event);
    assert_eq!(response.status, 201, "{}", response.text);
}
