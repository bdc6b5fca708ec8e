//! A rolling restart of three instances under load, with times longer than any wait of a test: what it costs is printed, what it breaks is nothing.
use std::time::{Duration, Instant};

use kit::wait::{scaled, until};

use crate::clients::Clients;
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::instances::SLOW;
use crate::laws::{CLIENTS, await_drained, evidence};
use crate::verdict::{Copies, wrongs};

/// The contract's: a stop in order, and a start.
const STOP_MAX: Duration = Duration::from_secs(25);
const START_MAX: Duration = Duration::from_secs(10);
/// Answers that make a p99 of a time without a restart.
const ENOUGH: usize = 1_500;
/// Less than any time-out that an event could have waited for: a partition that was not handed over waits a
/// minute and more for its next owner.
const HELD_UP_MAX: Duration = Duration::from_secs(10);

#[test]
fn a_rolling_restart_of_three_instances_doubles_nothing_reorders_nothing_and_holds_no_event_up() {
    let ground = Ground::alone();
    let fleet = Fleet::start(&ground, 3, &SLOW);
    let clients = Clients::start(&fleet.doors(), CLIENTS, rand::random());
    answer(&clients, ENOUGH);

    let begun = now(&ground);
    answer(&clients, ENOUGH);
    let rolling = now(&ground);
    for member in 0..fleet.size() {
        let stopping = Instant::now();
        let mut process = fleet.take(member);
        process.signal("TERM");
        assert!(process.ended(STOP_MAX).success(), "{} leaves in order", fleet.name(member));
        let stopped = stopping.elapsed();
        fleet.launch(member);
        let ready = fleet.await_ready(START_MAX);
        eprintln!("{} stopped within {stopped:?}, was ready again after {ready:?}", fleet.name(member));
    }
    let rolled = now(&ground);
    answer(&clients, ENOUGH);
    let ended = now(&ground);
    let lines = clients.finish();

    await_drained(&ground);
    let [_, during, _] = [("before", &begun, &rolling), ("during", &rolling, &rolled), ("after", &rolled, &ended)]
        .map(|(phase, from, to)| held_up(&ground, phase, from, to));
    assert!(during < scaled(HELD_UP_MAX).as_secs_f64(), "an event waited {during} s for its partition's next owner");
    fleet.assert_no_surprises();
    let wrongs = wrongs(&evidence(&ground, &fleet.doors(), lines), Copies::One);
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}

/// Waits until so many more were answered.
fn answer(clients: &Clients, more: usize) {
    let before = clients.answered();
    until("clients are answered", Duration::from_secs(60), || (clients.answered() >= before + more).then_some(()));
}

/// By the store's clock, as everything is.
fn now(ground: &Ground) -> String {
    ground.database.rows("SELECT clock_timestamp()")[0][0].clone()
}

/// Prints how long events of a time took from their insertion to their settlement; the longest in seconds.
fn held_up(ground: &Ground, phase: &str, from: &str, to: &str) -> f64 {
    let took = "extract(epoch FROM sent_at - created_at)";
    let rank = |rank: &str| format!("percentile_disc({rank}) WITHIN GROUP (ORDER BY {took})");
    let statement = format!(
        "SELECT count(*), {}, {}, max({took}) FROM outbox_rows WHERE created_at >= '{from}' AND created_at < '{to}'",
        rank("0.5"),
        rank("0.99")
    );
    let row = ground.database.rows(&statement).remove(0);
    let [p50, p99, max] = [1, 2, 3].map(|column: usize| row[column].parse::<f64>().expect("seconds"));
    eprintln!(
        "{phase} the rolling restart: {} events, commit → settled p50 {:.0} ms, p99 {:.0} ms, longest {:.0} ms",
        row[0],
        p50 * 1e3,
        p99 * 1e3,
        max * 1e3
    );
    max
}
