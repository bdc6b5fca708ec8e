//! Two regions with a database, topics and a cache each. The test mirrors their events, as MirrorMaker does, and replicates their orders.
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use domain::Hlc;
use kit::wait::until;
use ports::broker::consumer_groups::ConsumerRecord;
use serde_json::json;

use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::metrics::{await_metric, metric};
use crate::harness::process::Posthaste;

/// Longest wait for any condition here; no test judges the duration.
const WAIT_MAX: Duration = Duration::from_secs(30);
const REJECTED: &str = "region_conflict_rejected_count_total";

/// A region and its running service.
struct Region {
    name: &'static str,
    backend: Backend,
    service: Posthaste,
}

fn start(backend: &Backend, name: &str) -> Posthaste {
    Posthaste::start(backend, &[("POSTHASTE__REGION__ID", name)])
}

impl Region {
    fn new(backend: Backend, name: &'static str) -> Self {
        let service = start(&backend, name);
        Self { name, backend, service }
    }

    fn change(&self, order: &str, status: &str) {
        let http = &self.service.http;
        let version = self.version(order);
        let body = json!({ "status": status, "version": version });
        let answer = http.patch(&format!("/orders/{order}/status"), &http.admin(), &[], &body);
        assert_eq!(answer.status, 200, "{}", answer.text);
    }

    fn version(&self, order: &str) -> u64 {
        let rows = self.backend.database.rows(&format!("SELECT version FROM orders WHERE id = '{order}'"));
        rows[0][0].parse().expect("a number")
    }

    /// This region's event of this version of an order, as soon as it is published. The topic holds mirrored events, too.
    fn event(&self, order: &str, version: u64) -> ConsumerRecord {
        let sequence = (version + 1).to_string();
        until("the event is published", WAIT_MAX, || {
            let of_order = |event: &ConsumerRecord| {
                let is_own = event.record.text("x-region") == Some(self.name);
                is_own && &*event.record.key == order && event.record.text("x-sequence") == Some(sequence.as_str())
            };
            self.backend.read("order.events").into_iter().find(of_order)
        })
    }

    /// Mirrors an event of the other region, and waits until it is in the inbox.
    fn receive(&self, mut event: ConsumerRecord) {
        event.record.topic = self.backend.topic("order.events").into();
        let id = event.record.text("ce_id").expect("an id").to_owned();
        self.backend.repeat(&[event]);
        let consumed = format!("SELECT 1 FROM processed_events WHERE event_id = '{id}'");
        until("the inbox advanced", WAIT_MAX, || (!self.backend.database.rows(&consumed).is_empty()).then_some(()));
    }

    /// Replaces this region's copy of an order, as a replication of the database does.
    fn replicate(&self, from: &Region, order: &str) {
        let row = format!("SELECT row_to_json(o) FROM orders o WHERE id = '{order}'");
        let row = from.backend.database.rows(&row).remove(0).remove(0).replace('\'', "''");
        self.backend.database.rows(&format!(
            "INSERT INTO orders SELECT * FROM json_populate_record(NULL::orders, '{row}') ON CONFLICT DO NOTHING"
        ));
    }

    fn remote_stamp(&self, order: &str) -> Vec<String> {
        let stamp =
            format!("SELECT region, hlc_millis || '.' || hlc_counter FROM remote_stamp WHERE order_id = '{order}'");
        self.backend.database.rows(&stamp).pop().unwrap_or_default()
    }

    fn rejected(&self) -> f64 {
        metric(&self.service.http, REJECTED)
    }

    /// Waits until this number of events is counted: the consumer counts an event after it is in the inbox.
    #[track_caller]
    fn await_rejected(&self, count: f64) {
        await_metric(&self.service.http, REJECTED, WAIT_MAX, |rejected| rejected == count);
    }
}

fn stamp(event: &ConsumerRecord) -> Hlc {
    Hlc::parse(event.record.text("x-hlc").expect("a stamp")).expect("millis.counter")
}

