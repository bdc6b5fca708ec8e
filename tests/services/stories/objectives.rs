//! The objectives of `docs/slo.md`, measured on the series that the recording rules use: under load, and while an instance is killed.
use std::time::Duration;

use kit::wait::{scaled, until};

use crate::cluster::fleet::Fleet;
use crate::harness::backend::Backend;
use crate::harness::http::Http;
use crate::harness::load::Load;
use crate::harness::metrics::{metric, metrics};
use crate::harness::process::Posthaste;

const WAIT_MAX: Duration = Duration::from_secs(60);
/// Orders under which an objective is judged.
const ORDERS: usize = 600;
/// Error budgets: the share of requests, and the share of events, that may fail.
const AVAILABILITY_BUDGET: f64 = 0.001;
const DELIVERY_BUDGET: f64 = 0.01;
/// Upper bounds of the buckets of `outbox_commit_to_ack_seconds` from the objective's second on.
const BOUNDS: [(u64, &str); 4] = [(1, "1"), (3, "2.5"), (5, "5"), (10, "10")];

/// Phases of one test, of which one must keep to the objectives: other work on the machine may delay some of them; only a slow service
/// delays all.
const PHASES_MAX: usize = 10;

/// The series of the objectives at one moment.
#[derive(Clone, Copy, Debug)]
struct Series {
    requests: f64,
    failed_requests: f64,
    acknowledged: f64,
    acknowledged_in_time: f64,
    parked: f64,
    oldest_waiting: f64,
}

impl Series {
    fn of(http: &Http) -> Self {
        let requests = |labels: &str| format!("http_server_requests_seconds_count{{{labels}}}");
        let failed = |status: &str| requests(&format!("status=\"{status}\",uri=\"/orders"));
        // On a machine that is slow by a known factor, an event may take so much longer.
        let limit = scaled(Duration::from_secs(1)).as_secs();
        let (_, bound) = BOUNDS.iter().find(|(seconds, _)| *seconds >= limit).unwrap_or(&BOUNDS[3]);
        let in_time = format!("outbox_commit_to_ack_seconds_bucket{{le=\"{bound}\"}}");
        let (requests, [error, unavailable]) = (requests("uri=\"/orders"), ["500", "503"].map(failed));
        // From one scrape: events that are acknowledged between two of them would count as late.
        let [requests, error, unavailable, acknowledged, acknowledged_in_time, parked, oldest_waiting] = metrics(
            http,
            [
                &requests,
                &error,
                &unavailable,
                "outbox_commit_to_ack_seconds_count",
                &in_time,
                "outbox_entries_failed_total",
                "outbox_oldest_pending_age_seconds",
            ],
        );
        let failed_requests = error + unavailable;
        Self { requests, failed_requests, acknowledged, acknowledged_in_time, parked, oldest_waiting }
    }

    /// Whether availability kept to its objective; else what was missed.
    fn available_since(&self, before: &Self) -> Result<(), String> {
        let requests = self.requests - before.requests;
        let failed = (self.failed_requests - before.failed_requests) / requests;
        assert!(requests >= ORDERS as f64, "{requests} requests: {self:?}");
        if failed <= AVAILABILITY_BUDGET { Ok(()) } else { Err(format!("{failed} of {requests} requests: {self:?}")) }
    }

    /// Whether delivery kept to its objective; else what was missed.
    fn delivered_since(&self, before: &Self) -> Result<(), String> {
        let events = self.acknowledged - before.acknowledged;
        let late = 1.0 - (self.acknowledged_in_time - before.acknowledged_in_time) / events;
        assert!(events >= ORDERS as f64, "{events} events: {self:?}");
        assert_eq!(self.parked, before.parked, "no event is parked");
        assert!(self.oldest_waiting < 60.0, "{self:?}");
        if late <= DELIVERY_BUDGET { Ok(()) } else { Err(format!("{late} of {events} events: {self:?}")) }
    }
}

/// Repeats a phase until one keeps to the objectives.
#[track_caller]
fn assert_one_holds(mut phase: impl FnMut() -> Result<(), String>) {
    let mut missed = Vec::new();
    while missed.len() < PHASES_MAX {
        match phase() {
            Ok(()) => return,
            Err(objective) => missed.push(objective),
        }
    }
    panic!("no phase keeps to the objectives: {missed:#?}");
}

fn await_acknowledged(load: &Load, more: usize) {
    let before = load.acknowledged();
    until("orders are acknowledged", WAIT_MAX, || (load.acknowledged() >= before + more).then_some(()));
}

#[test]
fn every_objective_holds_under_load() {
    let backend = Backend::exclusive();
    let service = Posthaste::start(&backend, &[]);

    assert_one_holds(|| {
        let load = Load::start(&service.http, 4);
        // The first events wait for their topics and partitions.
        await_acknowledged(&load, 100);
        until("the first events are sent", WAIT_MAX, || {
            (metric(&service.http, "outbox_entries_delivered_total") >= 100.0).then_some(())
        });
        let before = Series::of(&service.http);
        await_acknowledged(&load, ORDERS);
        load.finish();
        service.drain();
        let after = Series::of(&service.http);
        after.available_since(&before).and(after.delivered_since(&before))
    });
}

#[test]
fn availability_holds_while_another_instance_is_killed_under_load() {
    let backend = Backend::exclusive();
    let fleet = Fleet::start(&backend, 2, &[]);
    let survivor = fleet.endpoints().remove(0);

    assert_one_holds(|| {
        let load = Load::start(&survivor, 4);
        await_acknowledged(&load, 100);
        let before = Series::of(&survivor);
        for _ in 0..2 {
            fleet.kill(1);
            await_acknowledged(&load, ORDERS / 2);
            fleet.launch(1);
            fleet.await_ready(WAIT_MAX);
        }
        load.finish();
        Series::of(&survivor).available_since(&before)
    });

    fleet.assert_no_unexpected_exit();
}
