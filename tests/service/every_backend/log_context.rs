//! The context of log lines: which request, order and event caused a line, also in actors and adapters.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::endpoint::{Endpoint, EndpointResponse};
use crate::harness::http::tea_order;
use crate::harness::process::{LONG_LEASE, Posthaste, run};

/// Longest wait for a log line.
const WAIT_MAX: Duration = Duration::from_secs(20);

fn start(backend: &Backend, level: &str) -> Posthaste {
    let settings = [("POSTHASTE__LOG__LEVEL", level), ("POSTHASTE__REGION__ID", "eu-1"), LONG_LEASE];
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
    for request_id in ["place-1", "ship-1"] {
        let [committed, published, consumed] = ["order_committed", "event_published", "event_consumed"]
            .map(|event| lines_of(&service, event, request_id).remove(0));
        for line in [&published, &consumed] {
            assert_eq!((&line["region"], &line["order_id"]), (&json!("eu-1"), order), "{line}");
            assert_eq!(line["event_id"], committed["event_id"], "{line}");
        }
    }
    let carried = backend.events().into_iter().map(|event| event["headers"]["x-request-id"].clone());
    assert_eq!(carried.collect::<Vec<_>>(), ["place-1", "ship-1"]);
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

/// Asserts that a line names the request, its order and its event, and returns the event's id.
#[track_caller]
fn assert_context(line: &Value, request_id: &str, order: &Value) -> Value {
    let context = ["region", "request_id", "order_id"].map(|name| &line[name]);
    assert_eq!(context, [&json!("eu-1"), &json!(request_id), order], "{line}");
    assert!(line["event_id"].is_string(), "{line}");
    line["event_id"].clone()
}

#[test]
fn a_failed_handlers_lines_and_records_name_the_request_of_the_event() {
    let (backend, endpoint) = (Backend::new(), Endpoint::start(EndpointResponse::Status(503)));
    let url = endpoint.url();
    let settings = [
        ("POSTHASTE__CONSUMER__HANDLER__ORDER_CREATED", "post"),
        ("POSTHASTE__CONSUMER__URL__ORDER_CREATED", url.as_str()),
        ("POSTHASTE__CONSUMER__ATTEMPTS_MAX__ORDER_CREATED", "2"),
        ("POSTHASTE__LOG__LEVEL", "posthaste=debug,info"),
        ("POSTHASTE__REGION__ID", "eu-1"),
        LONG_LEASE,
    ];
    let service = Posthaste::start(&backend, &settings);
    let user = service.http.user();
    let order = service.http.post("/orders", &user, &[("X-Request-Id", "fail-1")], &tea_order(1)).json()["id"].clone();

    let dead = lines_of(&service, "message_dead_lettered", "fail-1");
    let retried = lines_of(&service, "message_retried", "fail-1");
    assert_eq!((dead.len(), retried.len(), &retried[0]["attempt"]), (1, 1, &json!(1)), "{dead:?} {retried:?}");
    let published = lines_of(&service, "event_published", "fail-1").remove(0);
    let lines = [&published, &retried[0], &dead[0]];
    assert!(lines.iter().all(|line| assert_context(line, "fail-1", &order) == published["event_id"]), "{lines:?}");
    assert!(endpoint.received().iter().all(|event| event.headers["x-request-id"] == "fail-1"));
    // The line is written before the record.
    let record: Value = until("the dead letter is in its topic", WAIT_MAX, || {
        let (code, listed, stderr) = run(&backend, &["dlt", "list", "--json"]);
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str(listed.trim()).ok()
    });
    assert_eq!(record["headers"]["x-request-id"], "fail-1", "{record}");

    endpoint.set_response(EndpointResponse::Status(202));
    let (code, _, stderr) = run(&backend, &["dlt", "redrive", "--reason", "the endpoint is back", "--yes"]);
    assert_eq!(code, 0, "{stderr}");
    let consumed = lines_of(&service, "event_consumed", "fail-1");
    assert_eq!(assert_context(&consumed[0], "fail-1", &order), published["event_id"]);
}

#[test]
fn a_parked_events_line_names_the_request_of_the_event() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__BROKER__KIND", "none")]);
    let user = service.http.user();
    let order = service.http.post("/orders", &user, &[("X-Request-Id", "park-1")], &tea_order(1)).json()["id"].clone();
    let event_id = service.rows(&["PENDING"])[0]["eventId"].clone();
    assert!(service.stop().success());

    backend.break_event_values();

    let service = start(&backend, "info");
    let parked = lines_of(&service, "event_parked", "park-1");
    assert_eq!(parked.len(), 1, "{parked:?}");
    assert_eq!(assert_context(&parked[0], "park-1", &order), event_id);
}
