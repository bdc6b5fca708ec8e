//! A settlement that the store does not answer, while other partitions go on: it occupies no thread of the Kafka client, so the delivery reports of
//! their records arrive, and their events are acknowledged and settled.
use std::time::Duration;

use kit::wait::until;
use tokio::runtime::Builder;
use tokio_postgres::NoTls;

use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::metrics::metric;
use crate::harness::process::Posthaste;

/// Longest wait for any condition here; no test judges the duration.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// The lock that the slow settlement waits for.
const LOCK: &str = "4711";
/// Longer than the test holds the settlement.
const LEASE: (&str, &str) = ("POSTHASTE__OUTBOX__LEASE", "120s");

fn place_order(service: &Posthaste) -> String {
    let created = service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
    created.json()["id"].as_str().expect("an id").to_owned()
}

fn published(backend: &Backend, id: &str) -> bool {
    backend.events().iter().any(|event| event["key"] == id)
}

/// Lets settlements of this order's partition wait for the lock.
fn hold_settlements(backend: &Backend, order: &str) -> String {
    let partition =
        backend.database.rows(&format!("SELECT partition FROM outbox_rows WHERE key = '{order}'"))[0][0].clone();
    for statement in [
        &format!(
            "CREATE FUNCTION wait_for_lock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_advisory_xact_lock({LOCK}); RETURN NEW; END $$"
        ),
        &format!(
            "CREATE TRIGGER slow_settlement BEFORE INSERT ON outbox_archive FOR EACH ROW
             WHEN (NEW.partition = {partition}) EXECUTE FUNCTION wait_for_lock()"
        ),
    ] {
        backend.database.rows(statement);
    }
    partition
}

#[test]
fn a_settlement_that_hangs_stops_no_delivery_report_of_another_partition() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[LEASE]);
    let slow = place_order(&service);
    service.drain();
    let partition = hold_settlements(&backend, &slow);
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (holder, driver) =
        runtime.block_on(tokio_postgres::connect(&backend.database.url(), NoTls)).expect("connected");
    let driver = runtime.spawn(driver);
    runtime.block_on(holder.batch_execute(&format!("SELECT pg_advisory_lock({LOCK})"))).expect("the lock is taken");

    let user = service.http.user();
    let cancelled = service.http.patch(&format!("/orders/{slow}/cancel"), &user, &[], &serde_json::json!({}));
    assert_eq!(cancelled.status, 200, "{}", cancelled.text);
    until("the settlement hangs", WAIT_MAX, || {
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        (backend.database.rows(waiting)[0][0] != "0").then_some(())
    });
    let acknowledged = || metric(&service.http, "outbox_commit_to_ack_seconds_count");
    let before = acknowledged();
    let others: Vec<String> = (0..40).map(|_| place_order(&service)).collect();
    let of_partition = format!("SELECT count(*) FROM outbox_rows WHERE partition <> {partition} AND status <> 'SENT'");
    until("the events of the other partitions are settled", WAIT_MAX, || {
        (backend.database.rows(&of_partition)[0][0] == "0").then_some(())
    });

    let theirs = others.iter().filter(|id| published(&backend, id)).count();
    assert!(theirs >= 20 && acknowledged() - before >= theirs as f64, "{theirs} of 40 orders are in other partitions");
    let open = format!("SELECT in_flight IS NOT NULL FROM outbox_lease WHERE partition = {partition}");
    assert_eq!(backend.database.rows(&open)[0][0], "t", "the settlement still hangs");
    runtime.block_on(holder.batch_execute(&format!("SELECT pg_advisory_unlock({LOCK})"))).expect("the lock is free");
    service.drain();
    drop((holder, driver));
    assert_eq!(backend.events().len(), 2 + others.len(), "no event is published twice");
}
