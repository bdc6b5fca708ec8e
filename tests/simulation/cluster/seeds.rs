//! The real actors of two or three instances on a simulated PostgreSQL and a simulated Kafka, in virtual time: a thousand seeds, an exact
//! replay, and the proof that the simulation finds damage.
//!
//! `POSTHASTE_SEEDS=n` sets the number of seeds (0: until stopped), `POSTHASTE_FIRST_SEED=n` where they begin, `POSTHASTE_SEED=n` repeats one,
//! `POSTHASTE_TRACE=1` prints what happens.
use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;

use crate::cluster::flaw::Flaw;
use crate::cluster::kafka::delivery_guarantee::DeliveryGuarantee;
use crate::cluster::run::run;
use crate::cluster::trace::EventCounts;
use crate::support::environment::seeds;

/// Seeds of a normal test run.
const SEEDS: u64 = 1_000;
/// Seeds of a normal test run without transactions: the mode has fewer steps.
const AT_LEAST_ONCE_SEEDS: u64 = 300;
/// Number of seeds between two progress lines.
const PROGRESS_INTERVAL: u64 = 10_000;
/// Seeds within which each flaw must be found.
const SEEDS_PER_FLAW: u64 = 400;

/// Trace events that must occur in a hundred seeds: without one of them, the runs do not test the rule that it concerns.
const EXPECTED_EVENTS: [&str; 33] = [
    "abort_transaction",
    "accept_timeline",
    "applied",
    "cut",
    "duplicate message",
    "exclude",
    "fail-over",
    "fenced claim",
    "freeze",
    "kill",
    "known event",
    "late request",
    "long transaction",
    "lost reply",
    "lost request",
    "permanent failure",
    "refused commit",
    "refused connection",
    "resolved after a death",
    "resolved as not sent",
    "resolved as published",
    "revocation",
    "rollback",
    "savepoint",
    "session over",
    "slow handler",
    "slow link",
    "stale settlement",
    "stall",
    "stop",
    "transient failure",
    "undone settlement",
    "used key",
];

/// Trace events that must occur without transactions: no producer is fenced, and no batch is resolved as published.
const EXPECTED_EVENTS_AT_LEAST_ONCE: [&str; 21] = [
    "applied",
    "cut",
    "duplicate",
    "duplicate message",
    "exclude",
    "fail-over",
    "freeze",
    "kill",
    "known event",
    "late request",
    "long transaction",
    "lost reply",
    "lost request",
    "resolved after a death",
    "resolved as not sent",
    "rollback",
    "savepoint",
    "session over",
    "transient failure",
    "undone settlement",
    "used key",
];

/// Runs the seeds on all processors until one breaks an invariant. Returns the number of runs, the counts of their events, and the violation.
fn run_all(
    seeds: impl Iterator<Item = u64> + Send,
    mode: DeliveryGuarantee,
    test: &str,
) -> (u64, EventCounts, Option<String>) {
    let (seeds, counts, violation) = (Mutex::new(seeds), Mutex::new(EventCounts::new()), Mutex::new(None));
    let (stops, runs) = (AtomicBool::new(false), AtomicU64::new(0));
    let work = || {
        while !stops.load(SeqCst) {
            let Some(seed) = seeds.lock().next() else { return };
            let report = run(seed, mode, None);
            let mut counts = counts.lock();
            report.counts.into_iter().for_each(|(kind, count)| *counts.entry(kind).or_default() += count);
            drop(counts);
            if let Err(broken) = report.result {
                stops.store(true, SeqCst);
                let command = format!("cargo test --test simulation cluster::seeds::{test}");
                let replay = format!("POSTHASTE_TRACE=1 POSTHASTE_SEED={seed} {command} -- --nocapture");
                violation.lock().get_or_insert(format!("seed {seed}: {broken}\nrepeat with: {replay}"));
            }
            let runs = runs.fetch_add(1, SeqCst) + 1;
            if runs.is_multiple_of(PROGRESS_INTERVAL) {
                // Not captured: a run without end reports its progress.
                let _ = writeln!(std::io::stderr(), "{runs} seeds, the last one {seed}");
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    (runs.into_inner(), counts.into_inner(), violation.into_inner())
}

fn assert_invariants(
    seeds: impl Iterator<Item = u64> + Send,
    mode: DeliveryGuarantee,
    expected: &[&'static str],
    test: &str,
) {
    let (runs, counts, violation) = run_all(seeds, mode, test);

    assert!(violation.is_none(), "{}", violation.unwrap_or_default());
    let missing: Vec<&&str> = expected.iter().filter(|kind| !counts.contains_key(**kind)).collect();
    assert!(runs < 100 || missing.is_empty(), "never happened in {runs} seeds: {missing:?}");
    // Not captured: the figures belong to the test's output.
    let _ = writeln!(std::io::stderr(), "{runs} seeds: {counts:?}");
}

#[test]
fn invariants_hold_on_a_simulated_postgres_and_kafka_for_a_thousand_seeds() {
    assert_invariants(seeds(SEEDS), DeliveryGuarantee::ExactlyOnce, &EXPECTED_EVENTS, "invariants_hold");
}

#[test]
fn at_least_once_loses_and_reorders_nothing_on_a_simulated_postgres_and_kafka() {
    assert_invariants(
        seeds(AT_LEAST_ONCE_SEEDS),
        DeliveryGuarantee::AtLeastOnce,
        &EXPECTED_EVENTS_AT_LEAST_ONCE,
        "at_least_once",
    );
}

#[test]
fn a_seed_replays_exactly() {
    for (seed, mode) in
        (1..=5).flat_map(|seed| [(seed, DeliveryGuarantee::ExactlyOnce), (seed, DeliveryGuarantee::AtLeastOnce)])
    {
        let (first, second) = (run(seed, mode, None), run(seed, mode, None));

        assert!(first.counts["commit"] >= 10, "the writers did work: {first:?}");
        assert_eq!(first.fingerprint, second.fingerprint, "seed {seed}: {:?} {:?}", first.counts, second.counts);
    }
}

#[test]
fn every_flaw_of_a_simulated_server_is_found() {
    for flaw in Flaw::ALL {
        // Another violation, such as a run that never becomes quiescent, does not show that the damage of the flaw is found.
        let broken = |seed| {
            let violation = run(seed, flaw.mode(), Some(flaw)).result.err()?;
            violation.contains(flaw.expected()).then_some((seed, violation))
        };
        let found = (1..=SEEDS_PER_FLAW).find_map(broken);

        let (seed, violation) =
            found.unwrap_or_else(|| panic!("{flaw:?}: no {:?} in {SEEDS_PER_FLAW} seeds", flaw.expected()));
        // Not captured: which invariant finds a flaw belongs to the test's output.
        let line = violation.lines().find(|line| line.contains(flaw.expected())).unwrap_or_default();
        let _ = writeln!(std::io::stderr(), "{flaw:?} is found by seed {seed}: {line}");
    }
}
