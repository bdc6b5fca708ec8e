//! Rows of the failure matrix with an outage of PostgreSQL, Kafka or Redis. Each test has the services for itself.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::actors;
use crate::harness::backend::Backend;
use crate::harness::event_log;
use crate::harness::http::tea_order;
use crate::harness::load::Load;
use crate::harness::metrics::{await_metric, metric, metrics};
use crate::harness::process::{Posthaste, setting};
use crate::harness::service_control::Service;
use crate::stories::rate_limit::LOW_LIMIT;

/// Longest wait for any condition here; no test judges the duration.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Outages of Kafka until the first attempt after one succeeds.
const OUTAGES_MAX: usize = 8;

#[test]
fn while_kafka_is_down_the_backlog_grows_without_attempts_and_then_drains() {
    let backend = Backend::exclusive();
    let service = Posthaste::start(&backend, &[("POSTHASTE__BROKER__BREAKER__OPEN", "500ms")]);
    let user = service.http.user();
    let place_order = || service.http.post("/orders", &user, &[], &tea_order(1));
    let mut acknowledged = vec![place_order().json()["id"].as_str().expect("an id").to_owned()];
    service.drain();
    await_metric(&service.http, "kafka_breaker_state", WAIT_MAX, |state| state == 0.0);
    let opened = || service.logged("breaker_opened").len();
    let attempts = || backend.database.rows("SELECT sum(attempts), max(attempts) FROM outbox").remove(0);

    backend.services().kill(Service::Kafka);
    until("the breaker opens", WAIT_MAX, || {
        let created = place_order();
        assert_eq!(created.status, 201, "orders are accepted");
        acknowledged.push(created.json()["id"].as_str().expect("an id").to_owned());
        (opened() > 0).then_some(())
    });
    // A batch without a reply stays IN_FLIGHT until its watermark can be read; this can cost each row one attempt.
    let stable = (0..10).any(|_| {
        let (before, probes) = (attempts(), opened() + 2);
        until("two probes have failed", WAIT_MAX, || {
            let state = metric(&service.http, "kafka_breaker_state");
            assert!(state > 0.0, "open, or half open for one probe");
            (opened() >= probes).then_some(())
        });
        attempts() == before
    });
    assert!(stable, "probes use up attempts: {:?}", attempts());
    assert!(attempts()[1].parse::<u64>().expect("a number") <= 5, "{:?}", attempts());
    let unsent = || {
        let states = ["PENDING", "IN_FLIGHT", "FAILED"].map(|state| format!("outbox_rows{{status=\"{state}\"}}"));
        states.iter().map(|name| metric(&service.http, name)).sum::<f64>()
    };
    until("the metrics show the whole backlog", WAIT_MAX, || {
        (unsent() == (acknowledged.len() - 1) as f64).then_some(())
    });
    await_metric(&service.http, "backpressure_outbox_backlog", WAIT_MAX, |rows| rows > 0.0);

    backend.services().start(Service::Kafka);
    until("it drains", WAIT_MAX, || (unsent() == 0.0).then_some(()));
    await_metric(&service.http, "kafka_breaker_state", WAIT_MAX, |state| state == 0.0);

    service.drain();
    assert!(service.rows(&["PARKED"]).is_empty());
    event_log::assert_complete(&backend, &acknowledged.into_iter().map(|id| (id, 1)).collect());
}

