//! The failure matrix, row by row: the fault, what protects, the outcome, and the metric that an operator sees. Here the rows that leave
//! the services standing; those that take one away are in `matrix_outages`.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::check;
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::http::{Answer, tea};
use crate::load::Load;
use crate::meter::{await_metric, metric, metrics};
use crate::process::Posthaste;
use crate::proxy::Proxy;

/// Longest that anything here may take; what is judged is that it comes.
const SOON: Duration = Duration::from_secs(20);
/// The event of an order for this cannot be written: the transaction fails when its order is written already.
const CURSE: &str = "CREATE FUNCTION curse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF position('Cursed' IN convert_from(NEW.payload, 'UTF8')) > 0 THEN RAISE EXCEPTION 'the event is cursed'; END IF;
    RETURN NEW; END $$;
    CREATE TRIGGER curse BEFORE INSERT ON outbox_event FOR EACH ROW EXECUTE FUNCTION curse()";
/// Whatever a create writes.
const TRACES: &str = "SELECT (SELECT count(*) FROM orders WHERE items::text LIKE '%Cursed%')
    + (SELECT count(*) FROM outbox_event WHERE position('Cursed'::bytea IN payload) > 0)
    + (SELECT count(*) FROM mark WHERE key = 'cursed')";

fn cursed() -> Value {
    json!({"items": [{"productName": "Cursed Tea", "quantity": 1, "price": "2.50"}]})
}

#[track_caller]
fn refused(answer: &Answer) {
    assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("INFRASTRUCTURE_ERROR")), "{}", answer.text);
    assert!(answer.header("retry-after").is_some());
}

#[test]
fn a_create_whose_transaction_fails_leaves_neither_order_nor_event_and_fails_no_neighbour() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[]);
    let user = service.http.user();
    let create = || service.http.post("/orders", &user, &[("Idempotency-Key", "cursed")], &cursed());
    let failures = "orders_operation_failure_count_total{operation=\"create\"}";
    ground.database.rows(CURSE);
    let neighbours = Load::start(&service.http, 4);
    until("neighbours are at work", SOON, || (neighbours.answered() > 20).then_some(()));

    for attempt in 1..=5 {
        refused(&create());
        assert_eq!(metric(&service.http, failures), f64::from(attempt), "an operator sees each, and no neighbour's");
    }
    let answered = neighbours.finish();

    assert_eq!(ground.database.rows(TRACES)[0][0], "0", "neither order, nor event, nor mark");
    assert_eq!(metric(&service.http, "orders_created_count_total"), answered.len() as f64);
    ground.database.rows("DROP TRIGGER curse ON outbox_event");
    let created = create();
    assert_eq!((created.status, created.header("idempotent-replayed")), (201, None), "the key was not used up");
    assert_eq!(ground.database.rows(TRACES)[0][0], "3");
    service.drain();
    check::laws(&ground, &answered);
}

#[test]
fn a_create_whose_connection_is_cut_before_its_commit_leaves_nothing() {
    let ground = Ground::new();
    let way = Proxy::to(&ground.addresses().0);
    let service = Posthaste::start(&ground, &[("POSTHASTE__STORE__URL", &ground.postgres_url(&way.address()))]);
    let (user, failures) = (service.http.user(), "orders_operation_failure_count_total{operation=\"create\"}");
    let create = || service.http.post("/orders", &user, &[("Idempotency-Key", "cursed")], &cursed());
    let stuck = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'orders'::regclass";
    ground.database.rows("BEGIN; LOCK TABLE orders IN EXCLUSIVE MODE");

    let answer = std::thread::scope(|scope| {
        let asked = scope.spawn(create);
        until("its transaction is under way", SOON, || (ground.database.rows(stuck)[0][0] != "0").then_some(()));
        way.cut();
        asked.join().expect("it is answered")
    });
    ground.database.rows("ROLLBACK");

    refused(&answer);
    assert_eq!(metric(&service.http, failures), 1.0);
    assert_eq!(ground.database.rows(TRACES)[0][0], "0", "neither order, nor event, nor mark");
    until("the same request is taken", SOON, || (create().status == 201).then_some(()));
    assert_eq!(ground.database.rows(TRACES)[0][0], "3", "once");
}

#[test]
fn a_record_that_is_delivered_twice_is_consumed_once() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[]);
    let (user, admin) = (service.http.user(), service.http.admin());
    let (processed, duplicates) = ("kafka_consumer_processed_count_total", "kafka_consumer_duplicate_count_total");
    let id = service.http.post("/orders", &user, &[], &tea(1)).json()["id"].as_str().expect("an id").to_owned();
    let change = json!({"status": "SHIPPED", "version": 0});
    assert_eq!(service.http.patch(&format!("/orders/{id}/status"), &admin, &[], &change).status, 200);
    await_metric(&service.http, processed, SOON, |count| count == 2.0);
    let state = || {
        let tables = "SELECT (SELECT count(*) FROM processed_events), (SELECT count(*) FROM outbox_event)";
        (service.http.get(&format!("/orders/{id}"), Some(&user)).json(), ground.database.rows(tables))
    };
    let before = state();
    let records = ground.read("order.events");
    assert_eq!((records.len(), metric(&service.http, duplicates)), (2, 0.0));

    ground.repeat(&records);
    await_metric(&service.http, duplicates, SOON, |count| count == 2.0);

    assert_eq!(ground.read("order.events").len(), 4, "they stand there twice");
    assert_eq!(metric(&service.http, processed), 2.0, "and were processed once");
    assert_eq!(state(), before, "nothing was moved by them");
    assert_eq!(metric(&service.http, "kafka_consumer_lag_ms_count"), 2.0);
    await_metric(&service.http, "kafka_consumer_lag", SOON, |lag| lag == 0.0);
}

