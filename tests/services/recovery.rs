//! A service under the service goes away, and comes back: with the times of production, every instance takes writes and sends events
//! again within 30 s, and the outage has cost nothing that shows.
use std::time::{Duration, Instant};

use kit::wait::{until, until_since};

use crate::chaos::pass;
use crate::check;
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::http::{Http, tea};
use crate::load::Load;
use crate::services::Service;

/// The contract's.
const RECOVERY: Duration = Duration::from_secs(30);
/// The default: what most installations have.
const BREAKER: (&str, &str) = ("POSTHASTE__BROKER__BREAKER__OPEN", "20s");
/// Attempts that a row may have had when the breaker opens: each failure counts as one.
const ATTEMPTS_MAX: u64 = 5;
/// How long a service stays away: longer than any retry inside a client.
const OUTAGE: Duration = Duration::from_secs(8);

#[test]
fn after_an_outage_of_kafka_everything_flows_again_and_no_attempt_was_wasted() {
    let ground = Ground::alone();
    let fleet = Fleet::start(&ground, 2, &[BREAKER]);
    let doors = fleet.doors();
    let load = Load::start(&doors[0], 4);
    until("load runs", RECOVERY, || (load.answered() > 50).then_some(()));

    ground.war().kill(Service::Kafka);
    let answered = load.answered();
    pass(OUTAGE);
    assert!(load.answered() > answered, "orders go on without a broker");
    let before = attempts(&ground);
    pass(OUTAGE);
    let after = attempts(&ground);
    assert!(
        after <= before + 1 && after <= ATTEMPTS_MAX,
        "attempts went from {before} to {after} while nobody was there"
    );
    ground.war().start(Service::Kafka);
    let begun = Instant::now();

    recovered(&ground, &fleet, begun);
    finish(&ground, &fleet, load);
}

#[test]
fn after_an_outage_of_postgresql_every_instance_takes_writes_again() {
    let ground = Ground::alone();
    let fleet = Fleet::start(&ground, 2, &[BREAKER]);
    let doors = fleet.doors();
    let load = Load::start(&doors[0], 4);
    until("load runs", RECOVERY, || (load.answered() > 50).then_some(()));

    ground.war().kill(Service::Postgres);
    until("readiness is red", RECOVERY, || {
        doors.iter().all(|door| door.get("/readyz", None).status == 503).then_some(())
    });
    pass(OUTAGE);
    assert!(doors.iter().all(|door| door.get("/livez", None).status == 200), "nobody restarts them for that");
    ground.war().start(Service::Postgres);
    let begun = Instant::now();

    recovered(&ground, &fleet, begun);
    finish(&ground, &fleet, load);
}

#[test]
fn an_outage_of_redis_costs_no_order_and_nothing_stale_is_shown_after_it() {
    let ground = Ground::alone();
    let fleet = Fleet::start(&ground, 2, &[BREAKER]);
    let doors = fleet.doors();
    let (user, admin) = (doors[0].user(), doors[0].admin());
    let order = doors[0].post("/orders", &user, &[], &tea(1)).json();
    let path = format!("/orders/{}", order["id"].as_str().expect("an id"));
    for door in &doors {
        assert_eq!(door.get(&path, Some(&user)).json()["version"], 0, "it is in the cache now");
    }
    let load = Load::start(&doors[0], 4);
    until("load runs", RECOVERY, || (load.answered() > 50).then_some(()));

    ground.war().kill(Service::Redis);
    let answered = load.answered();
    let change = serde_json::json!({"status": "SHIPPED", "version": 0});
    assert_eq!(doors[1].patch(&format!("{path}/status"), &admin, &[], &change).status, 200, "without the cache, too");
    pass(OUTAGE);
    assert!(load.answered() > answered + 20, "orders go on without the cache");
    ground.war().start(Service::Redis);
    let begun = Instant::now();

    assert_eq!(doors[1].get(&path, Some(&user)).json()["version"], 1, "who answered a change shows it at once");
    until("the other one shows it, too", Duration::from_secs(5), || {
        (doors[0].get(&path, Some(&user)).json()["version"] == 1).then_some(())
    });
    recovered(&ground, &fleet, begun);
    finish(&ground, &fleet, load);
}

/// Every instance is ready, takes a write, and its event leaves.
fn recovered(ground: &Ground, fleet: &Fleet<'_>, begun: Instant) {
    let ready = fleet.await_ready_since(begun, RECOVERY);
    let place = |door: &Http| {
        let answer = door.try_send("POST", "/orders", Some(&door.user()), &[], Some(tea(1).to_string()));
        answer
            .ok()
            .filter(|answer| answer.status == 201)
            .map(|answer| answer.json()["id"].as_str().expect("an id").to_owned())
    };
    let ids: Vec<String> =
        fleet.doors().iter().map(|door| until_since(begun, "a write is taken", RECOVERY, || place(door))).collect();
    let writes = begun.elapsed();
    for id in ids {
        until_since(begun, "its event has left", RECOVERY, || {
            let statement = format!("SELECT status FROM outbox_rows WHERE key = '{id}'");
            ground.database.rows(&statement).iter().all(|row| row[0] == "SENT").then_some(())
        });
    }
    eprintln!("ready {ready:?}, writes {writes:?}, events {:?} after it was back", begun.elapsed());
}

fn finish(ground: &Ground, fleet: &Fleet<'_>, load: Load) {
    let answered = load.finish();
    until("everything has left", RECOVERY, || {
        let rows = ground.database.rows("SELECT id, status, reason FROM outbox LIMIT 20");
        assert!(rows.iter().all(|row| row[1].as_str() < "3"), "parked: {rows:?}");
        rows.is_empty().then_some(())
    });
    check::laws(ground, &answered);
    fleet.assert_no_surprises();
}

/// Most attempts that a waiting row has had.
fn attempts(ground: &Ground) -> u64 {
    ground.database.rows("SELECT coalesce(max(attempts), 0) FROM outbox")[0][0].parse().expect("a number")
}