/// Neither the breaker's pause nor a health probe ends within the test: only what the clients receive shows that Kafka is back.
#[test]
fn events_leave_once_a_client_sees_that_kafka_is_back() {
    let backend = Backend::exclusive();
    let hour = ["POSTHASTE__BROKER__BREAKER__OPEN", "POSTHASTE__FAILOVER__PROBE_INTERVAL"].map(|key| (key, "1h"));
    let service = Posthaste::start(&backend, &[&hour[..], &[("POSTHASTE__OUTBOX__LEASE", "30s")]].concat());
    let user = service.http.user();
    let place_order = || {
        let created = service.http.post("/orders", &user, &[], &tea_order(1));
        created.json()["id"].as_str().expect("an id").to_owned()
    };
    let mut acknowledged = vec![place_order()];
    service.drain();

    let logged = |event: &str| service.logged(event).len();
    // A broker that answers may still need a moment until it accepts a transaction. If the first attempt comes too early, the breaker is open
    // for an hour again.
    let is_seen = (0..OUTAGES_MAX).any(|_| {
        let opened = logged("breaker_opened");
        backend.services().kill(Service::Kafka);
        until("the breaker opens", WAIT_MAX, || {
            acknowledged.push(place_order());
            (logged("breaker_opened") > opened).then_some(())
        });
        let opened = logged("breaker_opened");
        backend.services().start(Service::Kafka);
        until("the breaker closes, or opens again", WAIT_MAX, || {
            let closed = logged("breaker_closed") > 0;
            (closed || logged("breaker_opened") > opened).then_some(closed)
        })
    });
    assert!(is_seen, "no outage ended with what the clients received");

    service.drain();
    event_log::assert_complete(&backend, &acknowledged.into_iter().map(|id| (id, 1)).collect());
}

#[test]
fn a_relay_actor_that_dies_while_kafka_hangs_restarts_and_no_row_counts_a_death() {
    let backend = Backend::exclusive();
    let service = Posthaste::start(&backend, &[]);
    let load = Load::start(&service.http, 4);
    until("events are sent", WAIT_MAX, || (service.rows(&["SENT"]).len() > 20).then_some(()));

    backend.services().pause(Service::Kafka);
    for path in ["/relay/retry-handler", "/relay/outbox-publisher"] {
        until("a worker has a batch in flight", WAIT_MAX, || {
            let rows = service.http.get("/admin/actors", Some(&service.http.admin())).json();
            let actors = rows["actors"].as_array().expect("actors").clone();
            let is_busy = |actor: &Value| actor["actor"] == "PartitionWorker" && actor["mailboxDepth"] == 1;
            actors.iter().any(is_busy).then_some(())
        });
        actors::kill_and_await_restart(&service, path, "panic");
    }
    backend.services().resume(Service::Kafka);

    let acknowledged = load.finish();
    service.drain();
    let cut = service.logged("shutdown_timeout");
    assert!(
        cut.iter().any(|e| e["actor"] == "PartitionWorker"),
        "the supervisor did not wait for the hung worker: {cut:?}"
    );
    let died = "SELECT count(*) FROM outbox_archive WHERE 0 < ANY (deaths)";
    assert_eq!(
        backend.database.rows(died).remove(0),
        ["0"],
        "a worker that its supervisor stops adds no death to its rows"
    );
    event_log::assert_complete(&backend, &acknowledged);
}

#[test]
fn while_redis_is_down_reads_come_from_the_store() {
    let backend = Backend::exclusive();
    let request_max = setting(Duration::from_secs(5));
    let service = Posthaste::start(&backend, &[("POSTHASTE__HTTP__REQUEST_TIMEOUT", &request_max)]);
    let (user, admin) = (service.http.user(), service.http.admin());
    let order = service.http.post("/orders", &user, &[], &tea_order(1)).json();
    let path = format!("/orders/{}", order["id"].as_str().expect("an id"));
    let read = || service.http.get(&path, Some(&user));
    // Orders are cached once the cache epoch is older than the longest request.
    until("the cache responds", WAIT_MAX, || {
        assert_eq!(read().status, 200);
        (metric(&service.http, "cache_hit_count_total") > 0.0).then_some(())
    });
    let failures = "redis_connection_failures_total{component=\"cache\"}";
    let names = ["cache_error_count_total", "cache_degraded_mode_count_total", failures];
    let before = metrics(&service.http, names);

    backend.services().kill(Service::Redis);
    let change = json!({"status": "SHIPPED", "version": 0});
    assert_eq!(service.http.patch(&format!("{path}/status"), &admin, &[], &change).status, 200);
    let (hits, mut reads) = (metric(&service.http, "cache_hit_count_total"), 0);
    until("the cache is bypassed", WAIT_MAX, || {
        let response = read();
        assert_eq!((response.status, &response.json()["version"]), (200, &json!(1)), "the read is fresh");
        reads += 1;
        let now = metrics(&service.http, names);
        (reads >= 10 && now.iter().zip(before).all(|(now, before)| *now > before)).then_some(())
    });

    assert_eq!(metric(&service.http, "cache_hit_count_total"), hits, "no read comes from the cache");
    backend.services().start(Service::Redis);
    until("Redis is back", WAIT_MAX, || (!service.logged("redis_recovered").is_empty()).then_some(()));
    assert_eq!(read().json()["version"], 1);
}

