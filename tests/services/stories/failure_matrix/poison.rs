//! An event whose processing kills its process again and again: it is parked as poison, and its type's policy holds for its key.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::metrics::metric;
use crate::harness::process::Posthaste;

/// Longer than the 10 s between two trials and the start of a process.
const WAIT_MAX: Duration = Duration::from_secs(40);
/// Three deaths make a row a suspect, two more in trials make it poison.
const KILLS: usize = 5;
/// The lease outlives the time in which Kafka refuses records, so that the batch stays in flight until the process is killed.
const LEASE: (&str, &str) = ("POSTHASTE__OUTBOX__LEASE", "120s");

/// The token of the claimed batch, once it is another one than `before`.
fn claimed(backend: &Backend, before: Option<&String>) -> String {
    until("the row is claimed", WAIT_MAX, || {
        let open = "SELECT in_flight FROM outbox_lease WHERE in_flight IS NOT NULL AND claim_epoch = epoch";
        let open = backend.database.rows(open).into_iter().next().map(|row| row[0].clone());
        open.filter(|token| Some(token) != before)
    })
}

/// With one broker two replicas are never in sync: records of the topic are refused, and transactions of other topics commit.
fn refuse_records(backend: &Backend, refuse: bool) {
    backend.configure("order.events", "min.insync.replicas", if refuse { "2" } else { "1" });
}

fn events_of(backend: &Backend, id: &str) -> Vec<Value> {
    let of_order = |event: &Value| event["key"] == id;
    backend.events().into_iter().filter(of_order).map(|event| event["headers"]["ce_type"].clone()).collect()
}

/// Kills the process as often as it has the order's first event in flight, until that is parked. Returns the order and the last process.
fn park_first_event(backend: &Backend, policy: &str) -> (String, Posthaste) {
    let settings = [("POSTHASTE__OUTBOX__POISON__ORDER_CREATED", policy), LEASE];
    let mut service = Posthaste::start(backend, &settings);
    refuse_records(backend, true);
    let order = service.http.post("/orders", &service.http.user(), &[("X-Request-Id", "poison-1")], &tea_order(1));
    let id = order.json()["id"].as_str().expect("an id").to_owned();
    let mut token = None;
    for deaths in 1..=KILLS {
        token = Some(claimed(backend, token.as_ref()));
        service.kill();
        service = Posthaste::start(backend, &settings);
        if deaths == 3 {
            let cancelled = service.http.patch(&format!("/orders/{id}/cancel"), &service.http.user(), &[], &json!({}));
            assert_eq!(cancelled.status, 200, "{}", cancelled.text);
        }
        if deaths < KILLS {
            assert_eq!(service.rows(&["PARKED"]), Vec::<Value>::new(), "{deaths} deaths");
        }
    }
    until("the row is parked", WAIT_MAX, || (!service.rows(&["PARKED"]).is_empty()).then_some(()));
    (id, service)
}

/// The last process has logged and counted the row that it parked.
fn assert_parked(service: &Posthaste, id: &str) {
    let parked = service.rows(&["PARKED"]);
    assert_eq!(parked.len(), 1, "{parked:?}");
    assert_eq!((&parked[0]["key"], &parked[0]["type"]), (&json!(id), &json!("ORDER_CREATED")), "{parked:?}");
    until("the parked row is counted", WAIT_MAX, || {
        (metric(&service.http, "outbox_entries_failed_total") == 1.0).then_some(())
    });
    let logged = service.logged("event_parked");
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert_eq!((&logged[0]["key"], &logged[0]["failure_type"]), (&json!(id), &json!("SYSTEM")));
    assert_eq!(logged[0]["event_id"], parked[0]["eventId"]);
    assert_eq!((&logged[0]["request_id"], &logged[0]["order_id"]), (&json!("poison-1"), &json!(id)));
    assert_eq!(logged[0]["attempt"], json!(KILLS));
    assert!(logged[0]["error"].as_str().is_some_and(|error| error.contains("poison")), "{logged:?}");
}

#[test]
fn under_skip_row_the_key_goes_on_after_a_row_that_kills_its_process() {
    let backend = Backend::new();
    let (id, service) = park_first_event(&backend, "skip-row");
    refuse_records(&backend, false);

    until("the later event is published", WAIT_MAX, || (!events_of(&backend, &id).is_empty()).then_some(()));

    assert_eq!(events_of(&backend, &id), ["ORDER_CANCELLED"]);
    assert_parked(&service, &id);
    assert_eq!(service.rows(&["PENDING", "IN_FLIGHT", "FAILED"]), Vec::<Value>::new());
}

#[test]
fn under_block_key_the_key_waits_for_an_operator_after_such_a_row() {
    let backend = Backend::new();
    let (id, service) = park_first_event(&backend, "block-key");
    refuse_records(&backend, false);
    let other = service.http.post("/orders", &service.http.user(), &[], &tea_order(1)).json();
    let other = other["id"].as_str().expect("an id");
    until("another key's event is published", WAIT_MAX, || (!events_of(&backend, other).is_empty()).then_some(()));

    assert_parked(&service, &id);
    assert_eq!(service.rows(&["PENDING"]).len(), 1, "the cancellation waits");
    assert_eq!(events_of(&backend, &id), Vec::<Value>::new());
}
