//! Proof of the laws: clients, three instances, and everything under them failing by seed; then calm, and a judge who believes nobody.
//! `POSTHASTE_FAULTS=2000` for a night, `POSTHASTE_SEED=n` for the same again.
use std::time::{Duration, Instant};

use kit::wait::{until, until_ok, until_since};

use crate::book::{Line, read_back};
use crate::chaos::play;
use crate::clients::{Clients, name};
use crate::fault::{DECK, INSTANCES, schedule};
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::http::Http;
use crate::verdict::{Copies, Evidence, wrongs};

/// Callers, each with one request at a time.
pub const CLIENTS: usize = 6;
/// Decks played on one ground before the judge sits: what he reads at once has a limit.
const DECKS_MAX: usize = 8;
/// Longest from the last repair to an instance that takes writes: the contract's.
const RECOVERY: Duration = Duration::from_secs(30);
/// Longest until everything that piled up has left and was consumed.
const DRAIN: Duration = Duration::from_secs(120);

/// Everything fails more often and for a shorter time than in production, so everything about failing is quicker, too.
const SETTINGS: [(&str, &str); 3] = [
    ("POSTHASTE__OUTBOX__RETRY__MAX", "5s"),
    ("POSTHASTE__PROMOTION__INTERVAL", "0"),
    ("POSTHASTE__FAILOVER__PROBE_INTERVAL", "1s"),
];

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Faults of a run; so many in CI.
fn faults(otherwise: usize) -> usize {
    number("POSTHASTE_FAULTS").map_or(otherwise, |faults| faults as usize)
}

#[test]
fn whatever_fails_each_event_comes_once_and_in_order_and_no_answer_was_a_lie() {
    prove(faults(2 * DECK), "exactly-once", Copies::One);
}

#[test]
fn in_at_least_once_mode_nothing_is_lost_and_first_occurrences_are_in_order() {
    prove(faults(DECK), "at-least-once", Copies::AtLeastOne);
}

fn prove(faults: usize, delivery: &str, copies: Copies) {
    let seed = number("POSTHASTE_SEED").unwrap_or_else(rand::random);
    let decks = faults.div_ceil(DECK);
    eprintln!("{delivery}: {} faults, POSTHASTE_SEED={seed}", decks * DECK);
    for first in (0..decks).step_by(DECKS_MAX) {
        let seeds = (first..decks.min(first + DECKS_MAX)).map(|deck| seed.wrapping_add(deck as u64));
        on_one_ground(&seeds.collect::<Vec<u64>>(), delivery, copies);
    }
}

fn on_one_ground(seeds: &[u64], delivery: &str, copies: Copies) {
    let begun = Instant::now();
    let ground = Ground::alone();
    let mut settings = SETTINGS.to_vec();
    settings.push(("POSTHASTE__BROKER__DELIVERY", delivery));
    let fleet = Fleet::start(&ground, INSTANCES, &settings);
    let clients = Clients::start(&fleet.doors(), CLIENTS, seeds[0]);
    for seed in seeds {
        play(&schedule(*seed), &ground, &fleet);
        let repaired = Instant::now();
        let ready = fleet.await_ready(RECOVERY);
        let before = clients.answered();
        until_since(repaired, "writes are answered again", RECOVERY, || {
            (clients.answered() > before + CLIENTS).then_some(())
        });
        eprintln!("  seed {seed}: ready {ready:?} after the last repair, {before} answers so far");
    }
    let lines = clients.finish();

    await_drained(&ground);
    fleet.assert_no_surprises();
    let evidence = evidence(&ground, &fleet.doors(), lines);
    let doubles = evidence.log.len().saturating_sub(evidence.consumed.len());
    eprintln!(
        "  {} orders, {} events, {doubles} of them twice, {:?}",
        evidence.shown.len(),
        evidence.log.len(),
        begun.elapsed()
    );
    let wrongs = wrongs(&evidence, copies);
    let seeds = format!("seeds {seeds:?}");
    assert!(wrongs.is_empty(), "{} wrongs, {seeds}:\n{}", wrongs.len(), wrongs[..wrongs.len().min(40)].join("\n"));
    assert_eq!(ground.read("order.events-dlt").len(), 0, "{seeds}: a service that was away dead-letters nothing");
}

/// Looks into the store itself: nothing is parked, nothing waits, and what left was consumed.
pub fn await_drained(ground: &Ground) {
    until_ok(Instant::now(), DRAIN, || {
        let rows = ground.database.rows("SELECT row_to_json(outbox), status FROM outbox ORDER BY id LIMIT 20");
        assert!(rows.iter().all(|row| row[1].as_str() < "3"), "parked: {rows:?}");
        let Some(first) = rows.first() else { return Ok(()) };
        let leases = ground.database.rows(
            "SELECT row_to_json(outbox_lease) FROM outbox_lease WHERE partition IN (SELECT partition FROM outbox)",
        );
        Err(format!("at least {} rows to leave, first {}, from {leases:?}", rows.len(), first[0]))
    });
    until("everything was consumed", DRAIN, || {
        let figures =
            "SELECT (SELECT count(*) FROM processed_events), (SELECT coalesce(sum(events), 0) FROM outbox_archive)";
        let rows = ground.database.rows(figures);
        (rows[0][0] == rows[0][1]).then_some(())
    });
}

/// Reads everything back, each order also by itself, at any instance.
pub fn evidence(ground: &Ground, doors: &[Http], lines: Vec<Line>) -> Evidence {
    let tokens = (0..CLIENTS).map(|client| doors[0].token(&name(client), "USER"));
    let mut evidence = Evidence { lines, ..Evidence::default() };
    for token in tokens {
        evidence.shown.extend(read_back(&doors[0], &token));
    }
    let admin = doors[0].admin();
    for ((id, shown), door) in evidence.shown.iter().zip(doors.iter().cycle()) {
        // Another instance may be behind for 5 s.
        until(&format!("{} shows {id} as {shown:?}", door.base()), Duration::from_secs(6), || {
            let answer = door.get(&format!("/orders/{id}"), Some(&admin));
            (answer.status == 200 && crate::book::Shown::of(&answer.json()) == *shown).then_some(())
        });
    }
    evidence.log = ground.read("order.events");
    let consumed =
        ground.database.rows("SELECT event_id FROM processed_events WHERE consumer_group = 'order-processing-group'");
    evidence.consumed = consumed.into_iter().map(|mut row| row.remove(0)).collect();
    evidence
}
