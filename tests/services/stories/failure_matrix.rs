//! Rows of the failure matrix that leave the services running: fault, protection, outcome and metric. The rows with an outage are in
//! `outages`.
mod missing_topic;
mod poison;
mod slow_settlement;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::cluster::fleet::Fleet;
use crate::harness::backend::Backend;
use crate::harness::event_log;
use crate::harness::http::{Http, Response, tea_order};
use crate::harness::load::{Load, REFUSED};
use crate::harness::metrics::{await_metric, metric};
use crate::harness::process::{LONG_LEASE, Posthaste};
use crate::harness::proxy::Proxy;
use crate::harness::stop_flag_guard::StopFlagGuard;

/// Longest wait for any condition here; no test judges the duration.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Makes the insert of an event fail after its order was inserted, for one product.
const REJECT_EVENT: &str = "CREATE FUNCTION reject_event() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF position('Rejected' IN convert_from(NEW.payload, 'UTF8')) > 0 THEN RAISE EXCEPTION 'the event is rejected'; END IF;
    RETURN NEW; END $$;
    CREATE TRIGGER reject_event BEFORE INSERT ON outbox_event FOR EACH ROW EXECUTE FUNCTION reject_event()";
/// Number of rows that creates of that product wrote.
const ROWS_WRITTEN: &str = "SELECT (SELECT count(*) FROM orders WHERE items::text LIKE '%Rejected%')
    + (SELECT count(*) FROM outbox_event WHERE position('Rejected'::bytea IN payload) > 0)
    + (SELECT count(*) FROM idempotency_record WHERE key = 'rejected')";

fn rejected_order() -> Value {
    json!({"items": [{"productName": "Rejected Tea", "quantity": 1, "price": "2.50"}]})
}

/// Sends the create of the rejected order once.
fn create_rejected(http: &Http) -> Response {
    let (user, headers) = (http.user(), [("Idempotency-Key", "rejected")]);
    let created = http.send_once("POST", "/orders", Some(&user), &headers, Some(rejected_order().to_string()));
    created.expect("a response")
}

#[track_caller]
fn assert_refused(response: &Response) {
    assert_eq!((response.status, &response.json()["code"]), (503, &json!("INFRASTRUCTURE_ERROR")), "{}", response.text);
    assert!(response.header("retry-after").is_some());
}

#[test]
fn a_failed_create_transaction_leaves_nothing_and_fails_no_other_create() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let create = || create_rejected(&service.http);
    let failures = "orders_operation_failure_count_total{operation=\"create\"}";
    backend.database.rows(REJECT_EVENT);
    let refused_orders = || REFUSED.lock().expect("not poisoned").orders.len();
    let before = refused_orders();
    let load = Load::start(&service.http, 4);
    until("load runs", WAIT_MAX, || (load.acknowledged() > 20).then_some(()));

    for attempt in 1..=5 {
        assert_refused(&create());
        assert!(metric(&service.http, failures) >= f64::from(attempt), "each failure is counted");
    }
    let acknowledged = load.finish();
    // A slow disk may make the store refuse a create of the load.
    let refused = refused_orders() - before;
    assert!(metric(&service.http, failures) <= 5.0 + refused as f64, "no other create fails, beyond {refused} refused");

    assert_eq!(backend.database.rows(ROWS_WRITTEN)[0][0], "0", "neither order, nor event, nor idempotency record");
    assert_eq!(metric(&service.http, "orders_created_count_total"), acknowledged.len() as f64);
    backend.database.rows("DROP TRIGGER reject_event ON outbox_event");
    let key = [("Idempotency-Key", "rejected")];
    let created = service.http.post("/orders", &service.http.user(), &key, &rejected_order());
    assert_eq!((created.status, created.header("idempotent-replayed")), (201, None), "the key was not used up");
    assert_eq!(backend.database.rows(ROWS_WRITTEN)[0][0], "3");
    service.drain();
    event_log::assert_complete(&backend, &acknowledged);
}

