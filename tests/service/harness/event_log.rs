//! The guarantees of the event log: each event of an acknowledged order is there once, in order per key, without a gap.
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::load::REFUSED;

/// Sequence numbers per key, in the order of the log.
pub fn sequences(events: &[Value]) -> BTreeMap<String, Vec<u64>> {
    let mut keys: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for event in events {
        let key = event["key"].as_str().expect("a key").to_owned();
        let sequence = event["headers"]["x-sequence"].as_str().expect("a sequence").parse().expect("a number");
        keys.entry(key).or_default().push(sequence);
    }
    keys
}

/// Asserts the guarantees for these orders, each with the number of its acknowledged changes (the create counts as one).
/// The log may have other orders, whose responses were lost; their events too must be in order and without a gap. A request that was
/// refused has changed nothing, so it has no event.
#[track_caller]
pub fn assert_complete(backend: &Backend, acknowledged: &BTreeMap<String, u64>) {
    let events = backend.events();
    let ids: BTreeSet<&str> = events.iter().map(|event| event["headers"]["ce_id"].as_str().expect("an id")).collect();
    assert_eq!(ids.len(), events.len(), "an event is in the log twice");
    let sequences = sequences(&events);
    for (key, seen) in &sequences {
        let gapless: Vec<u64> = (1..=seen.len() as u64).collect();
        assert_eq!(*seen, gapless, "the events of {key} are out of order or have a gap");
    }
    for (key, changes) in acknowledged {
        let seen = sequences.get(key).map_or(0, |seen| seen.len() as u64);
        assert!(seen >= *changes, "order {key} has {changes} acknowledged changes, and {seen} events in the log");
    }
    let refused = REFUSED.lock().expect("not poisoned");
    for event in &events {
        let product = event["value"]["items"][0]["productName"].as_str().unwrap_or_default();
        assert!(!refused.orders.contains(product), "an order that was refused has an event: {event}");
    }
    for key in refused.changes.iter().filter(|key| sequences.contains_key(*key)) {
        assert_eq!(sequences[key].len(), 1, "a change of order {key} was refused and has an event");
    }
}
