//! Actors of a running service: their state, injected faults, and the wait for a restart.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::process::Posthaste;

/// One actor of each kind that every service has.
pub const ACTORS: [&str; 8] = [
    "/failover-manager",
    "/backpressure-manager",
    "/relay/retry-handler",
    "/relay/outbox-publisher",
    "/relay/partition-worker-7",
    "/consumer-0",
    "/pending-promoter",
    "/order-aggregate-3",
];

/// The entry of an actor in `/admin/actors`; null while it does not exist.
pub fn actor(service: &Posthaste, path: &str) -> Value {
    let tree = service.http.get("/admin/actors", Some(&service.http.admin())).json();
    let actors = tree["actors"].as_array().expect("actors");
    actors.iter().find(|actor| actor["path"] == path).cloned().unwrap_or_default()
}

/// Sends a fault command to an actor and asserts that the service accepts it.
pub fn inject(service: &Posthaste, path: &str, action: &str) {
    let response = service.http.post(&format!("/admin/actors{path}/{action}"), &service.http.admin(), &[], &json!({}));
    assert_eq!(response.status, 202, "{path} {action}: {}", response.text);
}

/// Longest until an actor runs again, which takes a second at most: `tests/timing` measures it. Here other work may use the processors.
const RESTART_MAX: Duration = Duration::from_secs(10);

/// Ends an actor and waits until it runs again. Returns the generation that ended.
pub fn kill_and_await_restart(service: &Posthaste, path: &str, action: &str) -> u64 {
    // A fault has no effect on an actor between two generations, so an earlier restart must be complete.
    let before = until(&format!("{path} runs"), RESTART_MAX, || {
        let now = actor(service, path);
        (now["state"] == "running").then(|| now["generation"].as_u64().expect("a number"))
    });
    inject(service, path, action);
    until(&format!("{path} runs again after {action}"), RESTART_MAX, || {
        let now = actor(service, path);
        (now["state"] == "running" && now["generation"].as_u64() > Some(before)).then_some(())
    });
    before
}
