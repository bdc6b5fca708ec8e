//! Fail-overs to an asynchronous standby under load: the primary is killed at a random moment, and the standby lacks its last commits:
//! claims, exclusions of rows that the broker refuses, and settlements. Nothing is lost that the standby has, the order of each key is kept,
//! only what the standby had not seen settled appears twice, and each refused row is parked.
//! `POSTHASTE_SEED=n` repeats the moments of a run.
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kit::clock::SeededRng;
use kit::wait::{pause, until};
use ports::clock::Rng;
use serde_json::{Value, json};

use crate::cluster::fleet::Fleet;
use crate::harness::backend::Backend;
use crate::harness::load::Load;
use crate::harness::process::{command, finish};
use crate::harness::replicated_database::ReplicatedDatabase;

/// Fail-overs of one run.
const FAIL_OVERS: usize = 4;
/// Longest from the promotion until every instance accepts writes, and longest until every event is sent.
const RECOVERY_MAX: Duration = Duration::from_secs(60);
/// The standby is stalled up to this long after load runs, and the primary is killed up to this long after that.
const DELAY_MAX_MS: u64 = 700;
const CLIENTS: usize = 6;
/// Largest record that the event topic accepts, in bytes; a record with a [`large_order`] is larger.
const RECORD_BYTES_MAX: u32 = 30_000;

/// The events of a key with a PARKED row do not count: they wait for an operator.
const EVENTS: &str = "SELECT e.event_id, e.key, e.sequence FROM outbox_event e
    WHERE NOT EXISTS (SELECT FROM outbox o WHERE o.key = e.key AND o.status >= 3)";
const WAITING: &str = "SELECT count(*) FROM outbox q WHERE q.status < 3
    AND NOT EXISTS (SELECT FROM outbox o WHERE o.key = q.key AND o.status >= 3)";
/// The sizes of the PARKED events, in bytes.
const PARKED: &str =
    "SELECT octet_length(e.payload) FROM outbox o JOIN outbox_event e ON e.id = o.id WHERE o.status >= 3";
const SETTLED: &str =
    "SELECT e.event_id FROM outbox_archive a CROSS JOIN unnest(a.ids) i (id) JOIN outbox_event e ON e.id = i.id";
/// Whether the present timeline is the one that was accepted.
const IS_ACCEPTED: &str =
    "SELECT adopted AND timeline LIKE '%/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) FROM store_timeline";

/// The events that a standby had when it was promoted.
struct Promotion {
    events: BTreeSet<String>,
    settled: BTreeSet<String>,
}

impl Promotion {
    fn of(database: &ReplicatedDatabase) -> Self {
        let ids = |statement: &str| database.rows(statement).into_iter().map(|mut row| row.remove(0)).collect();
        Self { events: ids(EVENTS), settled: ids(SETTLED) }
    }

    /// Whether the event may be published once more after this promotion.
    fn may_repeat(&self, event: &str) -> bool {
        self.events.contains(event) && !self.settled.contains(event)
    }
}