/// The event as written by a region whose clock is this far ahead.
fn ahead(mut event: ConsumerRecord, seconds: i64) -> (ConsumerRecord, Hlc) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    let hlc = Hlc { millis: i64::try_from(now).expect("it fits") + seconds * 1_000, counter: 3 };
    event.record.headers.retain(|name| name != "x-hlc");
    event.record.headers.push("x-hlc", hlc.to_string().as_bytes());
    (event, hlc)
}

#[test]
fn the_later_change_of_two_regions_wins_and_received_stamps_advance_the_clock() {
    let backend = Backend::new();
    let mut us = Region::new(backend.another(), "us");
    let eu = Region::new(backend, "eu");
    let created = eu.service.http.post("/orders", &eu.service.http.user(), &[], &tea_order(1)).json();
    let order = created["id"].as_str().expect("an id");
    us.replicate(&eu, order);
    let placed = eu.event(order, 0);
    us.receive(placed.clone());
    assert_eq!(us.remote_stamp(order), ["eu".to_owned(), stamp(&placed).to_string()]);

    // Both regions change the order; the event of the first change arrives after the second change.
    eu.change(order, "PROCESSING");
    let late = eu.event(order, 1);
    us.change(order, "SHIPPED");
    us.receive(late);

    // It is older than the region's own change.
    us.await_rejected(1.0);
    assert_eq!(us.remote_stamp(order), ["eu".to_owned(), stamp(&placed).to_string()], "it has no effect");
    let shipped = us.event(order, 1);
    eu.receive(shipped.clone());
    assert_eq!(eu.rejected(), 0.0, "the other region accepts the later change");
    assert_eq!(eu.remote_stamp(order), ["us".to_owned(), stamp(&shipped).to_string()]);

    // The clock of eu is half a minute ahead. The process of us that consumed its event is killed before the next change.
    eu.change(order, "SHIPPED");
    let (event, half_a_minute) = ahead(eu.event(order, 2), 30);
    us.receive(event);
    assert_eq!(us.rejected(), 1.0, "within the bound");
    let Region { name, backend, service } = us;
    service.kill();
    us = Region { name, service: start(&backend, name), backend };
    us.change(order, "DELIVERED");
    let delivered = us.event(order, 2);
    assert!(stamp(&delivered) > half_a_minute, "{} follows {half_a_minute}", stamp(&delivered));
    eu.receive(delivered);
    assert_eq!(eu.rejected(), 0.0, "the change that follows wins everywhere");

    // A clock that is an hour ahead advances nothing.
    eu.change(order, "DELIVERED");
    let (event, an_hour) = ahead(eu.event(order, 3), 3_600);
    us.receive(event);
    // Counted from the restart.
    us.await_rejected(1.0);
    let next = us.service.http.post("/orders", &us.service.http.user(), &[], &tea_order(1)).json();
    let next = us.event(next["id"].as_str().expect("an id"), 0);
    assert!(stamp(&next) < an_hour, "{}", stamp(&next));
}

#[test]
fn a_stamp_beyond_the_configured_bound_of_drift_is_rejected() {
    let backend = Backend::new();
    let other = backend.another();
    let settings = [("POSTHASTE__REGION__ID", "us"), ("POSTHASTE__REGION__DRIFT_MAX", "1s")];
    let us = Region { name: "us", service: Posthaste::start(&other, &settings), backend: other };
    let eu = Region::new(backend, "eu");
    let created = eu.service.http.post("/orders", &eu.service.http.user(), &[], &tea_order(1)).json();
    let order = created["id"].as_str().expect("an id");

    // Within the default bound, and beyond this one also when the event arrives late.
    us.receive(ahead(eu.event(order, 0), 55).0);

    us.await_rejected(1.0);
    assert_eq!(us.remote_stamp(order), Vec::<String>::new());
    let next = us.service.http.post("/orders", &us.service.http.user(), &[], &tea_order(1)).json();
    let next = us.event(next["id"].as_str().expect("an id"), 0);
    assert!(stamp(&next) < ahead(next.clone(), 25).1, "the clock did not advance");
}
