//! Back-pressure on real services: each of its three inputs alone raises the level, and rate limits tighten before writes are refused.
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use kit::wait::until;
use serde_json::json;

use crate::harness::backend::Backend;
use crate::harness::event_log;
use crate::harness::http::{Http, tea_order};
use crate::harness::metrics::{await_metric, metric, metrics};
use crate::harness::process::Posthaste;

/// Longest wait for any condition here; no test judges the duration.
const WAIT_MAX: Duration = Duration::from_secs(40);
const LEVEL: &str = "backpressure_level";
const FACTOR: &str = "backpressure_throttling_factor";

/// Creates an order; returns its id, or the status and `Retry-After` of the refusal.
fn create_order(http: &Http) -> Result<String, (u16, String)> {
    let response = http.post("/orders", &http.user(), &[], &tea_order(1));
    match response.status {
        201 => Ok(response.json()["id"].as_str().expect("an id").to_owned()),
        status => Err((status, response.header("retry-after").unwrap_or_default().to_owned())),
    }
}

/// Every level with its factor, in order, until the last level is reached. `push` runs before each scrape.
fn stages_until(http: &Http, last: f64, mut push: impl FnMut()) -> Vec<[f64; 2]> {
    let (mut stages, mut previous) = (Vec::new(), None);
    until("the level changes", WAIT_MAX, || {
        push();
        let now = metrics(http, [LEVEL, FACTOR]);
        // A scrape may fall between the updates of two gauges, so a pair counts when two scrapes show it.
        let stable = previous.replace(now) == Some(now);
        if stable && stages.last() != Some(&now) {
            stages.push(now);
        }
        (stable && now[0] == last).then_some(())
    });
    stages
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
    let limit = || service.http.get("/orders", Some(&user)).header("ratelimit-policy").expect("a limit").to_owned();
    let mut acknowledged = vec![create_order(&service.http).expect("NORMAL accepts writes")];
    service.drain();
    assert_eq!(metrics(&service.http, [LEVEL, FACTOR]), [0.0, 1.0]);
    assert_eq!(limit(), "\"default\";q=100000;w=60");

    publisher("pause");
    // Workers may still claim rows for runs that the publisher requested before its pause, so a count of waiting rows is not final: rows
    // that were claimed are replaced until the level itself shows.
    let mut fill_until = |level: f64, rows: u64| {
        let waiting = || backend.database.rows("SELECT count(*) FROM outbox WHERE status = 0")[0][0].parse::<u64>();
        let stages = stages_until(&service.http, level, || {
            if waiting().is_ok_and(|waiting| waiting < rows) {
                match create_order(&service.http) {
                    Ok(id) => acknowledged.push(id),
                    Err(refused) => {
                        assert_eq!((level, refused.0), (2.0, 503), "below CRITICAL writes are accepted");
                        await_metric(&service.http, LEVEL, WAIT_MAX, |level| level == 2.0);
                    }
                }
            }
        });
        stages.last().copied()
    };
    assert_eq!(fill_until(1.0, 7), Some([1.0, 0.7]));
    assert_eq!(limit(), "\"default\";q=70000;w=60", "limits are tighter");
    // The paused publisher requests no further run: once the workers' mailboxes are empty, no row is claimed any more.
    until("the workers have no run left", WAIT_MAX, || {
        let tree = service.http.get("/admin/actors", Some(&admin)).json();
        let actors = tree["actors"].as_array().expect("actors");
        let workers = actors.iter().filter(|actor| actor["actor"] == "PartitionWorker");
        workers.map(|worker| worker["mailboxDepth"].as_u64()).all(|depth| depth == Some(0)).then_some(())
    });
    assert_eq!(fill_until(2.0, 14), Some([2.0, 0.35]));

    assert_eq!(create_order(&service.http), Err((503, "5".into())));
    assert_eq!(limit(), "\"default\";q=35000;w=60", "reads continue with tighter limits");
    assert!(metric(&service.http, "backpressure_outbox_backlog") >= 10.0);
    publisher("resume");
    assert_eq!(stages_until(&service.http, 1.0, || ()), [[2.0, 0.35], [1.0, 0.7]], "one level at a time");
    acknowledged.push(create_order(&service.http).expect("ELEVATED accepts writes"));
    assert_eq!(metric(&service.http, "rate_limit_dynamic_adjustments_total"), 3.0);
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
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(SeqCst) {
                    let response = service.http.get("/orders", Some(&user));
                    assert!([200, 503].contains(&response.status), "{response:?}");
                }
            });
        }
        let stages = stages_until(&service.http, 2.0, || ());
        assert_eq!(stages, [[0.0, 1.0], [1.0, 0.7], [2.0, 0.35]]);
        assert!(metric(&service.http, saturation) >= 90.0);
        assert_eq!(create_order(&service.http), Err((503, "5".into())), "at once, without a wait for a connection");
        done.store(true, SeqCst);
        backend.database.rows("ROLLBACK");
    });

    await_metric(&service.http, saturation, WAIT_MAX, |percent| percent == 0.0);
    service.drain();
    event_log::assert_complete(&backend, &[(id, 1)].into());
}

#[test]
fn consumer_lag_raises_the_level() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__BACKPRESSURE__LAG", "1s,3s")]);
    create_order(&service.http).expect("NORMAL accepts writes");
    await_metric(&service.http, "kafka_consumer_processed_count_total", WAIT_MAX, |count| count == 1.0);
    let lag = "backpressure_kafka_lag_ms";
    backend.database.rows("BEGIN; LOCK TABLE processed_events IN ACCESS EXCLUSIVE MODE");

    let id = create_order(&service.http).expect("NORMAL accepts writes");
    let stages = stages_until(&service.http, 2.0, || ());
    assert_eq!(stages, [[0.0, 1.0], [1.0, 0.7], [2.0, 0.35]]);
    assert!(metric(&service.http, lag) >= 3_000.0);
    assert_eq!(create_order(&service.http), Err((503, "5".into())));
    backend.database.rows("ROLLBACK");

    await_metric(&service.http, lag, WAIT_MAX, |lag| lag == 0.0);
    service.drain();
    event_log::assert_complete(&backend, &[(id, 1)].into());
}
