//! The guarantees under random failures: clients of the orders, other services that publish over HTTP and from SQL, three instances, and faults
//! from a seed in every component; then the checks of all evidence. `POSTHASTE_FAULTS=2000` injects more faults, `POSTHASTE_SEED=n` repeats a run.
mod external_events;

use std::time::{Duration, Instant};

use kit::wait::until_since;

use crate::chaos::actor_fault::await_all_running;
use crate::chaos::injection::inject;
use crate::chaos::schedule::{INSTANCES, ROUND_FAULTS, schedule};
use crate::cluster::fleet::Fleet;
use crate::harness::backend::Backend;
use crate::oracle::checks::{DeliveryGuarantee, violations};
use crate::oracle::clients::{CLIENTS, Clients};
use crate::oracle::event_clients::EventClients;
use crate::oracle::evidence::{await_drained, collect, collect_external};
use crate::oracle::sql_writers::SqlWriters;

/// Most rounds on one backend: the checks keep all its evidence in memory.
const ROUNDS_MAX: usize = 8;
/// Longest from the last repair until every instance accepts writes, as the contract says.
const RECOVERY_MAX: Duration = Duration::from_secs(30);
/// Clients that publish events over HTTP, and writers that publish from SQL, all with the same keys.
const PUBLISHERS: u8 = 3;

/// Failures are more frequent and shorter than in production, so retries and probes are more frequent too.
const SETTINGS: [(&str, &str); 3] = [
    ("POSTHASTE__OUTBOX__RETRY__MAX", "5s"),
    ("POSTHASTE__PROMOTION__INTERVAL", "0"),
    ("POSTHASTE__FAILOVER__PROBE_INTERVAL", "1s"),
];

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Number of faults of a run: `POSTHASTE_FAULTS`, or a default.
fn faults(default: usize) -> usize {
    number("POSTHASTE_FAULTS").map_or(default, |faults| faults as usize)
}

#[test]
fn under_random_failures_each_event_is_published_once_and_in_order() {
    run(faults(2 * ROUND_FAULTS), "exactly-once", DeliveryGuarantee::ExactlyOnce);
}

#[test]
fn in_at_least_once_mode_nothing_is_lost_and_first_occurrences_are_in_order() {
    run(faults(ROUND_FAULTS), "at-least-once", DeliveryGuarantee::AtLeastOnce);
}

fn run(faults: usize, delivery: &str, guarantee: DeliveryGuarantee) {
    let seed = number("POSTHASTE_SEED").unwrap_or_else(rand::random);
    let rounds = faults.div_ceil(ROUND_FAULTS);
    eprintln!("{delivery}: {} faults, POSTHASTE_SEED={seed}", rounds * ROUND_FAULTS);
    for first in (0..rounds).step_by(ROUNDS_MAX) {
        let seeds = (first..rounds.min(first + ROUNDS_MAX)).map(|round| seed.wrapping_add(round as u64));
        run_rounds(&seeds.collect::<Vec<u64>>(), delivery, guarantee);
    }
}

fn run_rounds(seeds: &[u64], delivery: &str, guarantee: DeliveryGuarantee) {
    let started = Instant::now();
    let backend = Backend::exclusive();
    let mut settings = SETTINGS.to_vec();
    let topic = backend.topic("customers");
    settings.extend([("POSTHASTE__BROKER__DELIVERY", delivery), ("POSTHASTE__BROKER__TOPICS", &*topic)]);
    let fleet = Fleet::start(&backend, INSTANCES, &settings);
    let endpoints = fleet.endpoints_with_short_timeout();
    let clients = Clients::start(&endpoints, CLIENTS, seeds[0]);
    let publishers = EventClients::start(&endpoints, &topic, usize::from(PUBLISHERS), seeds[0]);
    let writers = SqlWriters::start(&backend, &topic, PUBLISHERS, seeds[0]);
    for seed in seeds {
        inject(&schedule(*seed), &backend, &fleet);
        let repaired = Instant::now();
        let ready = fleet.await_ready(RECOVERY_MAX);
        let progress = || [clients.acknowledged(), publishers.acknowledged(), writers.completed()];
        let before = progress();
        until_since(repaired, "writes are acknowledged again", RECOVERY_MAX, || {
            progress().into_iter().zip(before).all(|(now, before)| now > before + CLIENTS).then_some(())
        });
        endpoints.iter().for_each(|instance| await_all_running(instance, repaired, RECOVERY_MAX));
        eprintln!("  seed {seed}: ready {ready:?} after the last repair, {before:?} acknowledgements so far");
    }
    // A batch of a client may wait for a writer.
    writers.finish();
    let batches = publishers.finish();
    let orders = clients.finish();

    await_drained(&backend);
    fleet.assert_no_unexpected_exit();
    let mut evidence = collect(&backend, &fleet.endpoints(), orders);
    collect_external(&backend, batches, &mut evidence);
    let duplicates = evidence.log.len().saturating_sub(evidence.consumed.len());
    eprintln!(
        "  {} orders, {} events, {duplicates} of them twice; {} events of other services, {} of SQL; {:?}",
        evidence.shown.len(),
        evidence.log.len(),
        evidence.events.len(),
        evidence.changes.len(),
        started.elapsed()
    );
    let violations = violations(&evidence, guarantee);
    let seeds = format!("seeds {seeds:?}");
    let first = &violations[..violations.len().min(40)];
    assert!(violations.is_empty(), "{} violations, {seeds}:\n{}", violations.len(), first.join("\n"));
    assert_eq!(backend.read("order.events-dlt").len(), 0, "{seeds}: an outage creates no dead letter");
}