#[test]
fn of_many_who_change_the_same_version_at_once_one_succeeds_and_the_others_are_told() {
    let ground = Ground::new();
    let fleet = Fleet::start(&ground, 2, &[]);
    let doors = fleet.doors();
    let (user, admin) = (doors[0].user(), doors[0].admin());
    let race = |headers: &[(&str, &str)], body: Value| {
        let created = doors[0].post("/orders", &user, &[], &tea(1)).json();
        let path = format!("/orders/{}/status", created["id"].as_str().expect("an id"));
        let ask = |racer: usize| doors[racer % 2].patch(&path, &admin, headers, &body).status;
        let mut answers: Vec<u16> = std::thread::scope(|scope| {
            let ask = &ask;
            let racers: Vec<_> = (0..8).map(|racer| scope.spawn(move || ask(racer))).collect();
            racers.into_iter().map(|racer| racer.join().expect("an answer")).collect()
        });
        answers.sort_unstable();
        answers
    };
    let total = |name: &str| doors.iter().map(|door| metric(door, name)).sum::<f64>();
    let conflicts = "orders_operation_failure_count_total{operation=\"change_status\"}";

    assert_eq!(race(&[], json!({"status": "SHIPPED", "version": 0})), [200, 409, 409, 409, 409, 409, 409, 409]);
    assert_eq!((total(conflicts), total("http_server_requests_seconds_count{status=\"409\"}")), (7.0, 7.0));
    let tag = [("If-Match", "\"0\"")];
    assert_eq!(race(&tag, json!({"status": "SHIPPED"})), [200, 412, 412, 412, 412, 412, 412, 412]);
    assert_eq!((total(conflicts), total("http_server_requests_seconds_count{status=\"412\"}")), (14.0, 7.0));

    let versions = ground.database.rows("SELECT version FROM orders");
    assert_eq!(versions, [["1"], ["1"]]);
    until("everything has left", SOON, || {
        (ground.database.rows("SELECT count(*) FROM outbox")[0][0] == "0").then_some(())
    });
    assert_eq!(ground.events().len(), 4, "one event for each create, and one for each change that succeeded");
}

#[test]
fn an_event_that_kafka_refuses_is_parked_in_sight_and_holds_back_its_own_key_alone() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[]);
    let (user, admin) = (service.http.user(), service.http.admin());
    let place =
        |tea: &Value| service.http.post("/orders", &user, &[], tea).json()["id"].as_str().expect("id").to_owned();
    let mut placed = vec![place(&tea(1))];
    service.drain();
    ground.configure("order.events", "max.message.bytes", "3000");
    let large = json!({"items": vec![json!({"productName": "T".repeat(250), "quantity": 1, "price": 1}); 20]});

    let row = until("an event is parked", SOON, || {
        // The topic heeds its new limit in a moment.
        placed.push(place(&large));
        until("it has left or not", SOON, || service.rows(&["PENDING", "IN_FLIGHT"]).is_empty().then_some(()));
        service.rows(&["PARKED"]).pop()
    });
    let refused = placed.pop().expect("the last one");
    assert_eq!(row["key"], json!(refused));
    let change = json!({"status": "SHIPPED", "version": 0});
    assert_eq!(service.http.patch(&format!("/orders/{refused}/status"), &admin, &[], &change).status, 200);
    let neighbour = place(&tea(1));
    until("a neighbour's event leaves", SOON, || {
        let status = format!("SELECT status FROM outbox_rows WHERE key = '{neighbour}'");
        (ground.database.rows(&status)[0][0] == "SENT").then_some(())
    });

    let permanent = "retry_classification_count_total{classification=\"PERMANENT\"}";
    let seen = metrics(&service.http, ["outbox_entries_failed_total", permanent]);
    assert_eq!(seen, [1.0, 1.0], "tried once: it would be refused again");
    await_metric(&service.http, "outbox_rows{status=\"PARKED\"}", SOON, |rows| rows == 1.0);
    let waits = service.rows(&["PENDING"]);
    assert_eq!(waits.iter().map(|row| &row["key"]).collect::<Vec<_>>(), [&json!(refused)], "in order, or not at all");
    ground.configure("order.events", "max.message.bytes", "1000000");
    let again = (format!("/admin/outbox/{}/retry", row["id"]), json!({"reason": "the topic takes it now"}));
    until("it leaves with a retry", SOON, || {
        // Refused with 409 while it is on its way.
        assert!([200, 409].contains(&service.http.post(&again.0, &admin, &[], &again.1).status));
        let waiting = format!("SELECT count(*) FROM outbox_rows WHERE key = '{refused}' AND status <> 'SENT'");
        (ground.database.rows(&waiting)[0][0] == "0").then_some(())
    });

    service.drain();
    let answered = placed.into_iter().map(|id| (id, 1)).chain([(refused, 2), (neighbour, 1)]);
    check::laws(&ground, &answered.collect());
    await_metric(&service.http, "outbox_rows{status=\"PARKED\"}", SOON, |rows| rows == 0.0);
}
