//! The region's gate over a network that can be broken: what flaps moves nothing, and a passive region promotes nothing either.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::http::{Http, tea};
use crate::meter::{await_metric, metric};
use crate::process::Posthaste;
use crate::proxy::Proxy;

/// Longest that anything here may take; what is judged is that it comes.
const SOON: Duration = Duration::from_secs(30);
const EVENTS: &str = "failover_events_count_total";
const FAILURES: &str = "region_health_dependency_failure_count_total{dependency=\"redis\"}";
/// Slow rounds beside the time that breaking and mending takes here, and quick enough for a story.
const ROUNDS: [(&str, &str); 3] = [
    ("POSTHASTE__FAILOVER__GATES", "db,redis"),
    ("POSTHASTE__FAILOVER__PROBE_INTERVAL", "500ms"),
    ("POSTHASTE__FAILOVER__PROBE_TIMEOUT", "300ms"),
];

/// A service whose way to Redis can be broken.
fn start(ground: &Ground, more: &[(&str, &str)]) -> (Posthaste, Proxy) {
    let way = Proxy::to(&ground.addresses().1);
    let url = ground.redis_url(&way.address());
    let settings = [&ROUNDS[..], &[("POSTHASTE__REDIS__URL", url.as_str())], more].concat();
    (Posthaste::start(ground, &settings), way)
}

/// Why Redis last failed its probe; nothing while it answers.
fn trouble(http: &Http) -> Value {
    http.get("/actuator/health/redis", Some(&http.admin())).json()["details"]["error"].clone()
}

#[test]
fn a_dependency_that_flaps_does_not_flap_the_region() {
    let ground = Ground::new();
    let (service, way) = start(&ground, &[]);
    let place = || service.http.post("/orders", &service.http.user(), &[], &tea(1)).status;

    for flap in 1..=3 {
        let failures = metric(&service.http, FAILURES);
        way.fall_silent();
        await_metric(&service.http, FAILURES, SOON, |now| now > failures);
        way.speak();
        until("a probe is answered", SOON, || trouble(&service.http).is_null().then_some(()));
        assert_eq!(place(), 201, "flap {flap}");
    }

    assert!(metric(&service.http, FAILURES) >= 3.0, "each is counted");
    assert_eq!(metric(&service.http, EVENTS), 0.0, "and none moved the region");
    assert!(service.logged("region_passive").is_empty());
    way.fall_silent();
    await_metric(&service.http, EVENTS, SOON, |events| events == 1.0);
    assert_eq!(place(), 503);
    way.speak();
    await_metric(&service.http, EVENTS, SOON, |events| events == 2.0);
    assert_eq!(place(), 201);
}

#[test]
fn a_passive_region_promotes_no_order_and_does_when_it_is_active_again() {
    let ground = Ground::new();
    let (service, way) = start(&ground, &[("POSTHASTE__PROMOTION__INTERVAL", "200ms")]);
    let (user, admin) = (service.http.user(), service.http.admin());
    let promoter = |action: &str| {
        let path = format!("/admin/actors/pending-promoter/{action}");
        assert_eq!(service.http.post(&path, &admin, &[], &json!({})).status, 202);
    };
    promoter("pause");
    let created = service.http.post("/orders", &user, &[], &tea(1)).json();
    let state = || ground.database.rows("SELECT status, version FROM orders").remove(0);
    way.fall_silent();
    await_metric(&service.http, EVENTS, SOON, |events| events == 1.0);

    promoter("resume");
    until("the promoter tried", SOON, || (!service.logged("promotion_held_back").is_empty()).then_some(()));
    assert_eq!(state(), ["PENDING", "0"]);
    way.speak();

    until("it is promoted", SOON, || (state() == ["PROCESSING", "1"]).then_some(()));
    assert_eq!(metric(&service.http, EVENTS), 2.0);
    let path = format!("/orders/{}", created["id"].as_str().expect("an id"));
    until("every reader sees it", SOON, || {
        (service.http.get(&path, Some(&user)).json()["status"] == "PROCESSING").then_some(())
    });
}
