//! The failure matrix, row by row, where a service is taken away. Each story is alone with the services.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::check;
use crate::faults;
use crate::ground::Ground;
use crate::http::tea;
use crate::limits::FEW;
use crate::load::Load;
use crate::meter::{await_metric, metric, metrics};
use crate::process::Posthaste;
use crate::services::Service;

/// Longest that anything here may take; what is judged is that it comes.
const SOON: Duration = Duration::from_secs(30);

#[test]
fn while_kafka_is_away_the_backlog_grows_and_no_attempt_is_burnt_and_then_it_drains() {
    let ground = Ground::alone();
    let service = Posthaste::start(&ground, &[("POSTHASTE__BROKER__BREAKER__OPEN", "500ms")]);
    let user = service.http.user();
    let place = || service.http.post("/orders", &user, &[], &tea(1));
    let mut answered = vec![place().json()["id"].as_str().expect("an id").to_owned()];
    service.drain();
    assert_eq!(metric(&service.http, "kafka_breaker_state"), 0.0);
    let opened = || service.logged("breaker_opened").len();
    let attempts = || ground.database.rows("SELECT sum(attempts), max(attempts) FROM outbox").remove(0);

    ground.war().kill(Service::Kafka);
    until("the breaker opens", SOON, || {
        let created = place();
        assert_eq!(created.status, 201, "orders go on");
        answered.push(created.json()["id"].as_str().expect("an id").to_owned());
        (opened() > 0).then_some(())
    });
    // A batch whose answer never came stays IN_FLIGHT until Kafka can say what became of it: each row at most once.
    let calm = (0..10).any(|_| {
        let (before, probes) = (attempts(), opened() + 2);
        until("two probes have failed", SOON, || {
            let state = metric(&service.http, "kafka_breaker_state");
            assert!(state > 0.0, "open, or half open for one probe");
            (opened() >= probes).then_some(())
        });
        attempts() == before
    });
    assert!(calm, "probes go on burning attempts: {:?}", attempts());
    assert!(attempts()[1].parse::<u64>().expect("a number") <= 5, "{:?}", attempts());
    let unsent = || {
        let states = ["PENDING", "IN_FLIGHT", "FAILED"].map(|state| format!("outbox_rows{{status=\"{state}\"}}"));
        states.iter().map(|name| metric(&service.http, name)).sum::<f64>()
    };
    until("all of it shows", SOON, || (unsent() == (answered.len() - 1) as f64).then_some(()));
    assert!(metric(&service.http, "backpressure_outbox_backlog") > 0.0);

    ground.war().start(Service::Kafka);
    until("it drains", SOON, || (unsent() == 0.0).then_some(()));
    await_metric(&service.http, "kafka_breaker_state", SOON, |state| state == 0.0);

    service.drain();
    assert!(service.rows(&["PARKED"]).is_empty());
    check::laws(&ground, &answered.into_iter().map(|id| (id, 1)).collect());
}

#[test]
fn while_kafka_does_not_answer_whoever_dies_in_the_relay_is_back_at_once_and_no_row_is_blamed() {
    let ground = Ground::alone();
    let service = Posthaste::start(&ground, &[]);
    let load = Load::start(&service.http, 4);
    until("events leave", SOON, || (service.rows(&["SENT"]).len() > 20).then_some(()));

    ground.war().pause(Service::Kafka);
    for path in ["/relay/retry-handler", "/relay/outbox-publisher"] {
        until("a worker has a batch in hand", SOON, || {
            let rows = service.http.get("/admin/actors", Some(&service.http.admin())).json();
            let actors = rows["actors"].as_array().expect("actors").clone();
            let works = |actor: &Value| actor["actor"] == "PartitionWorker" && actor["mailboxDepth"] == 1;
            actors.iter().any(works).then_some(())
        });
        faults::back_after(&service, path, "panic");
    }
    ground.war().resume(Service::Kafka);

    let answered = load.finish();
    service.drain();
    let cut = service.logged("shutdown_timeout");
    assert!(cut.iter().any(|e| e["actor"] == "PartitionWorker"), "nobody waited for what could not finish: {cut:?}");
    let died = "SELECT count(*) FROM outbox_archive WHERE 0 < ANY (deaths)";
    assert_eq!(
        ground.database.rows(died).remove(0),
        ["0"],
        "a worker that goes down with another is no death of its rows"
    );
    check::laws(&ground, &answered);
}