#[test]
fn a_create_that_loses_its_connection_before_commit_leaves_nothing() {
    let backend = Backend::new();
    let proxy = Proxy::to(&backend.addresses().0);
    let service = Posthaste::start(&backend, &[("POSTHASTE__STORE__URL", &backend.postgres_url(&proxy.address()))]);
    let failures = "orders_operation_failure_count_total{operation=\"create\"}";
    let (create, is_seen) = (|| create_rejected(&service.http), AtomicBool::new(false));
    let blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'orders'::regclass";
    backend.database.rows("BEGIN; LOCK TABLE orders IN EXCLUSIVE MODE");

    let responses = std::thread::scope(|scope| {
        // The transaction waits for some seconds only, which a busy machine may miss: the request is repeated until one is seen, and cut.
        let client = scope.spawn(|| {
            let mut responses = vec![create()];
            while !is_seen.load(SeqCst) {
                responses.push(create());
            }
            responses
        });
        let end = StopFlagGuard(&is_seen);
        until("its transaction waits for the lock", WAIT_MAX, || {
            (backend.database.rows(blocked)[0][0] != "0").then_some(())
        });
        drop(end);
        proxy.cut();
        client.join().expect("it receives a response")
    });
    backend.database.rows("ROLLBACK");

    responses.iter().for_each(assert_refused);
    assert_eq!(metric(&service.http, failures), responses.len() as f64);
    assert_eq!(backend.database.rows(ROWS_WRITTEN)[0][0], "0", "neither order, nor event, nor idempotency record");
    until("the same request is accepted", WAIT_MAX, || (create().status == 201).then_some(()));
    assert_eq!(backend.database.rows(ROWS_WRITTEN)[0][0], "3", "once");
}

#[test]
fn a_record_that_is_delivered_twice_is_consumed_once() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let (user, admin) = (service.http.user(), service.http.admin());
    let (processed, duplicates) = ("kafka_consumer_processed_count_total", "kafka_consumer_duplicate_count_total");
    let id = service.http.post("/orders", &user, &[], &tea_order(1)).json()["id"].as_str().expect("an id").to_owned();
    let change = json!({"status": "SHIPPED", "version": 0});
    assert_eq!(service.http.patch(&format!("/orders/{id}/status"), &admin, &[], &change).status, 200);
    await_metric(&service.http, processed, WAIT_MAX, |count| count == 2.0);
    let state = || {
        let tables = "SELECT (SELECT count(*) FROM processed_events), (SELECT count(*) FROM outbox_event)";
        (service.http.get(&format!("/orders/{id}"), Some(&user)).json(), backend.database.rows(tables))
    };
    let before = state();
    let records = backend.read("order.events");
    assert_eq!(records.len(), 2);
    // A consumer that was paused for longer than its session reads a record again.
    let read_again = metric(&service.http, duplicates);

    backend.repeat(&records);
    await_metric(&service.http, duplicates, WAIT_MAX, |count| count >= read_again + 2.0);

    assert_eq!(backend.read("order.events").len(), 4, "the topic has both copies");
    assert_eq!(metric(&service.http, processed), 2.0, "and each event was processed once");
    assert_eq!(state(), before, "duplicates change nothing");
    assert_eq!(metric(&service.http, "kafka_consumer_lag_ms_count"), 2.0);
    await_metric(&service.http, "kafka_consumer_lag", WAIT_MAX, |lag| lag == 0.0);
}

#[test]
fn of_concurrent_changes_of_one_version_one_succeeds_and_the_others_conflict() {
    let backend = Backend::new();
    let fleet = Fleet::start(&backend, 2, &[]);
    let endpoints = fleet.endpoints();
    let (user, admin) = (endpoints[0].user(), endpoints[0].admin());
    let race = |headers: &[(&str, &str)], body: Value| {
        let created = endpoints[0].post("/orders", &user, &[], &tea_order(1)).json();
        let path = format!("/orders/{}/status", created["id"].as_str().expect("an id"));
        let send = |client: usize| endpoints[client % 2].patch(&path, &admin, headers, &body).status;
        let mut responses: Vec<u16> = std::thread::scope(|scope| {
            let send = &send;
            let clients: Vec<_> = (0..8).map(|client| scope.spawn(move || send(client))).collect();
            clients.into_iter().map(|client| client.join().expect("a response")).collect()
        });
        responses.sort_unstable();
        responses
    };
    let total = |name: &str| endpoints.iter().map(|endpoint| metric(endpoint, name)).sum::<f64>();
    // A request is counted after its response; one that a slow store refused was repeated, and is a failure too.
    let await_failures = |status: &str, least: f64| {
        let responses = format!("http_server_requests_seconds_count{{status=\"{status}\"}}");
        let failures = "orders_operation_failure_count_total{operation=\"change_status\"}";
        until("each conflict is counted", WAIT_MAX, || {
            (total(&responses) == 7.0 && total(failures) >= least).then_some(())
        });
    };

    assert_eq!(race(&[], json!({"status": "SHIPPED", "version": 0})), [200, 409, 409, 409, 409, 409, 409, 409]);
    await_failures("409", 7.0);
    let tag = [("If-Match", "\"0\"")];
    assert_eq!(race(&tag, json!({"status": "SHIPPED"})), [200, 412, 412, 412, 412, 412, 412, 412]);
    await_failures("412", 14.0);

    let versions = backend.database.rows("SELECT version FROM orders");
    assert_eq!(versions, [["1"], ["1"]]);
    until("every event is sent", WAIT_MAX, || {
        (backend.database.rows("SELECT count(*) FROM outbox")[0][0] == "0").then_some(())
    });
    assert_eq!(backend.events().len(), 4, "one event for each create, and one for each change that succeeded");
}

