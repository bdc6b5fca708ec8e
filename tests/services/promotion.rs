//! PendingPromoter on shared ground: several processes walk along the same waiting orders at once.
use std::collections::BTreeMap;
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::check;
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::http::{Http, tea};
use crate::meter::metric;

/// Longest that anything here may take; what is judged is that it comes.
const SOON: Duration = Duration::from_secs(30);
/// Waiting orders: many pages.
const ORDERS: usize = 240;

/// Orders that wait, placed by several clients.
fn place(doors: &[Http]) -> BTreeMap<String, u64> {
    std::thread::scope(|scope| {
        let client = |door: &Http| {
            let user = door.user();
            let place = |_| door.post("/orders", &user, &[], &tea(1)).json()["id"].as_str().expect("an id").to_owned();
            (0..ORDERS / doors.len()).map(place).collect::<Vec<_>>()
        };
        let clients: Vec<_> = doors.iter().map(|door| scope.spawn(move || client(door))).collect();
        let ids = clients.into_iter().flat_map(|client| client.join().expect("every order is answered"));
        ids.map(|id| (id, 2)).collect()
    })
}

#[test]
fn three_processes_that_promote_the_same_orders_at_once_change_each_once() {
    let ground = Ground::new();
    let settings = [("POSTHASTE__PROMOTION__INTERVAL", "200ms"), ("POSTHASTE__PROMOTION__BATCH", "20")];
    let fleet = Fleet::start(&ground, 3, &settings);
    let doors = fleet.doors();
    let all = |action: &str| {
        for door in &doors {
            let path = format!("/admin/actors/pending-promoter/{action}");
            assert_eq!(door.post(&path, &door.admin(), &[], &json!({})).status, 202);
        }
    };
    all("pause");
    let placed = place(&doors);
    let count = |status: &str| {
        let statement = format!("SELECT count(*) FROM orders WHERE status = '{status}' AND version = 1");
        ground.database.rows(&statement)[0][0].parse::<usize>().expect("a number")
    };
    assert_eq!(count("PROCESSING"), 0, "all wait");

    all("resume");
    until("all are promoted", SOON, || (count("PROCESSING") == ORDERS).then_some(()));

    let promoted = |member: usize| {
        let told = fleet.with(member, |process| process.logged("orders_promoted"));
        told.iter().map(|line| line["promoted"].as_u64().expect("a number")).sum::<u64>()
    };
    until("each promoter has told what it did", SOON, || {
        ((0..3).map(promoted).sum::<u64>() == ORDERS as u64).then_some(())
    });
    let shares: Vec<u64> = (0..3).map(promoted).collect();
    assert!(shares.iter().filter(|share| **share > 0).count() > 1, "they met: {shares:?}");
    for member in 0..3 {
        // A machine that gives a thread no time for a second says nothing about promotion.
        let errs = |line: &Value| line["level"] == "ERROR" && line["event"] != "arbiter_stalled";
        let worse = |line: &Value| errs(line) || line["event"] == "promotion_stopped";
        let said = fleet.with(member, |process| process.lines(worse));
        assert!(said.is_empty(), "whoever came second says nothing: {said:?}");
    }
    let written = doors.iter().map(|door| metric(door, "outbox_entries_written_total")).sum::<f64>();
    assert_eq!(written, 2.0 * ORDERS as f64);
    until("everything has left", SOON, || {
        (ground.database.rows("SELECT count(*) FROM outbox")[0][0] == "0").then_some(())
    });
    check::laws(&ground, &placed);
    let events = check::sequences(&ground.events());
    assert!(events.values().all(|seen| *seen == [1, 2]), "one event for its create and one for its promotion");
    fleet.assert_no_surprises();
}
