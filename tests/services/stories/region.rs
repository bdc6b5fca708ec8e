//! The region gate with a stalled connection to Redis: a flapping dependency changes nothing, and a passive region promotes no order.
mod two_regions;

use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::http::{Http, tea_order};
use crate::harness::metrics::{await_metric, metric};
use crate::harness::process::Posthaste;
use crate::harness::proxy::Proxy;

/// Longest wait for any condition here; no test judges the duration.
const WAIT_MAX: Duration = Duration::from_secs(30);
const EVENTS: &str = "failover_events_count_total";
const FAILURES: &str = "region_health_dependency_failure_count_total{dependency=\"redis\"}";
/// Probe rounds that are long compared with stalling a proxy, and short enough for a test. A disk or a Redis that is slow for some seconds
/// makes no region passive.
const ROUNDS: [(&str, &str); 5] = [
    ("POSTHASTE__FAILOVER__GATES", "db,redis"),
    ("POSTHASTE__FAILOVER__PROBE_INTERVAL", "500ms"),
    ("POSTHASTE__FAILOVER__PROBE_TIMEOUT", "1s"),
    ("POSTHASTE__FAILOVER__REDIS_LATENCY_MAX", "5s"),
    ("POSTHASTE__FAILOVER__UNHEALTHY_ROUNDS", "8"),
];

/// Failures that would make the region passive, if those before a success counted too.
const FLAPS: u32 = 10;

/// A service with a proxy between it and Redis.
fn start(backend: &Backend, more: &[(&str, &str)]) -> (Posthaste, Proxy) {
    let proxy = Proxy::to(&backend.addresses().1);
    let url = backend.redis_url(&proxy.address());
    let settings = [&ROUNDS[..], &[("POSTHASTE__REDIS__URL", url.as_str())], more].concat();
    (Posthaste::start(backend, &settings), proxy)
}

/// The error of the last probe of Redis; null when it succeeded.
fn probe_error(http: &Http) -> Value {
    http.get("/actuator/health/redis", Some(&http.admin())).json()["details"]["error"].clone()
}

#[test]
fn a_dependency_that_flaps_does_not_flap_the_region() {
    let backend = Backend::new();
    let (service, proxy) = start(&backend, &[]);
    let place_order = || service.http.post("/orders", &service.http.user(), &[], &tea_order(1)).status;

    for flap in 1..=FLAPS {
        let failures = metric(&service.http, FAILURES);
        proxy.stall();
        await_metric(&service.http, FAILURES, WAIT_MAX, |now| now > failures);
        proxy.resume();
        until("a probe succeeds", WAIT_MAX, || probe_error(&service.http).is_null().then_some(()));
        assert_eq!(place_order(), 201, "flap {flap}");
    }

    assert!(metric(&service.http, FAILURES) >= f64::from(FLAPS), "each is counted");
    assert_eq!(metric(&service.http, EVENTS), 0.0, "and none changed the region mode");
    assert!(service.logged("region_passive").is_empty());
    proxy.stall();
    await_metric(&service.http, EVENTS, WAIT_MAX, |events| events == 1.0);
    assert_eq!(place_order(), 503);
    proxy.resume();
    await_metric(&service.http, EVENTS, WAIT_MAX, |events| events == 2.0);
    assert_eq!(place_order(), 201);
}

#[test]
fn a_passive_region_promotes_no_order_until_it_is_active_again() {
    let backend = Backend::new();
    let (service, proxy) = start(&backend, &[("POSTHASTE__PROMOTION__INTERVAL", "200ms")]);
    let (user, admin) = (service.http.user(), service.http.admin());
    let promoter = |action: &str| {
        let path = format!("/admin/actors/pending-promoter/{action}");
        assert_eq!(service.http.post(&path, &admin, &[], &json!({})).status, 202);
    };
    promoter("pause");
    let created = service.http.post("/orders", &user, &[], &tea_order(1)).json();
    let state = || backend.database.rows("SELECT status, version FROM orders").remove(0);
    proxy.stall();
    await_metric(&service.http, EVENTS, WAIT_MAX, |events| events == 1.0);

    promoter("resume");
    until("the promoter tried", WAIT_MAX, || (!service.logged("promotion_held_back").is_empty()).then_some(()));
    assert_eq!(state(), ["PENDING", "0"]);
    proxy.resume();

    until("it is promoted", WAIT_MAX, || (state() == ["PROCESSING", "1"]).then_some(()));
    assert_eq!(metric(&service.http, EVENTS), 2.0);
    let path = format!("/orders/{}", created["id"].as_str().expect("an id"));
    until("every reader sees it", WAIT_MAX, || {
        (service.http.get(&path, Some(&user)).json()["status"] == "PROCESSING").then_some(())
    });
}
