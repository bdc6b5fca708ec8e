//! Back-pressure on the real services: each of its three inputs alone is felt, and limits tighten before writes are refused.
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use kit::wait::until;
use serde_json::json;

use crate::check;
use crate::ground::Ground;
use crate::http::{Http, tea};
use crate::meter::{await_metric, metric, metrics};
use crate::process::Posthaste;

/// Longest that anything here may take; what is judged is that it comes.
const SOON: Duration = Duration::from_secs(40);
const LEVEL: &str = "backpressure_level";
const FACTOR: &str = "backpressure_throttling_factor";

fn place(http: &Http) -> Result<String, (u16, String)> {
    let answer = http.post("/orders", &http.user(), &[], &tea(1));
    match answer.status {
        201 => Ok(answer.json()["id"].as_str().expect("an id").to_owned()),
        status => Err((status, answer.header("retry-after").unwrap_or_default().to_owned())),
    }
}

/// Every level with its factor that shows until the last one is reached. `push` runs before each reading.
fn stages_until(http: &Http, last: f64, mut push: impl FnMut()) -> Vec<[f64; 2]> {
    let (mut seen, mut before) = (Vec::new(), None);
    until("the level changes", SOON, || {
        push();
        let now = metrics(http, [LEVEL, FACTOR]);
        // A scrape may fall between two gauges of one sample: only a pair that shows twice counts.
        let stands = before.replace(now) == Some(now);
        if stands && seen.last() != Some(&now) {
            seen.push(now);
        }
        (stands && now[0] == last).then_some(())
    });
    seen
}

#[test]
fn a_backlog_tightens_limits_before_it_rejects_writes_and_recovers_by_level() {
    let ground = Ground::new();
    let settings = [
        ("POSTHASTE__BACKPRESSURE__BACKLOG", "5,10"),
        ("POSTHASTE__RATE_LIMIT__ENABLED", "true"),
        ("POSTHASTE__RATE_LIMIT__CAPACITY", "100000"),
    ];
    let service = Posthaste::start(&ground, &settings);
    let (user, admin) = (service.http.user(), service.http.admin());
    let publisher = |action: &str| {
        let path = format!("/admin/actors/relay/outbox-publisher/{action}");
        assert_eq!(service.http.post(&path, &admin, &[], &json!({})).status, 202);
    };
    let limit = || service.http.get("/orders", Some(&user)).header("ratelimit-policy").expect("a limit").to_owned();
    let mut answered = vec![place(&service.http).expect("calm")];
    service.drain();
    assert_eq!(metrics(&service.http, [LEVEL, FACTOR]), [0.0, 1.0]);
    assert_eq!(limit(), "\"default\";q=100000;w=60");

    publisher("pause");
    // Workers may still claim rows for runs that the publisher requested before its pause, so a count of waiting rows is not final: rows
    // that were claimed are replaced until the level itself shows.
    let mut fill_until = |level: f64, rows: u64| {
        let waiting = || ground.database.rows("SELECT count(*) FROM outbox WHERE status = 0")[0][0].parse::<u64>();
        let stages = stages_until(&service.http, level, || {
            if waiting().is_ok_and(|waiting| waiting < rows) {
                match place(&service.http) {
                    Ok(id) => answered.push(id),
                    Err(refused) => {
                        assert_eq!((level, refused.0), (2.0, 503), "below CRITICAL writes are accepted");
                        await_metric(&service.http, LEVEL, SOON, |level| level == 2.0);
                    }
                }
            }
        });
        stages.last().copied()
    };
    assert_eq!(fill_until(1.0, 7), Some([1.0, 0.7]));
    assert_eq!(limit(), "\"default\";q=70000;w=60", "limits are tighter");
    // The paused publisher requests no further run: once the workers' mailboxes are empty, no row is claimed any more.
    until("no run is left", SOON, || {
        let tree = service.http.get("/admin/actors", Some(&admin)).json();
        let actors = tree["actors"].as_array().expect("actors");
        let workers = actors.iter().filter(|actor| actor["actor"] == "PartitionWorker");
        workers.map(|worker| worker["mailboxDepth"].as_u64()).all(|depth| depth == Some(0)).then_some(())
    });
    assert_eq!(fill_until(2.0, 14), Some([2.0, 0.35]));

    assert_eq!(place(&service.http), Err((503, "5".into())));
    assert_eq!(limit(), "\"default\";q=35000;w=60", "reads go on, narrower still");
    assert!(metric(&service.http, "backpressure_outbox_backlog") >= 10.0);
    publisher("resume");
    assert_eq!(stages_until(&service.http, 1.0, || ()), [[2.0, 0.35], [1.0, 0.7]], "one level at a time");
    answered.push(place(&service.http).expect("an elevated level takes writes"));
    assert_eq!(metric(&service.http, "rate_limit_dynamic_adjustments_total"), 3.0);
    service.drain();
    check::laws(&ground, &answered.into_iter().map(|id| (id, 1)).collect());
}

#[test]
fn a_pool_whose_connections_are_all_held_is_pressure_and_refuses_writes_before_they_pile_up() {
    let ground = Ground::new();
    // Two of nine connections are left for reads.
    let service = Posthaste::start(&ground, &[("POSTHASTE__STORE__POOL", "9")]);
    let (user, saturation) = (service.http.user(), "backpressure_db_saturation_percent");
    let id = place(&service.http).expect("calm");
    service.drain();
    await_metric(&service.http, saturation, SOON, |percent| percent == 0.0);
    let over = AtomicBool::new(false);
    ground.database.rows("BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE");

    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    let answer = service.http.get("/orders", Some(&user));
                    assert!([200, 503].contains(&answer.status), "{answer:?}");
                }
            });
        }
        let seen = stages_until(&service.http, 2.0, || ());
        assert_eq!(seen, [[0.0, 1.0], [1.0, 0.7], [2.0, 0.35]]);
        assert!(metric(&service.http, saturation) >= 90.0);
        assert_eq!(place(&service.http), Err((503, "5".into())), "at once, and not after a wait for a connection");
        over.store(true, SeqCst);
        ground.database.rows("ROLLBACK");
    });

    await_metric(&service.http, saturation, SOON, |percent| percent == 0.0);
    service.drain();
    check::laws(&ground, &[(id, 1)].into());
}

#[test]
fn consumers_that_fall_behind_are_pressure() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[("POSTHASTE__BACKPRESSURE__LAG", "1s,3s")]);
    place(&service.http).expect("calm");
    await_metric(&service.http, "kafka_consumer_processed_count_total", SOON, |count| count == 1.0);
    let lag = "backpressure_kafka_lag_ms";
    ground.database.rows("BEGIN; LOCK TABLE processed_events IN ACCESS EXCLUSIVE MODE");

    let id = place(&service.http).expect("calm");
    let seen = stages_until(&service.http, 2.0, || ());
    assert_eq!(seen, [[0.0, 1.0], [1.0, 0.7], [2.0, 0.35]]);
    assert!(metric(&service.http, lag) >= 3_000.0);
    assert_eq!(place(&service.http), Err((503, "5".into())));
    ground.database.rows("ROLLBACK");

    await_metric(&service.http, lag, SOON, |lag| lag == 0.0);
    service.drain();
    check::laws(&ground, &[(id, 1)].into());
}
