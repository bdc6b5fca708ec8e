//! A rolling restart of three instances under load. Timeouts are longer than any wait of the test, so that an event that waits for one of
//! them fails it. Latencies are printed.
use std::time::{Duration, Instant};

use kit::wait::{scaled, until};

use crate::cluster::fleet::Fleet;
use crate::harness::backend::Backend;
use crate::oracle::checks::{DeliveryGuarantee, violations};
use crate::oracle::clients::{CLIENTS, Clients};
use crate::oracle::evidence::{await_drained, collect};
use crate::stories::instances::LONG_TIMEOUTS;

/// Longest start, as the contract says.
const START_MAX: Duration = Duration::from_secs(10);
/// Acknowledgements that give a meaningful p99 of a phase.
const PHASE_ACKNOWLEDGEMENTS: usize = 1_500;
/// Shorter than any timeout: a partition that is not handed over waits more than a minute for its next owner.
const DELAY_MAX: Duration = Duration::from_secs(10);
/// Most that a rolling restart adds to the p99 of commit to settlement, as `docs/scale.md` says.
const ADDED_P99_MAX: Duration = Duration::from_secs(1);
/// Longest wait for clients and for settlements; the delays are judged.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Rolling restarts, of which one must keep to this p99: other work on the machine may delay some of them; only a slow handover delays all.
const RESTARTS_MAX: usize = 3;

#[test]
fn a_rolling_restart_duplicates_reorders_and_delays_no_event() {
    let backend = Backend::exclusive();
    let fleet = Fleet::start(&backend, 3, &LONG_TIMEOUTS);
    let clients = Clients::start(&fleet.endpoints_with_short_timeout(), CLIENTS, rand::random());
    await_acknowledged(&clients, PHASE_ACKNOWLEDGEMENTS);

    let mut missed = Vec::new();
    while let Err(delays) = restart_all(&backend, &fleet, &clients) {
        missed.push(delays);
        assert!(missed.len() < RESTARTS_MAX, "no rolling restart keeps to the p99: {missed:#?}");
    }
    let orders = clients.finish();

    await_drained(&backend);
    fleet.assert_no_unexpected_exit();
    let violations = violations(&collect(&backend, &fleet.endpoints(), orders), DeliveryGuarantee::ExactlyOnce);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// Restarts the instances one after the other; an error when that delayed the events too much.
fn restart_all(backend: &Backend, fleet: &Fleet<'_>, clients: &Clients) -> Result<(), String> {
    let started = now(backend);
    await_acknowledged(clients, PHASE_ACKNOWLEDGEMENTS);
    let rolling = now(backend);
    for member in 0..fleet.size() {
        let stopping = Instant::now();
        fleet.stop(member);
        fleet.assert_no_unexpected_exit();
        let stopped = stopping.elapsed();
        fleet.launch(member);
        let ready = fleet.await_ready(START_MAX);
        eprintln!("{} stopped within {stopped:?}, was ready again after {ready:?}", fleet.name(member));
    }
    let rolled = now(backend);
    await_acknowledged(clients, PHASE_ACKNOWLEDGEMENTS);
    let ended = now(backend);
    let unsettled = format!("SELECT count(*) FROM outbox_rows WHERE created_at < '{ended}' AND sent_at IS NULL");
    until("the events are settled", WAIT_MAX, || (backend.database.rows(&unsettled)[0][0] == "0").then_some(()));

    let [before, during, after] =
        [("before", &started, &rolling), ("during", &rolling, &rolled), ("after", &rolled, &ended)]
            .map(|(phase, from, to)| delays(backend, phase, from, to));
    let longest = during.longest;
    if longest >= scaled(DELAY_MAX).as_secs_f64() {
        return Err(format!("an event waited {longest} s for its partition's next owner"));
    }
    for (phase, delays) in [("during", &during), ("after", &after)] {
        let added = delays.p99 - before.p99;
        if added >= scaled(ADDED_P99_MAX).as_secs_f64() {
            return Err(format!("{phase} the restart, p99 is {added} s above that before it"));
        }
    }
    Ok(())
}

/// Waits until clients received this number of further acknowledgements.
fn await_acknowledged(clients: &Clients, more: usize) {
    let before = clients.acknowledged();
    until("clients receive acknowledgements", WAIT_MAX, || (clients.acknowledged() >= before + more).then_some(()));
}

/// Current time of the store, which also dates the events.
fn now(backend: &Backend) -> String {
    backend.database.rows("SELECT clock_timestamp()")[0][0].clone()
}

/// Delays between insertion and settlement of the events of one phase, in seconds.
struct Delays {
    p99: f64,
    longest: f64,
}

/// Reads and prints the delays of the events that were inserted in a phase.
fn delays(backend: &Backend, phase: &str, from: &str, to: &str) -> Delays {
    let took = "extract(epoch FROM sent_at - created_at)";
    let rank = |rank: &str| format!("percentile_disc({rank}) WITHIN GROUP (ORDER BY {took})");
    let statement = format!(
        "SELECT count(*), {}, {}, max({took}) FROM outbox_rows WHERE created_at >= '{from}' AND created_at < '{to}'",
        rank("0.5"),
        rank("0.99")
    );
    let row = backend.database.rows(&statement).remove(0);
    let [p50, p99, longest] = [1, 2, 3].map(|column: usize| row[column].parse::<f64>().expect("seconds"));
    eprintln!(
        "{phase} the rolling restart: {} events, commit → settled p50 {:.0} ms, p99 {:.0} ms, longest {:.0} ms",
        row[0],
        p50 * 1e3,
        p99 * 1e3,
        longest * 1e3
    );
    Delays { p99, longest }
}