#[test]
fn fail_overs_to_an_asynchronous_standby_lose_nothing_that_it_has() {
    let seed = std::env::var("POSTHASTE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    eprintln!("POSTHASTE_SEED={seed}");
    let (rng, backend) = (SeededRng::new(seed), Backend::new());
    let mut database = ReplicatedDatabase::start();
    let url = database.url();
    let fleet = Fleet::new(&backend, 2, &[("POSTHASTE__STORE__URL", &url), ("POSTHASTE__OUTBOX__RETRY__MAX", "5s")]);
    (0..fleet.size()).for_each(|member| fleet.launch(member));
    fleet.await_ready(RECOVERY_MAX);
    assert_doctor_names_the_standby(&backend, &url);
    backend.configure("order.events", "max.message.bytes", &RECORD_BYTES_MAX.to_string());
    let load = |endpoint| [Load::start(endpoint, CLIENTS), Load::start_with(endpoint, 1, large_order)];
    let mut loads: Vec<Load> = fleet.endpoints_with_short_timeout().iter().flat_map(load).collect();
    let mut promotions = Vec::new();

    for round in 0..FAIL_OVERS {
        let before = acknowledged(&loads);
        until("load runs", RECOVERY_MAX, || (acknowledged(&loads) > before + 200).then_some(()));
        pause(Duration::from_millis(rng.next_u64() % DELAY_MAX_MS));
        database.stall_replication();
        pause(Duration::from_millis(rng.next_u64() % DELAY_MAX_MS));
        // The machine of the primary may take an instance with it, whose producer session the standby has forgotten.
        let lost = (rng.next_u64().is_multiple_of(2)).then_some(round % fleet.size());
        lost.into_iter().for_each(|member| fleet.kill(member));
        database = database.fail_over();
        let promotion = Promotion::of(&database);
        let (events, settled) = (promotion.events.len(), promotion.settled.len());
        promotions.push(promotion);
        database.admit_services();
        lost.into_iter().for_each(|member| fleet.launch(member));
        let ready = fleet.await_ready(RECOVERY_MAX);
        until("the new timeline is accepted", RECOVERY_MAX, || (database.rows(IS_ACCEPTED) == [["t"]]).then_some(()));
        eprintln!(
            "  fail-over {round}: {events} events, {settled} of them settled, instance lost: {lost:?}, ready after {ready:?}"
        );
    }
    let before = acknowledged(&loads);
    until("writes are acknowledged again", RECOVERY_MAX, || (acknowledged(&loads) > before + 50).then_some(()));
    let orders: BTreeSet<String> = loads.drain(..).flat_map(|load| load.finish().into_keys()).collect();
    until("no event waits", RECOVERY_MAX, || (database.rows(WAITING) == [["0"]]).then_some(()));
    fleet.assert_no_unexpected_exit();

    let parked: Vec<u32> = database.rows(PARKED).iter().map(|row| row[0].parse().expect("a size")).collect();
    assert!(!parked.is_empty(), "seed {seed}: the broker refused no record");
    assert!(
        parked.iter().all(|bytes| *bytes > RECORD_BYTES_MAX),
        "seed {seed}: a record that fits was parked: {parked:?}"
    );

    let log = PublishedEvents::read(&backend);
    let stored = database.rows(EVENTS);
    assert_complete(&stored, &log, seed);
    let copies_max = |event: &str| 1 + promotions.iter().filter(|promotion| promotion.may_repeat(event)).count();
    let too_many: Vec<_> = log.copies.iter().filter(|(event, copies)| **copies > copies_max(event)).collect();
    assert!(too_many.is_empty(), "seed {seed}: settled before the promotion, and published again: {too_many:?}");
    let repeated = log.copies.values().filter(|copies| **copies > 1).count();
    let keys = database.rows("SELECT DISTINCT key FROM outbox_event");
    let keys: BTreeSet<&String> = keys.iter().map(|row| &row[0]).collect();
    let gone = orders.iter().filter(|order| !keys.contains(order)).count();
    eprintln!(
        "  {} events in the store, {} parked, {repeated} published twice, {gone} of {} orders gone",
        stored.len(),
        parked.len(),
        orders.len()
    );
}

/// An order whose events the topic refuses.
fn large_order(_round: u32) -> Value {
    let item = json!({"productName": "T".repeat(250), "quantity": 1, "price": 1});
    json!({"items": vec![item; 150]})
}

fn acknowledged(loads: &[Load]) -> usize {
    loads.iter().map(Load::acknowledged).sum()
}

fn assert_doctor_names_the_standby(backend: &Backend, url: &str) {
    // A database that a busy machine slows down exceeds the doctor's limit, and its standbys are not known.
    let (finding, errors) = until("the doctor finds the standby", RECOVERY_MAX, || {
        let (_, findings, errors) = finish(command(backend, &["doctor", "--json"]).env("POSTHASTE__STORE__URL", url));
        let mut findings = findings.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Some((findings.find(|finding| finding["check"] == "standbys")?, errors))
    });
    let detail = finding["detail"].as_str().expect("text");
    assert!(finding["ok"] == false && detail.contains("walreceiver"), "{finding} {errors}");
}

/// The event log: how often each event is in it, and the first occurrences of each key.
struct PublishedEvents {
    copies: BTreeMap<String, usize>,
    first: BTreeMap<String, Vec<String>>,
}

impl PublishedEvents {
    fn read(backend: &Backend) -> Self {
        let mut log = Self { copies: BTreeMap::new(), first: BTreeMap::new() };
        for event in backend.events() {
            let id = event["headers"]["ce_id"].as_str().expect("an id").to_owned();
            let copies = log.copies.entry(id.clone()).or_default();
            *copies += 1;
            if *copies == 1 {
                log.first.entry(event["key"].as_str().expect("a key").to_owned()).or_default().push(id);
            }
        }
        log
    }
}

/// Each stored event is in the log, and those of one key in the order of their sequence.
fn assert_complete(stored: &[Vec<String>], log: &PublishedEvents, seed: u64) {
    let lost: Vec<&String> =
        stored.iter().map(|row| &row[0]).filter(|event| !log.copies.contains_key(*event)).collect();
    assert!(lost.is_empty(), "seed {seed}: {} of {} events are not in the log: {lost:?}", lost.len(), stored.len());
    let mut keys: BTreeMap<&String, BTreeMap<u64, &String>> = BTreeMap::new();
    for row in stored {
        keys.entry(&row[1]).or_default().insert(row[2].parse().expect("a sequence"), &row[0]);
    }
    for (key, events) in keys {
        let expected: Vec<&String> = events.into_values().collect();
        let of_store = |event: &&String| expected.contains(event);
        let found: Vec<&String> = log.first[key].iter().filter(of_store).collect();
        assert_eq!(found, expected, "seed {seed}: the events of {key} are out of order");
    }
}
