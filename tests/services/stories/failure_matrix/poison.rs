//! An event that kills its process at each attempt: it is parked as poison, and its type's policy holds for its key.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::metrics::metric;
use crate::harness::process::{LONG_LEASE, Posthaste};

/// Longer than the 10 s between two trials and the start of a process.
const WAIT_MAX: Duration = Duration::from_secs(40);
/// Three deaths make a row a suspect, two more in trials make it poison.
const KILLS: usize = 5;
/// At its commit, a claim waits for an advisory lock that the test holds.
const CLAIM_WAITS: &str = "
    CREATE FUNCTION claim_waits() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER claim_waits AFTER UPDATE ON outbox_lease DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW WHEN (NEW.in_flight IS DISTINCT FROM OLD.in_flight AND NEW.in_flight IS NOT NULL)
      EXECUTE FUNCTION claim_waits()";

/// Takes the lock that claims wait for, once the claim that holds it has committed.
fn hold_claims(backend: &Backend) {
    backend.database.rows("SELECT pg_advisory_lock(1)");
}

fn release_claims(backend: &Backend) {
    backend.database.rows("SELECT pg_advisory_unlock(1)");
}

/// Kills the process while its claim commits: PostgreSQL completes the commit, and nothing of the batch has reached Kafka. Returns the next
/// process.
fn restart_at_claim(backend: &Backend, mut service: Posthaste, settings: &[(&str, &str)]) -> Posthaste {
    loop {
        until("a claim waits", WAIT_MAX, || {
            let waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
            (!backend.database.rows(waiting).is_empty()).then_some(())
        });
        service.kill();
        release_claims(backend);
        hold_claims(backend);
        // PostgreSQL rolls a claim back that waits for a second or two longer than its client lives.
        let claimed = !backend.database.rows("SELECT 1 FROM outbox_lease WHERE in_flight IS NOT NULL").is_empty();
        service = Posthaste::start(backend, settings);
        if claimed {
            return service;
        }
    }
}

fn events_of(backend: &Backend, id: &str) -> Vec<Value> {
    let of_order = |event: &Value| event["key"] == id;
    backend.events().into_iter().filter(of_order).map(|event| event["headers"]["ce_type"].clone()).collect()
}

/// Kills the process as often as it has claimed the order's first event, until that is parked. Returns the order and the last process, whose
/// claims are held.
fn park_first_event(backend: &Backend, policy: &str) -> (String, Posthaste) {
    // Only a kill is a death: a lease that is lost in a pause of the machine would be one more.
    let settings = [("POSTHASTE__OUTBOX__POISON__ORDER_CREATED", policy), LONG_LEASE];
    let mut service = Posthaste::start(backend, &settings);
    backend.database.rows(CLAIM_WAITS);
    hold_claims(backend);
    let order = service.http.post("/orders", &service.http.user(), &[("X-Request-Id", "poison-1")], &tea_order(1));
    let id = order.json()["id"].as_str().expect("an id").to_owned();
    for deaths in 1..=KILLS {
        service = restart_at_claim(backend, service, &settings);
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
    let logged = until("the parked row is logged", WAIT_MAX, || {
        Some(service.logged("event_parked")).filter(|lines| !lines.is_empty())
    });
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
    release_claims(&backend);

    until("the later event is published", WAIT_MAX, || (!events_of(&backend, &id).is_empty()).then_some(()));

    assert_eq!(events_of(&backend, &id), ["ORDER_CANCELLED"]);
    assert_parked(&service, &id);
    until("no row waits", WAIT_MAX, || service.rows(&["PENDING", "IN_FLIGHT", "FAILED"]).is_empty().then_some(()));
}

#[test]
fn under_block_key_the_key_waits_for_an_operator_after_such_a_row() {
    let backend = Backend::new();
    let (id, service) = park_first_event(&backend, "block-key");
    release_claims(&backend);
    let other = service.http.post("/orders", &service.http.user(), &[], &tea_order(1)).json();
    let other = other["id"].as_str().expect("an id");
    until("another key's event is published", WAIT_MAX, || (!events_of(&backend, other).is_empty()).then_some(()));

    assert_parked(&service, &id);
    assert_eq!(service.rows(&["PENDING"]).len(), 1, "the cancellation waits");
    assert_eq!(events_of(&backend, &id), Vec::<Value>::new());
}
