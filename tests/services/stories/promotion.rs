//! PendingPromoter on several instances that promote the same pending orders at once.
use std::collections::BTreeMap;
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::cluster::fleet::Fleet;
use crate::harness::backend::Backend;
use crate::harness::event_log;
use crate::harness::http::{Http, tea_order};
use crate::harness::metrics::metric;

/// Longest wait for any condition here; no test judges the duration.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Number of pending orders of a round: many pages.
const ORDERS: usize = 240;
/// Rounds until several instances share the promotions of one.
const ROUNDS_MAX: usize = 5;

/// Pending orders, created by several clients.
fn place_pending_orders(endpoints: &[Http]) -> BTreeMap<String, u64> {
    std::thread::scope(|scope| {
        let client = |endpoint: &Http| {
            let user = endpoint.user();
            let place_order = |_| {
                endpoint.post("/orders", &user, &[], &tea_order(1)).json()["id"].as_str().expect("an id").to_owned()
            };
            (0..ORDERS / endpoints.len()).map(place_order).collect::<Vec<_>>()
        };
        let clients: Vec<_> = endpoints.iter().map(|endpoint| scope.spawn(move || client(endpoint))).collect();
        let ids = clients.into_iter().flat_map(|client| client.join().expect("every order is acknowledged"));
        ids.map(|id| (id, 2)).collect()
    })
}

/// Pauses or resumes the promoters of all instances, at the same time.
fn on_all(endpoints: &[Http], action: &str) {
    let path = format!("/admin/actors/pending-promoter/{action}");
    let request = |endpoint: &Http| assert_eq!(endpoint.post(&path, &endpoint.admin(), &[], &json!({})).status, 202);
    std::thread::scope(|scope| endpoints.iter().for_each(|endpoint| drop(scope.spawn(|| request(endpoint)))));
}

#[test]
fn three_processes_that_promote_the_same_orders_at_once_change_each_once() {
    let backend = Backend::new();
    let settings = [("POSTHASTE__PROMOTION__INTERVAL", "200ms"), ("POSTHASTE__PROMOTION__BATCH", "20")];
    let fleet = Fleet::start(&backend, 3, &settings);
    let endpoints = fleet.endpoints();
    let count = |status: &str| {
        let statement = format!("SELECT count(*) FROM orders WHERE status = '{status}' AND version = 1");
        backend.database.rows(&statement)[0][0].parse::<usize>().expect("a number")
    };
    let promoted = |member: usize| {
        let events = fleet.with_process(member, |process| process.logged("orders_promoted"));
        events.iter().map(|line| line["promoted"].as_u64().expect("a number")).sum::<u64>()
    };
    let mut placed = BTreeMap::new();

    // The first one to be resumed may promote all orders alone: then there are new ones.
    let is_shared = (0..ROUNDS_MAX).any(|_| {
        on_all(&endpoints, "pause");
        let before = placed.len();
        placed.extend(place_pending_orders(&endpoints));
        assert_eq!(count("PROCESSING"), before, "the new ones are pending");

        on_all(&endpoints, "resume");
        until("all are promoted", WAIT_MAX, || (count("PROCESSING") == placed.len()).then_some(()));

        until("each promoter has logged its promotions", WAIT_MAX, || {
            ((0..3).map(promoted).sum::<u64>() == placed.len() as u64).then_some(())
        });
        (0..3).filter(|member| promoted(*member) > 0).count() > 1
    });

    assert!(is_shared, "one instance promoted all orders");
    for member in 0..3 {
        // `arbiter_stalled` reports a busy machine, not a failed promotion.
        let is_error = |line: &Value| line["level"] == "ERROR" && line["event"] != "arbiter_stalled";
        let failed = |line: &Value| line["event"] == "promotion_stopped" || line["event"] == "promotion_skipped";
        // A store that a busy machine slows down stops a run, and the next one continues.
        let is_slow = |line: &Value| {
            let error = line["error"].as_str().unwrap_or_default();
            ["not reachable", "not available", "exceeded its deadline"].iter().any(|text| error.contains(text))
        };
        let unexpected = |line: &Value| (is_error(line) || failed(line)) && !is_slow(line);
        let lines = fleet.with_process(member, |process| process.log_lines(unexpected));
        assert!(lines.is_empty(), "an instance that loses the race logs nothing: {lines:?}");
    }
    let written = endpoints.iter().map(|endpoint| metric(endpoint, "outbox_entries_written_total")).sum::<f64>();
    assert_eq!(written, 2.0 * placed.len() as f64);
    until("every event is sent", WAIT_MAX, || {
        (backend.database.rows("SELECT count(*) FROM outbox")[0][0] == "0").then_some(())
    });
    event_log::assert_complete(&backend, &placed);
    let events = event_log::sequences(&backend.events());
    assert!(events.values().all(|seen| *seen == [1, 2]), "one event for its create and one for its promotion");
    fleet.assert_no_unexpected_exit();
}
