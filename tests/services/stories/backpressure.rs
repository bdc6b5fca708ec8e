//! Backpressure on real services: each of its three inputs alone raises the level, and rate limits tighten before writes are refused.
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use kit::wait::{scaled, until};
use serde_json::json;

use crate::harness::backend::Backend;
use crate::harness::event_log;
use crate::harness::http::{Http, tea_order};
use crate::harness::metrics::{await_metric, metric, metrics};
use crate::harness::process::Posthaste;
use crate::harness::stop_flag_guard::StopFlagGuard;

/// Longest wait for any condition here; no test judges the duration.
const WAIT_MAX: Duration = Duration::from_secs(40);
const LEVEL: &str = "backpressure_level";
const FACTOR: &str = "backpressure_throttling_factor";
/// The changes from the lowest level to the highest.
const RISEN: [[&str; 2]; 2] = [["NORMAL", "ELEVATED"], ["ELEVATED", "CRITICAL"]];

/// Creates an order; returns its id, or the status and `Retry-After` of the refusal.
fn create_order(http: &Http) -> Result<String, (u16, String)> {
    let response = http.post("/orders", &http.user(), &[], &tea_order(1));
    match response.status {
        201 => Ok(response.json()["id"].as_str().expect("an id").to_owned()),
        status => Err((status, response.header("retry-after").unwrap_or_default().to_owned())),
    }
}

/// Waits until a level and its factor hold. `push` runs before each scrape.
fn await_stage(http: &Http, stage: [f64; 2], mut push: impl FnMut()) {
    until("the level changes", WAIT_MAX, || {
        push();
        (metrics(http, [LEVEL, FACTOR]) == stage).then_some(())
    });
}

/// Asserts that the level has changed in this way since the start. The log has each level, also one that lasts shorter than a scrape.
#[track_caller]
fn assert_changed(service: &Posthaste, changes: &[[&str; 2]]) {
    let logged = until("the changes are logged", WAIT_MAX, || {
        Some(service.logged("pressure_changed")).filter(|lines| lines.len() >= changes.len())
    });
    let logged: Vec<_> =
        logged.iter().map(|line| ["from", "to"].map(|name| line[name].as_str().expect("text"))).collect();
    assert_eq!(logged, changes);
}

#[test]
fn a_backlog_tightens_limits_before_it_rejects_writes_and_recovers_by_level() {
    let backend = Backend::new();
    let settings = [
        ("POSTHASTE__BACKPRESSURE__BACKLOG", "5,10"),
        ("POSTHASTE__RATE_LIMIT__ENABLED", "true"),
        ("POSTHASTE__RATE_LIMIT__CAPACITY", "100000"),
    ];
    let service = Posthaste::start(&backend, &settings);
    let (user, admin) = (service.http.user(), service.http.admin());
    let publisher = |action: &str| {
        let path = format!("/admin/actors/relay/outbox-publisher/{action}");
        assert_eq!(service.http.post(&path, &admin, &[], &json!({})).status, 202);
    };
    // A request to which a slow Redis gives no answer is admitted without a limit.
    let limit = || {
        until("a limit applies", WAIT_MAX, || {
            service.http.get("/orders", Some(&user)).header("ratelimit-policy").map(str::to_owned)
        })
    };
    let mut acknowledged = vec![create_order(&service.http).expect("NORMAL accepts writes")];
    service.drain();
    assert_eq!(metrics(&service.http, [LEVEL, FACTOR]), [0.0, 1.0]);
    assert_eq!(limit(), "\"default\";q=100000;w=60");

    publisher("pause");
    // Workers may still claim rows for runs that the publisher requested before its pause, so a count of waiting rows is not final: rows
    // that were claimed are replaced until the level itself shows.
    let mut fill_until = |stage: [f64; 2], rows: u64| {
        let waiting = || backend.database.rows("SELECT count(*) FROM outbox WHERE status = 0")[0][0].parse::<u64>();
        await_stage(&service.http, stage, || {
            if waiting().is_ok_and(|waiting| waiting < rows) {
                match create_order(&service.http) {
                    Ok(id) => acknowledged.push(id),
                    Err(refused) => {
                        assert_eq!((stage[0], refused.0), (2.0, 503), "below CRITICAL writes are accepted");
                        await_metric(&service.http, LEVEL, WAIT_MAX, |level| level == 2.0);
                    }
                }
            }
        });
    };
    fill_until([1.0, 0.7], 7);
    assert_eq!(limit(), "\"default\";q=70000;w=60", "limits are tighter");
    // The paused publisher requests no further run: once the workers' mailboxes are empty, no row is claimed any more.
    until("the workers have no run left", WAIT_MAX, || {
        let tree = service.http.get("/admin/actors", Some(&admin)).json();
        let actors = tree["actors"].as_array().expect("actors");
        let workers = actors.iter().filter(|actor| actor["actor"] == "PartitionWorker");
        workers.map(|worker| worker["mailboxDepth"].as_u64()).all(|depth| depth == Some(0)).then_some(())
    });
    fill_until([2.0, 0.35], 14);

    assert_eq!(create_order(&service.http), Err((503, "5".into())));
    assert_eq!(limit(), "\"default\";q=35000;w=60", "reads continue with tighter limits");
    assert!(metric(&service.http, "backpressure_outbox_backlog") >= 10.0);
    publisher("resume");
    until("the level falls", WAIT_MAX, || (service.logged("pressure_changed").len() >= 3).then_some(()));
    acknowledged.push(create_order(&service.http).expect("ELEVATED accepts writes"));
    await_stage(&service.http, [0.0, 1.0], || ());
    let fallen = [["CRITICAL", "ELEVATED"], ["ELEVATED", "NORMAL"]];
    assert_changed(&service, &[RISEN, fallen].concat());
    assert_eq!(metric(&service.http, "rate_limit_dynamic_adjustments_total"), 4.0);
    service.drain();
    event_log::assert_complete(&backend, &acknowledged.into_iter().map(|id| (id, 1)).collect());
}