#[test]
fn an_event_that_kafka_rejects_is_parked_and_blocks_only_its_own_key() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[LONG_LEASE]);
    let (user, admin) = (service.http.user(), service.http.admin());
    let place_order =
        |tea: &Value| service.http.post("/orders", &user, &[], tea).json()["id"].as_str().expect("id").to_owned();
    let mut placed = vec![place_order(&tea_order(1))];
    service.drain();
    backend.configure("order.events", "max.message.bytes", "3000");
    let large = json!({"items": vec![json!({"productName": "T".repeat(250), "quantity": 1, "price": 1}); 20]});

    let row = until("an event is parked", WAIT_MAX, || {
        // Kafka applies the new limit after a moment.
        placed.push(place_order(&large));
        until("no row is waiting", WAIT_MAX, || {
            service.rows(&["PENDING", "IN_FLIGHT", "FAILED"]).is_empty().then_some(())
        });
        service.rows(&["PARKED"]).pop()
    });
    let refused = placed.pop().expect("the last one");
    assert_eq!(row["key"], json!(refused));
    let change = json!({"status": "SHIPPED", "version": 0});
    assert_eq!(service.http.patch(&format!("/orders/{refused}/status"), &admin, &[], &change).status, 200);
    let other = place_order(&tea_order(1));
    until("the event of another key is sent", WAIT_MAX, || {
        let status = format!("SELECT status FROM outbox_rows WHERE key = '{other}'");
        (backend.database.rows(&status)[0][0] == "SENT").then_some(())
    });

    let permanent = "retry_classification_count_total{classification=\"PERMANENT\"}";
    // The relay counts the row after its status is stored.
    await_metric(&service.http, "outbox_entries_failed_total", WAIT_MAX, |failed| failed == 1.0);
    // One attempt: a permanent error is not retried.
    await_metric(&service.http, permanent, WAIT_MAX, |attempts| attempts == 1.0);
    await_metric(&service.http, "outbox_rows{status=\"PARKED\"}", WAIT_MAX, |rows| rows == 1.0);
    let waiting = service.rows(&["PENDING"]);
    assert_eq!(
        waiting.iter().map(|row| &row["key"]).collect::<Vec<_>>(),
        [&json!(refused)],
        "a parked row blocks its key"
    );
    backend.configure("order.events", "max.message.bytes", "1000000");
    let again = (format!("/admin/outbox/{}/retry", row["id"]), json!({"reason": "the topic accepts it now"}));
    until("the retry sends it", WAIT_MAX, || {
        // 409 while it is in flight.
        assert!([200, 409].contains(&service.http.post(&again.0, &admin, &[], &again.1).status));
        let waiting = format!("SELECT count(*) FROM outbox_rows WHERE key = '{refused}' AND status <> 'SENT'");
        (backend.database.rows(&waiting)[0][0] == "0").then_some(())
    });

    service.drain();
    let acknowledged = placed.into_iter().map(|id| (id, 1)).chain([(refused, 2), (other, 1)]);
    event_log::assert_complete(&backend, &acknowledged.collect());
    await_metric(&service.http, "outbox_rows{status=\"PARKED\"}", WAIT_MAX, |rows| rows == 0.0);
}

/// The row of an event that another program changed or wrote: the service itself writes none off the contract.
#[test]
fn an_event_that_violates_its_contract_is_parked_and_counted() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__OUTBOX__PUBLISHER__ENABLED", "false")]);
    let order = service.http.post("/orders", &service.http.user(), &[], &tea_order(1)).json();
    let value = format!(r#"{{"schemaVersion": 2, "orderId": {}, "status": "LOST"}}"#, order["id"]);
    backend.database.rows(&format!("UPDATE outbox_event SET payload = convert_to('{value}', 'UTF8')"));
    assert!(service.stop().success());

    let service = Posthaste::start(&backend, &[]);
    let parked = until("the event is parked", WAIT_MAX, || service.rows(&["PARKED"]).pop());

    assert_eq!((&parked["key"], &parked["failureType"]), (&order["id"], &json!("VALIDATION")), "{parked}");
    // The relay counts the row after its status is stored.
    await_metric(&service.http, "outbox_entries_failed_total", WAIT_MAX, |failed| failed == 1.0);
    await_metric(&service.http, "kafka_schema_validation_errors_total", WAIT_MAX, |errors| errors == 1.0);
    assert!(backend.events().is_empty(), "no consumer receives it");
}
