//! Probes, the actuator and the metrics.
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use app::health::Component;
use app::policy::backpressure::PressureStage;
use ports::clock::Clock;

use crate::support::test_server::*;

#[actix_web::test]
async fn probes_follow_the_health_snapshot() {
    let server = TestServer::new();
    let status = async |path: &str| server.send(get(path)).await.status;
    for path in [
        "/livez",
        "/readyz",
        "/startupz",
        "/actuator/health",
        "/actuator/health/liveness",
        "/actuator/health/readiness",
    ] {
        assert_eq!(status(path).await, 200, "{path}");
    }
    let verbose = server.send(get("/readyz?verbose")).await.text();
    assert!(verbose.contains("[+]db UP\n") && verbose.ends_with("ok\n"), "{verbose}");

    server.health.update(|snapshot| snapshot.passive = true);
    let ready = server.send(get("/readyz?verbose")).await;
    assert_eq!((ready.status, ready.header("retry-after")), (503, "5"));
    assert!(ready.text().contains("[-]region OUT_OF_SERVICE\n"));
    let health = server.send(get("/actuator/health")).await;
    assert_eq!((health.status, health.text().as_str()), (503, r#"{"status":"OUT_OF_SERVICE"}"#));
    assert_eq!(status("/livez").await, 200);
    assert_eq!(status("/actuator/health/readiness").await, 503);

    server.health.update(|snapshot| {
        snapshot.passive = false;
        snapshot.draining = true;
    });
    assert_eq!((status("/readyz").await, status("/livez").await), (503, 200));
    server.health.update(|snapshot| {
        snapshot.draining = false;
        snapshot.started = false;
    });
    assert_eq!((status("/startupz").await, status("/readyz").await, status("/livez").await), (503, 503, 200));
}

#[actix_web::test]
async fn the_service_stays_ready_without_its_broker() {
    let server = TestServer::new();
    let part = |name, up, gates| Component { name, up, gates, latency: Duration::ZERO, detail: Some("refused".into()) };
    server.health.update(|snapshot| snapshot.components.push(part("broker", false, false)));

    assert_eq!(server.send(get("/readyz")).await.status, 200);
    let health = server.send(get("/actuator/health").insert_header(admin())).await;
    assert_eq!(health.status, 503);
    assert_eq!(health.json()["components"]["broker"]["status"], "DOWN");

    server.health.update(|snapshot| snapshot.components = vec![part("db", false, true)]);
    assert_eq!(server.send(get("/readyz")).await.status, 503);
    let readiness = server.send(get("/actuator/health/readiness")).await;
    assert_eq!((readiness.status, readiness.text().as_str()), (503, r#"{"status":"OUT_OF_SERVICE"}"#));
}

#[actix_web::test]
async fn readiness_fails_when_unsent_events_exceed_the_configured_age() {
    let mut config = TestConfig::default();
    config.options.unsent_age_max = Duration::from_secs(10);
    let server = TestServer::with_config(config);
    for (age, status) in [(10, 200), (11, 503)] {
        server.health.update(|snapshot| snapshot.depth.oldest_unsent = Some(Duration::from_secs(age)));
        assert_eq!(server.send(get("/readyz")).await.status, status);
    }
}

#[actix_web::test]
async fn unsent_events_grow_older_while_they_cannot_be_counted() {
    let mut config = TestConfig::default();
    config.options.unsent_age_max = Duration::from_secs(40);
    let server = TestServer::with_config(config);
    let statuses = async || {
        let ready = server.send(get("/readyz")).await.status;
        (ready, server.send(get("/actuator/health/readiness")).await.status)
    };
    server.health.update(|snapshot| {
        snapshot.depth.oldest_unsent = Some(Duration::from_secs(9));
        snapshot.measured_at = Some(server.dispatch.clock.now());
    });
    server.dispatch.clock.0.fetch_add(30_000, SeqCst);
    assert_eq!(statuses().await, (200, 200), "the next count may be due");

    server.dispatch.clock.0.fetch_add(2_000, SeqCst);

    assert_eq!(statuses().await, (503, 503));
    let outbox = server.send(get("/actuator/health/outbox").insert_header(admin())).await.json();
    assert_eq!((&outbox["status"], &outbox["details"]["oldestUnsentSeconds"]), (&"DOWN".into(), &41.0.into()));
    server.health.update(|snapshot| snapshot.depth.oldest_unsent = None);
    assert_eq!(statuses().await, (200, 200), "nothing was unsent");
}

#[actix_web::test]
async fn unsent_events_grow_older_also_after_the_wall_clock_was_set_back() {
    let mut config = TestConfig::default();
    config.options.unsent_age_max = Duration::from_secs(40);
    let server = TestServer::with_config(config);
    server.health.update(|snapshot| {
        snapshot.depth.oldest_unsent = Some(Duration::from_secs(9));
        snapshot.measured_at = Some(server.dispatch.clock.now());
    });

    server.dispatch.clock.1.store(3_600_000, SeqCst);
    server.dispatch.clock.0.fetch_add(32_000, SeqCst);

    for path in ["/readyz", "/actuator/health/readiness", "/actuator/health"] {
        assert_eq!(server.send(get(path)).await.status, 503, "{path}");
    }
}

#[actix_web::test]
async fn health_of_the_region_says_whether_writes_are_accepted() {
    let server = TestServer::new();
    for (stage, passive, allowed) in [
        (PressureStage::Retries, false, true),
        (PressureStage::Rejection, false, false),
        (PressureStage::Calm, true, false),
    ] {
        server.health.update(|snapshot| (snapshot.stage, snapshot.passive) = (stage, passive));
        let region = server.send(get("/actuator/health/region").insert_header(admin())).await.json();
        assert_eq!(region["details"]["writesAllowed"], allowed, "{stage:?}, passive: {passive}");
    }
}

#[actix_web::test]
async fn components_and_info_require_admin() {
    let server = TestServer::new();
    server.health.update(|snapshot| {
        let latency = Duration::from_millis(1);
        snapshot.components.push(Component { name: "redis", up: true, gates: false, latency, detail: None });
    });

    assert_eq!(server.send(get("/actuator/health").insert_header(user("ann"))).await.text(), r#"{"status":"UP"}"#);
    assert_eq!(server.send(get("/actuator/health").insert_header(bearer("x"))).await.status, 200);
    let all = server.send(get("/actuator/health").insert_header(admin())).await.json();
    for name in ["db", "broker", "outbox", "region", "redis"] {
        assert_eq!(all["components"][name]["status"], "UP", "{name}");
        let one = server.send(get(&format!("/actuator/health/{name}")).insert_header(admin())).await;
        assert_eq!((one.status, &one.json()["status"]), (200, &"UP".into()));
    }
    server.send(get("/actuator/health/db")).await.problem(401, "UNAUTHORIZED");
    server.send(get("/actuator/health/db").insert_header(user("ann"))).await.problem(403, "FORBIDDEN");
    server.send(get("/actuator/health/x").insert_header(admin())).await.problem(404, "NOT_FOUND");
    server.send(get("/actuator/info")).await.problem(401, "UNAUTHORIZED");
    let info = server.send(get("/actuator/info").insert_header(admin())).await.json();
    assert_eq!((&info["app"]["name"], &info["region"]["id"]), (&"posthaste".into(), &"r1".into()));
}

#[actix_web::test]
async fn metrics_are_public_and_include_the_cache_counters() {
    let server = TestServer::new();
    let id = server.create_order("ann").await;
    server.send(get(&format!("/orders/{id}")).insert_header(user("ann"))).await;

    let one = server.send(get("/metrics")).await;
    let other = server.send(get("/actuator/prometheus")).await;
    let names = server.send(get("/actuator/metrics")).await.json();
    let reading = server.send(get("/actuator/metrics/orders.created.count")).await.json();

    assert!(one.header("content-type").starts_with("text/plain"));
    assert!(
        one.text().contains("\ncache_miss_count_total 1\n") && other.text().contains("\ncache_miss_count_total 1\n")
    );
    assert!(names["names"].as_array().unwrap().contains(&"outbox.pending.count".into()));
    assert_eq!(reading["measurements"][0]["value"], 1.0);
    server.send(get("/actuator/metrics/no.such")).await.problem(404, "NOT_FOUND");
}
