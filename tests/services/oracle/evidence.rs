//! Collects the evidence of a run: waits until everything is consumed, then reads HTTP, Kafka and PostgreSQL.
use std::time::{Duration, Instant};

use kit::wait::{until, until_ok};

use crate::harness::backend::Backend;
use crate::harness::http::Http;
use crate::oracle::checks::Evidence;
use crate::oracle::client_orders::{ClientOrder, OrderView, read_back};
use crate::oracle::clients::{CLIENTS, name};
use crate::oracle::event_clients::ClientBatch;
use crate::oracle::sql_writers::changes;

/// Longest until the whole backlog is published and consumed.
const DRAIN_MAX: Duration = Duration::from_secs(120);

/// Reads the store itself: waits until no row is waiting and every sent event is consumed, and asserts that no row is parked.
pub fn await_drained(backend: &Backend) {
    until_ok(Instant::now(), DRAIN_MAX, || {
        let rows = backend.database.rows("SELECT row_to_json(outbox), status FROM outbox ORDER BY id LIMIT 20");
        assert!(rows.iter().all(|row| row[1].as_str() < "3"), "parked: {rows:?}");
        let Some(first) = rows.first() else { return Ok(()) };
        let leases = backend.database.rows(
            "SELECT row_to_json(outbox_lease) FROM outbox_lease WHERE partition IN (SELECT partition FROM outbox)",
        );
        Err(format!("at least {} rows to be sent, first {}, from {leases:?}", rows.len(), first[0]))
    });
    until("every event is consumed", DRAIN_MAX, || {
        // The events of other services have no consumer.
        let rows = backend.database.rows(&format!(
            "SELECT (SELECT count(*) FROM processed_events), (SELECT count(*) FROM outbox_rows WHERE topic = '{}')",
            backend.topic("order.events")
        ));
        (rows[0][0] == rows[0][1]).then_some(())
    });
}

/// Reads every order from HTTP, and each one again from one of the instances, the event log and the inbox.
pub fn collect(backend: &Backend, endpoints: &[Http], orders: Vec<ClientOrder>) -> Evidence {
    let tokens = (0..CLIENTS).map(|client| endpoints[0].token(&name(client), "USER"));
    let mut evidence = Evidence { orders, ..Evidence::default() };
    for token in tokens {
        evidence.shown.extend(read_back(&endpoints[0], &token));
    }
    let admin = endpoints[0].admin();
    for ((id, shown), endpoint) in evidence.shown.iter().zip(endpoints.iter().cycle()) {
        // The cache of another instance may be 5 s old.
        until(&format!("{} shows {id} as {shown:?}", endpoint.base()), Duration::from_secs(6), || {
            let response = endpoint.get(&format!("/orders/{id}"), Some(&admin));
            (response.status == 200 && OrderView::of(&response.json()) == *shown).then_some(())
        });
    }
    evidence.log = backend.read("order.events");
    let consumed =
        backend.database.rows("SELECT event_id FROM processed_events WHERE consumer_group = 'order-processing-group'");
    evidence.consumed = consumed.into_iter().map(|mut row| row.remove(0)).collect();
    evidence
}

/// Adds what clients and writers of other services know, and their topic.
pub fn collect_external(backend: &Backend, batches: Vec<ClientBatch>, evidence: &mut Evidence) {
    evidence.batches = batches;
    evidence.changes = changes(backend);
    evidence.events = backend.read("customers");
}
