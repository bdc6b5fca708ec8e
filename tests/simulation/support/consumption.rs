//! Consumption: the invariant of consumed topics. Each event is applied once, in the order of its key, or it is among the dead letters, and never
//! both.
use std::collections::{BTreeMap, BTreeSet};

use ports::broker::consumer_groups::ConsumerRecord;

use crate::support::record_faults::header;

/// A topic, and what its consumers did with it. Events are named by their ids.
pub struct Consumption<'a> {
    /// The records of the topic.
    pub published: &'a [ConsumerRecord],
    /// The records among the dead letters.
    pub dead_letters: &'a [ConsumerRecord],
    /// The applied events, in the order of their application.
    pub applied: &'a [String],
}

impl Consumption<'_> {
    /// The first broken rule, apart from the order.
    ///
    /// # Errors
    /// An event is lost, applied twice, applied and a dead letter, or of another topic.
    pub fn check_once(&self) -> Result<(), String> {
        let events = ids(self.published);
        let dead = ids(self.dead_letters);
        let mut applied: BTreeSet<&String> = BTreeSet::new();
        if let Some(twice) = self.applied.iter().find(|event| !applied.insert(*event)) {
            return Err(format!("event {twice} was applied twice"));
        }
        if let Some(both) = dead.iter().find(|event| applied.contains(*event)) {
            return Err(format!("event {both} was applied and is a dead letter"));
        }
        if let Some(lost) = events.iter().find(|event| !applied.contains(*event) && !dead.contains(*event)) {
            return Err(format!("event {lost} was neither applied nor is it a dead letter"));
        }
        match applied.into_iter().chain(&dead).find(|event| !events.contains(*event)) {
            Some(unknown) => Err(format!("event {unknown} was consumed and is not in the topic")),
            None => Ok(()),
        }
    }

    /// The events of a key were applied in their order.
    ///
    /// # Errors
    /// An event was applied after a later one of its key.
    pub fn check_order(&self) -> Result<(), String> {
        let sequences: BTreeMap<String, (&str, u64)> = self.published.iter().map(id_key_and_sequence).collect();
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for event in self.applied {
            let Some((key, sequence)) = sequences.get(event) else { continue };
            let before = last.insert(key, *sequence).unwrap_or(0);
            if before > *sequence {
                return Err(format!("key {key}: event {sequence} was applied after event {before}"));
            }
        }
        Ok(())
    }
}

fn ids(messages: &[ConsumerRecord]) -> BTreeSet<String> {
    messages.iter().map(|message| header(&message.record, "ce_id")).collect()
}

/// The id, the key and the number in its key of an event.
fn id_key_and_sequence(message: &ConsumerRecord) -> (String, (&str, u64)) {
    let record = &message.record;
    let sequence = header(record, "x-sequence").parse().expect("a sequence is a number");
    (header(record, "ce_id"), (&*record.key, sequence))
}
