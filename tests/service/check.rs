//! What must be true of the log, whatever was killed: every answered order's events are there, once, in order per key, without a gap.
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::ground::Ground;

/// Sequences per key, in the order of the log.
pub fn sequences(events: &[Value]) -> BTreeMap<String, Vec<u64>> {
    let mut keys: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for event in events {
        let key = event["key"].as_str().expect("a key").to_owned();
        let sequence = event["headers"]["x-sequence"].as_str().expect("a sequence").parse().expect("a number");
        keys.entry(key).or_default().push(sequence);
    }
    keys
}

/// Asserts the laws over the log for these answered orders, each with the number of its answered changes (its create counts).
/// An order nobody was answered for may be there too (its answer was lost); what is there must be in order and without a gap.
#[track_caller]
pub fn laws(ground: &Ground, answered: &BTreeMap<String, u64>) {
    let events = ground.events();
    let names: BTreeSet<&str> = events.iter().map(|event| event["headers"]["ce_id"].as_str().expect("an id")).collect();
    assert_eq!(names.len(), events.len(), "an event stands twice in the log");
    let sequences = sequences(&events);
    for (key, seen) in &sequences {
        let gapless: Vec<u64> = (1..=seen.len() as u64).collect();
        assert_eq!(*seen, gapless, "the events of {key} are out of order or have a gap");
    }
    for (key, changes) in answered {
        let seen = sequences.get(key).map_or(0, |seen| seen.len() as u64);
        assert!(seen >= *changes, "order {key} was answered {changes} times, the log has {seen} of its events");
    }
}