#[test]
fn while_redis_is_down_the_rate_limit_fails_open() {
    let backend = Backend::exclusive();
    let service = Posthaste::start(&backend, &LOW_LIMIT);
    let user = service.http.user();
    let ask = || service.http.get("/orders", Some(&user)).status;
    let (open, failures) =
        ("rate_limit_fail_open_count_total", "redis_connection_failures_total{component=\"rate_limit\"}");
    until("it limits", WAIT_MAX, || (ask() == 429).then_some(()));
    let [opened, failed] = metrics(&service.http, [open, failures]);

    backend.services().kill(Service::Redis);
    let unlimited: Vec<u16> = (0..20).map(|_| ask()).collect();

    assert_eq!(unlimited, [200; 20], "the limit fails open");
    assert_eq!(metric(&service.http, open) - opened, 20.0);
    assert!(metric(&service.http, failures) - failed >= 20.0);
    backend.services().start(Service::Redis);
    until("it limits again", WAIT_MAX, || (ask() == 429).then_some(()));
}

#[test]
fn a_long_outage_of_a_dependency_makes_the_region_passive_until_it_is_back() {
    let backend = Backend::exclusive();
    let settings = [
        ("POSTHASTE__FAILOVER__GATES", "db,redis,broker"),
        ("POSTHASTE__FAILOVER__PROBE_INTERVAL", "200ms"),
        // Some seconds of a slow disk or a slow Redis are no outage.
        ("POSTHASTE__FAILOVER__PROBE_TIMEOUT", "5s"),
        ("POSTHASTE__FAILOVER__REDIS_LATENCY_MAX", "5s"),
        ("POSTHASTE__FAILOVER__UNHEALTHY_ROUNDS", "8"),
    ];
    let service = Posthaste::start(&backend, &settings);
    let user = service.http.user();
    let place_order = || service.http.post("/orders", &user, &[], &tea_order(1));
    let readiness = || service.http.get("/actuator/health/readiness", None);
    let order = place_order().json();
    let events = "failover_events_count_total";
    assert_eq!((metric(&service.http, events), readiness().status), (0.0, 200));

    backend.services().kill(Service::Redis);
    await_metric(&service.http, events, WAIT_MAX, |events| events == 1.0);

    let refused = place_order();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")), "{}", refused.text);
    assert!(refused.json()["detail"].as_str().expect("text").contains("passive"), "{}", refused.text);
    assert_eq!((readiness().status, &readiness().json()["status"]), (503, &json!("OUT_OF_SERVICE")));
    let path = format!("/orders/{}", order["id"].as_str().expect("an id"));
    assert_eq!(service.http.get(&path, Some(&user)).status, 200, "reads continue");
    assert!(metric(&service.http, "region_health_unhealthy_count_total") >= 3.0);
    let failures = "region_health_dependency_failure_count_total{dependency=\"redis\"}";
    assert!(metric(&service.http, failures) >= 4.0);
    assert_eq!(backend.database.rows("SELECT count(*) FROM orders")[0][0], "1", "a refused order is not stored");
    let logged =
        until("it is logged", WAIT_MAX, || Some(service.logged("region_passive").len()).filter(|lines| *lines > 0));
    assert_eq!(logged, 1);

    backend.services().start(Service::Redis);
    await_metric(&service.http, events, WAIT_MAX, |events| events == 2.0);

    assert_eq!((place_order().status, readiness().status), (201, 200));
    let logged =
        until("it is logged", WAIT_MAX, || Some(service.logged("region_active").len()).filter(|lines| *lines > 0));
    assert_eq!(logged, 1);
}