#[test]
fn an_exhausted_pool_raises_the_level_and_refuses_writes_before_they_queue() {
    let backend = Backend::new();
    // Two of the nine connections serve reads: three commit orders, and four belong to the relay.
    let service = Posthaste::start(&backend, &[("POSTHASTE__STORE__POOL", "9")]);
    let (user, saturation) = (service.http.user(), "backpressure_db_saturation_percent");
    let id = create_order(&service.http).expect("NORMAL accepts writes");
    service.drain();
    await_metric(&service.http, saturation, WAIT_MAX, |percent| percent == 0.0);
    let done = AtomicBool::new(false);
    backend.database.rows("BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE");

    std::thread::scope(|scope| {
        let end = StopFlagGuard(&done);
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(SeqCst) {
                    let response = service.http.send_once("GET", "/orders", Some(&user), &[], None);
                    let response = response.expect("a response");
                    // 408: this machine delayed the client for longer than `http.header_timeout`.
                    assert!([200, 408, 503].contains(&response.status), "{response:?}");
                }
            });
        }
        await_stage(&service.http, [2.0, 0.35], || ());
        assert_changed(&service, &RISEN);
        // It is measured once a second, and lower while a busy machine delays the readers.
        await_metric(&service.http, saturation, WAIT_MAX, |percent| percent >= 90.0);
        assert_eq!(create_order(&service.http), Err((503, "5".into())), "at once, without a wait for a connection");
        drop(end);
        backend.database.rows("ROLLBACK");
    });

    await_metric(&service.http, saturation, WAIT_MAX, |percent| percent == 0.0);
    service.drain();
    event_log::assert_complete(&backend, &[(id, 1)].into());
}

#[test]
fn consumer_lag_raises_the_level() {
    let backend = Backend::new();
    // A slow disk that delays the first event by some seconds must not raise the level.
    let (elevated, critical) = (scaled(Duration::from_secs(1)), scaled(Duration::from_secs(3)));
    let levels = format!("{}s,{}s", elevated.as_secs(), critical.as_secs());
    let service = Posthaste::start(&backend, &[("POSTHASTE__BACKPRESSURE__LAG", &levels)]);
    create_order(&service.http).expect("NORMAL accepts writes");
    await_metric(&service.http, "kafka_consumer_processed_count_total", WAIT_MAX, |count| count == 1.0);
    let lag = "backpressure_kafka_lag_ms";
    backend.database.rows("BEGIN; LOCK TABLE processed_events IN ACCESS EXCLUSIVE MODE");

    let id = create_order(&service.http).expect("NORMAL accepts writes");
    await_stage(&service.http, [2.0, 0.35], || ());
    assert_changed(&service, &RISEN);
    assert!(metric(&service.http, lag) >= critical.as_millis() as f64);
    assert_eq!(create_order(&service.http), Err((503, "5".into())));
    backend.database.rows("ROLLBACK");

    await_metric(&service.http, lag, WAIT_MAX, |lag| lag == 0.0);
    service.drain();
    event_log::assert_complete(&backend, &[(id, 1)].into());
}
