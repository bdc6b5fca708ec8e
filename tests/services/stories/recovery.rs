//! Outages of PostgreSQL, Kafka and Redis with production timeouts: every instance accepts writes and sends events again within 30 s, and
//! the outage loses nothing.
mod interrupted_start;
mod lost_settlement;

use std::time::{Duration, Instant};

use kit::wait::{pause, until, until_since};

use crate::cluster::fleet::Fleet;
use crate::harness::backend::Backend;
use crate::harness::event_log;
use crate::harness::http::{Http, tea_order};
use crate::harness::load::Load;
use crate::harness::metrics::metric;
use crate::harness::service_control::Service;

/// Longest recovery, as the contract says.
const RECOVERY_MAX: Duration = Duration::from_secs(30);
/// The default open time of the breaker.
const BREAKER: (&str, &str) = ("POSTHASTE__BROKER__BREAKER__OPEN", "20s");
/// Most attempts of a row when the breaker opens: each failure counts as one.
const ATTEMPTS_MAX: u64 = 5;
/// Duration of an outage: longer than any retry inside a client library.
const OUTAGE: Duration = Duration::from_secs(8);

#[test]
fn after_an_outage_of_kafka_delivery_resumes_and_no_attempt_was_used_up() {
    let backend = Backend::exclusive();
    let fleet = Fleet::start(&backend, 2, &[BREAKER]);
    let load = Load::start(&fleet.endpoints_with_short_timeout()[0], 4);
    until("load runs", RECOVERY_MAX, || (load.acknowledged() > 50).then_some(()));
    // The breaker counts sends: it stays closed on an instance that has none, or still reads the watermarks of its partitions.
    until("each instance publishes", RECOVERY_MAX, || {
        fleet.endpoints().iter().all(|endpoint| metric(endpoint, "outbox_entries_delivered_total") > 0.0).then_some(())
    });

    backend.services().kill(Service::Kafka);
    let acknowledged = load.acknowledged();
    pause(OUTAGE);
    until("orders are accepted without a broker", RECOVERY_MAX, || (load.acknowledged() > acknowledged).then_some(()));
    until("every breaker is open", RECOVERY_MAX, || {
        fleet.endpoints().iter().all(|endpoint| metric(endpoint, "kafka_breaker_state") > 0.0).then_some(())
    });
    let before = attempts(&backend);
    pause(OUTAGE);
    let after = attempts(&backend);
    assert!(after <= before + 1 && after <= ATTEMPTS_MAX, "attempts went from {before} to {after} during the outage");
    backend.services().start(Service::Kafka);
    let started = Instant::now();

    await_recovery(&backend, &fleet, started);
    finish(&backend, &fleet, load);
}

#[test]
fn after_an_outage_of_postgresql_every_instance_accepts_writes_again() {
    let backend = Backend::exclusive();
    let fleet = Fleet::start(&backend, 2, &[BREAKER]);
    let endpoints = fleet.endpoints();
    let load = Load::start(&fleet.endpoints_with_short_timeout()[0], 4);
    until("load runs", RECOVERY_MAX, || (load.acknowledged() > 50).then_some(()));

    backend.services().kill(Service::Postgres);
    until("/readyz responds with 503", RECOVERY_MAX, || {
        endpoints.iter().all(|endpoint| endpoint.get("/readyz", None).status == 503).then_some(())
    });
    pause(OUTAGE);
    assert!(
        endpoints.iter().all(|endpoint| endpoint.get("/livez", None).status == 200),
        "an outage is not a reason to restart them"
    );
    backend.services().start(Service::Postgres);
    let started = Instant::now();

    await_recovery(&backend, &fleet, started);
    finish(&backend, &fleet, load);
}

#[test]
fn an_outage_of_redis_loses_no_order_and_leaves_no_stale_read() {
    let backend = Backend::exclusive();
    // Orders are cached once a request takes less time than the cache has existed.
    let fleet = Fleet::start(&backend, 2, &[BREAKER, ("POSTHASTE__HTTP__REQUEST_TIMEOUT", "10s")]);
    let endpoints = fleet.endpoints();
    let (user, admin) = (endpoints[0].user(), endpoints[0].admin());
    let order = endpoints[0].post("/orders", &user, &[], &tea_order(1)).json();
    let path = format!("/orders/{}", order["id"].as_str().expect("an id"));
    for endpoint in &endpoints {
        assert_eq!(endpoint.get(&path, Some(&user)).json()["version"], 0, "it is in the cache now");
    }
    let load = Load::start(&fleet.endpoints_with_short_timeout()[0], 4);
    until("load runs", RECOVERY_MAX, || (load.acknowledged() > 50).then_some(()));

    backend.services().kill(Service::Redis);
    let acknowledged = load.acknowledged();
    let change = serde_json::json!({"status": "SHIPPED", "version": 0});
    assert_eq!(
        endpoints[1].patch(&format!("{path}/status"), &admin, &[], &change).status,
        200,
        "also without the cache"
    );
    pause(OUTAGE);
    until("orders are accepted without the cache", RECOVERY_MAX, || {
        (load.acknowledged() > acknowledged + 20).then_some(())
    });
    backend.services().start(Service::Redis);
    let started = Instant::now();

    assert_eq!(
        endpoints[1].get(&path, Some(&user)).json()["version"],
        1,
        "the instance that acknowledged a change shows it at once"
    );
    until("the other instance shows it", Duration::from_secs(5), || {
        (endpoints[0].get(&path, Some(&user)).json()["version"] == 1).then_some(())
    });
    await_recovery(&backend, &fleet, started);
    finish(&backend, &fleet, load);
}

/// Waits until every instance is ready, accepts a write, and its event is sent.
fn await_recovery(backend: &Backend, fleet: &Fleet<'_>, started: Instant) {
    let ready = fleet.await_ready_since(started, RECOVERY_MAX);
    let place_order = |endpoint: &Http| {
        let response =
            endpoint.send_once("POST", "/orders", Some(&endpoint.user()), &[], Some(tea_order(1).to_string()));
        response
            .ok()
            .filter(|response| response.status == 201)
            .map(|response| response.json()["id"].as_str().expect("an id").to_owned())
    };
    let ids: Vec<String> = fleet
        .endpoints_with_short_timeout()
        .iter()
        .map(|endpoint| until_since(started, "a write is accepted", RECOVERY_MAX, || place_order(endpoint)))
        .collect();
    let writes = started.elapsed();
    for id in ids {
        until_since(started, "its event is sent", RECOVERY_MAX, || {
            let statement = format!("SELECT status FROM outbox_rows WHERE key = '{id}'");
            (backend.database.rows(&statement) == [["SENT"]]).then_some(())
        });
    }
    eprintln!("ready {ready:?}, writes {writes:?}, events {:?} after the restart", started.elapsed());
}

fn finish(backend: &Backend, fleet: &Fleet<'_>, load: Load) {
    let acknowledged = load.finish();
    until("every event is sent", RECOVERY_MAX, || {
        let rows = backend.database.rows("SELECT id, status, reason FROM outbox LIMIT 20");
        assert!(rows.iter().all(|row| row[1].as_str() < "3"), "parked: {rows:?}");
        rows.is_empty().then_some(())
    });
    event_log::assert_complete(backend, &acknowledged);
    fleet.assert_no_unexpected_exit();
}

/// Most attempts of any waiting row.
fn attempts(backend: &Backend) -> u64 {
    backend.database.rows("SELECT coalesce(max(attempts), 0) FROM outbox")[0][0].parse().expect("a number")
}
