//! Checks of the events of other services: what SQL writers committed and HTTP clients published, compared with the records of their topic.
use std::collections::{BTreeMap, BTreeSet};

use ports::broker::Record;
use ports::broker::consumer_groups::ConsumerRecord;
use serde_json::Value;

use crate::oracle::checks::{DeliveryGuarantee, Evidence, log_violations};
use crate::oracle::event_clients::{ClientBatch, HTTP_TYPE, SubmissionOutcome, http_value};
use crate::oracle::sql_writers::{SQL_CONTENT_TYPE, SQL_TYPE, SqlChange, TENANT, sql_value};

/// Adds each violation of a guarantee by these events.
pub fn check_external(evidence: &Evidence, guarantee: DeliveryGuarantee, violations: &mut Vec<String>) {
    violations.extend(log_violations(&evidence.events, &[], guarantee));
    let mut check = ExternalCheck::of(evidence);
    let mut seen = BTreeSet::new();
    for ConsumerRecord { record, .. } in &evidence.events {
        let id = record.text("ce_id").unwrap_or_default();
        // A further copy may be at any position.
        if seen.insert(id) {
            check.check_record(id, record);
        }
    }
    check.report_missing();
    violations.append(&mut check.violations);
}

/// An HTTP client's own name for an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ClientEvent {
    client: usize,
    number: u64,
    index: usize,
}

impl ClientEvent {
    fn of(record: &Record) -> Option<Self> {
        let value: Value = serde_json::from_slice(&record.value).ok()?;
        let number = |name: &str| value[name].as_u64();
        Some(Self { client: number("client")? as usize, number: number("number")?, index: number("index")? as usize })
    }
}

/// The events that may be in the topic, and those that were found so far.
struct ExternalCheck<'a> {
    changes: BTreeMap<&'a str, &'a SqlChange>,
    batches: BTreeMap<(usize, u64), &'a ClientBatch>,
    found_changes: BTreeSet<&'a str>,
    found_batches: BTreeMap<(usize, u64), BTreeSet<usize>>,
    /// The last position of each key.
    positions: BTreeMap<&'a str, u64>,
    /// The last event of each key and client. A batch with an unknown outcome may commit after later ones, so it counts by itself.
    client_events: BTreeMap<(&'a str, usize, Option<u64>), ClientEvent>,
    violations: Vec<String>,
}

impl<'a> ExternalCheck<'a> {
    fn of(Evidence { changes, batches, .. }: &'a Evidence) -> Self {
        Self {
            changes: changes.iter().map(|change| (&*change.event_id, change)).collect(),
            batches: batches.iter().map(|batch| ((batch.client, batch.number), batch)).collect(),
            found_changes: BTreeSet::new(),
            found_batches: BTreeMap::new(),
            positions: BTreeMap::new(),
            client_events: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    /// Checks the first record of an event.
    fn check_record(&mut self, id: &str, record: &Record) {
        if let Some(change) = self.changes.get(id).copied() {
            self.check_change(change, record);
            return;
        }
        let event = ClientEvent::of(record);
        let batch = event.and_then(|event| self.batches.get(&(event.client, event.number)).copied());
        match event.zip(batch) {
            Some((event, batch)) if event.index < batch.keys.len() => self.check_client_event(id, event, batch, record),
            _ => self.violations.push(format!("event {id} of {}: no writer committed it", record.key)),
        }
    }

    fn check_change(&mut self, change: &'a SqlChange, record: &Record) {
        let (id, key, position) = (&*change.event_id, &*change.key, change.position);
        self.found_changes.insert(id);
        self.check_content(id, record, (key, SQL_TYPE, SQL_CONTENT_TYPE), &sql_value(change.writer));
        if let Some(before) = self.positions.insert(key, position).filter(|before| *before > position) {
            self.violations.push(format!("event {id} of {key}: position {position} follows {before}"));
        }
    }

    fn check_client_event(&mut self, id: &str, event: ClientEvent, batch: &'a ClientBatch, record: &Record) {
        let ClientEvent { client, number, index } = event;
        let (name, key) = (format!("event {id}, {index} of batch {client}-{number}"), batch.keys[index]);
        self.check_content(
            &name,
            record,
            (key, HTTP_TYPE, "application/json"),
            http_value(client, number, index).to_string().as_bytes(),
        );
        match &batch.outcome {
            SubmissionOutcome::Acknowledged(ids) if ids.get(index).is_none_or(|expected| expected != id) => {
                self.violations.push(format!("{name}: acknowledged with another id in {ids:?}"));
            }
            SubmissionOutcome::Refused => self.violations.push(format!("{name}: it was refused")),
            _ => {}
        }
        if !self.found_batches.entry((client, number)).or_default().insert(index) {
            self.violations.push(format!("{name}: published under two ids"));
        }
        let unordered = (batch.outcome == SubmissionOutcome::Unknown).then_some(number);
        let before = self.client_events.insert((key, client, unordered), event);
        if let Some(before) = before.filter(|before| *before > event) {
            self.violations.push(format!("{name} of {key}: follows {} of {}", before.index, before.number));
        }
    }

    /// Compares a record with its event as it was written.
    fn check_content(
        &mut self,
        name: &str,
        record: &Record,
        (key, kind, content_type): (&str, &str, &str),
        value: &[u8],
    ) {
        if &*record.key != key {
            self.violations.push(format!("{name}: its key is {}, not {key}", record.key));
        }
        for (header, expected) in [("ce_type", kind), ("content-type", content_type), ("tenant", TENANT)] {
            let actual = record.text(header);
            if actual != Some(expected) {
                self.violations.push(format!("{name}: {header} is {actual:?}, not {expected}"));
            }
        }
        if &*record.value != value {
            self.violations.push(format!("{name}: its value is {:?}, not {value:?}", record.value));
        }
    }

    /// Reports the events that must be in the topic and are not.
    fn report_missing(&mut self) {
        for (id, change) in &self.changes {
            if !self.found_changes.contains(id) {
                self.violations.push(format!("lost: {change:?}"));
            }
        }
        for (name, batch) in &self.batches {
            let found = self.found_batches.get(name).map_or(0, BTreeSet::len);
            let is_possible = match batch.outcome {
                SubmissionOutcome::Acknowledged(_) => found == batch.keys.len(),
                SubmissionOutcome::Unknown => found == 0 || found == batch.keys.len(),
                // Each record that exists is a violation by itself.
                SubmissionOutcome::Refused => true,
            };
            if !is_possible {
                self.violations.push(format!("lost: {found} events of {batch:?} are in the topic"));
            }
        }
    }
}