#[test]
fn while_redis_is_away_reads_come_from_the_store() {
    let ground = Ground::alone();
    let service = Posthaste::start(&ground, &[("POSTHASTE__HTTP__REQUEST_TIMEOUT", "2s")]);
    let (user, admin) = (service.http.user(), service.http.admin());
    let order = service.http.post("/orders", &user, &[], &tea(1)).json();
    let path = format!("/orders/{}", order["id"].as_str().expect("an id"));
    let read = || service.http.get(&path, Some(&user));
    // Orders are cached under an epoch that is known for longer than any request lives.
    until("the cache answers", SOON, || {
        assert_eq!(read().status, 200);
        (metric(&service.http, "cache_hit_count_total") > 0.0).then_some(())
    });
    let failures = "redis_connection_failures_total{component=\"cache\"}";
    let told = ["cache_error_count_total", "cache_degraded_mode_count_total", failures];
    let before = metrics(&service.http, told);

    ground.war().kill(Service::Redis);
    let change = json!({"status": "SHIPPED", "version": 0});
    assert_eq!(service.http.patch(&format!("{path}/status"), &admin, &[], &change).status, 200);
    let (hits, mut reads) = (metric(&service.http, "cache_hit_count_total"), 0);
    until("the cache is left alone", SOON, || {
        let answer = read();
        assert_eq!((answer.status, &answer.json()["version"]), (200, &json!(1)), "and what is shown is fresh");
        reads += 1;
        let now = metrics(&service.http, told);
        (reads >= 10 && now.iter().zip(before).all(|(now, before)| *now > before)).then_some(())
    });

    assert_eq!(metric(&service.http, "cache_hit_count_total"), hits, "nothing comes from the cache");
    ground.war().start(Service::Redis);
    until("Redis is back", SOON, || (!service.logged("redis_back").is_empty()).then_some(()));
    assert_eq!(read().json()["version"], 1);
}

#[test]
fn while_redis_is_away_the_rate_limit_lets_requests_pass() {
    let ground = Ground::alone();
    let service = Posthaste::start(&ground, &FEW);
    let user = service.http.user();
    let ask = || service.http.get("/orders", Some(&user)).status;
    let (open, failures) =
        ("rate_limit_fail_open_count_total", "redis_connection_failures_total{component=\"rate_limit\"}");
    until("it limits", SOON, || (ask() == 429).then_some(()));
    let [opened, failed] = metrics(&service.http, [open, failures]);

    ground.war().kill(Service::Redis);
    let unlimited: Vec<u16> = (0..20).map(|_| ask()).collect();

    assert_eq!(unlimited, [200; 20], "availability before policy");
    assert_eq!(metric(&service.http, open) - opened, 20.0);
    assert!(metric(&service.http, failures) - failed >= 20.0);
    ground.war().start(Service::Redis);
    until("it limits again", SOON, || (ask() == 429).then_some(()));
}

#[test]
fn a_long_outage_of_a_dependency_makes_the_region_passive_until_it_is_back() {
    let ground = Ground::alone();
    let settings = [
        ("POSTHASTE__FAILOVER__GATES", "db,redis,broker"),
        ("POSTHASTE__FAILOVER__PROBE_INTERVAL", "200ms"),
        ("POSTHASTE__FAILOVER__PROBE_TIMEOUT", "1s"),
    ];
    let service = Posthaste::start(&ground, &settings);
    let user = service.http.user();
    let place = || service.http.post("/orders", &user, &[], &tea(1));
    let readiness = || service.http.get("/actuator/health/readiness", None);
    let order = place().json();
    let events = "failover_events_count_total";
    assert_eq!((metric(&service.http, events), readiness().status), (0.0, 200));

    ground.war().kill(Service::Redis);
    await_metric(&service.http, events, SOON, |events| events == 1.0);

    let refused = place();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")), "{}", refused.text);
    assert!(refused.json()["detail"].as_str().expect("text").contains("passive"), "{}", refused.text);
    assert_eq!((readiness().status, &readiness().json()["status"]), (503, &json!("OUT_OF_SERVICE")));
    let path = format!("/orders/{}", order["id"].as_str().expect("an id"));
    assert_eq!(service.http.get(&path, Some(&user)).status, 200, "reads go on");
    assert!(metric(&service.http, "region_health_unhealthy_count_total") >= 3.0);
    let failures = "region_health_dependency_failure_count_total{dependency=\"redis\"}";
    assert!(metric(&service.http, failures) >= 4.0);
    assert_eq!(ground.database.rows("SELECT count(*) FROM orders")[0][0], "1", "what was refused is not there");
    assert_eq!(service.logged("region_passive").len(), 1);

    ground.war().start(Service::Redis);
    await_metric(&service.http, events, SOON, |events| events == 2.0);

    assert_eq!((place().status, readiness().status), (201, 200));
    assert_eq!(service.logged("region_active").len(), 1);
}
