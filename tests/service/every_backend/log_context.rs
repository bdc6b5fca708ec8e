//! The context of log lines: which request, order and event caused a line, also in actors and adapters.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::process::Posthaste;

/// Longest wait for a log line.
const WAIT_MAX: Duration = Duration::from_secs(20);

fn start(backend: &Backend, level: &str) -> Posthaste {
    let settings = [("POSTHASTE__LOG__LEVEL", level), ("POSTHASTE__REGION__ID", "eu-1")];
    Posthaste::start(backend, &settings)
}

/// The lines of this event that a request caused, as soon as there is one.
fn lines_of(service: &Posthaste, event: &str, request_id: &str) -> Vec<Value> {
    until(&format!("{event} of {request_id}"), WAIT_MAX, || {
        let lines = service.log_lines(|line| line["event"] == event && line["request_id"] == request_id);
        (!lines.is_empty()).then_some(lines)
    })
}

#[test]
fn every_line_of_a_request_names_region_request_and_order() {
    let backend = Backend::new();
    let service = start(&backend, "posthaste=debug,info");
    let (user, admin) = (service.http.user(), service.http.admin());
    let created = service.http.post("/orders", &user, &[("X-Request-Id", "place-1")], &tea_order(1)).json();
    let order = &created["id"];
    let path = format!("/orders/{}/status", order.as_str().expect("an id"));
    let body = json!({"status": "SHIPPED", "version": 0});
    assert_eq!(service.http.patch(&path, &admin, &[("X-Request-Id", "ship-1")], &body).status, 200);

    for request_id in ["place-1", "ship-1"] {
        for event in ["request", "order_committed"] {
            let lines = lines_of(&service, event, request_id);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert_eq!((&lines[0]["region"], &lines[0]["order_id"]), (&json!("eu-1"), order), "{lines:?}");
        }
        let calls = lines_of(&service, "dependency_called", request_id);
        assert!(calls.iter().all(|line| line["region"] == "eu-1"), "{calls:?}");
    }
    let calls = lines_of(&service, "dependency_called", "ship-1");
    assert!(calls.iter().all(|line| line["order_id"] == *order), "adapters know the order of a change: {calls:?}");
    let consumed = until("both events are consumed", WAIT_MAX, || {
        let lines = service.log_lines(|line| line["event"] == "event_consumed" && line["order_id"] == *order);
        (lines.len() == 2).then_some(lines)
    });
    let committed = service.logged("order_committed");
    let ids = |lines: &[Value]| lines.iter().map(|line| line["event_id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&consumed), ids(&committed));
    let without_region = service.log_lines(|line| line["region"] != "eu-1");
    assert!(without_region.is_empty(), "{without_region:?}");
}

#[test]
fn no_level_of_the_log_removes_the_context_of_an_error() {
    let backend = Backend::new();
    let service = start(&backend, "actors=error,info");
    let key = "0197a1f0-0000-7000-8000-00000000000b";

    backend.append_record("order.events", key, "{\"schemaVersion\":99}");

    let dead = until("the record is dead-lettered", WAIT_MAX, || service.logged("message_dead_lettered").pop());
    assert_eq!((&dead["order_id"], &dead["region"]), (&json!(key), &json!("eu-1")), "{dead}");
}
