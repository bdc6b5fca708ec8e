//! Checks a topic's records against the acknowledged events: none lost, duplicated or reordered, and `x-sequence` without gaps per key.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ports::Error;
use ports::broker::Record;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::topics::TopicReader;

/// The number of records per read.
const PAGE: u32 = 500;
/// The most findings of one kind that a report prints.
const FINDINGS_PRINTED_MAX: usize = 10;
/// The CloudEvents header with the event's id.
const EVENT_ID: &str = "ce_id";

/// An event of an acknowledged request: it must be in the topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AcknowledgedEvent {
    /// The event's key, as in the record.
    pub key: String,
    /// The event's number within its key, from 1.
    pub sequence: u64,
    /// The event's id, where the client received it; without it any event with this sequence matches.
    pub event_id: Option<String>,
}

impl AcknowledgedEvent {
    /// The event of an order's version, with any id.
    pub fn of(key: impl fmt::Display, version: u64) -> Self {
        Self { key: key.to_string(), sequence: version + 1, event_id: None }
    }
}

/// Violations found in a topic, one line of text each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Acknowledged events that the topic does not contain.
    pub lost: Vec<String>,
    /// Events that the topic contains more than once.
    pub duplicated: Vec<String>,
    /// Events after a later one of their key, or in another topic partition than their key's other events.
    pub reordered: Vec<String>,
    /// Sequences that a key skips.
    pub gaps: Vec<String>,
    /// Records without event id or sequence.
    pub malformed: Vec<String>,
    /// The number of different events read.
    pub events: usize,
}

/// Every committed record of a topic, partition by partition, in order. Reads in pages.
///
/// # Errors
/// The port's error, when the topic cannot be read.
pub async fn read_all(topics: &dyn TopicReader, topic: &str) -> Result<Vec<ConsumerRecord>, Error> {
    let views = topics.list().await?;
    let partitions = views.into_iter().filter(|view| view.name == topic).flat_map(|view| view.partitions);
    let mut all = Vec::new();
    for (partition, kept) in (0..).zip(partitions) {
        let mut next = kept.start;
        while next < kept.end {
            let page = topics.read(topic, partition, next, PAGE).await?;
            // Offsets of a transactional broker's markers have no record: an empty page is the end.
            let Some(last) = page.last() else { break };
            next = last.position.offset + 1;
            all.extend(page);
        }
    }
    Ok(all)
}

/// Checks a topic's records against the acknowledged events. The topic may contain other events too: a reply can be lost.
pub fn check(log: &[ConsumerRecord], acknowledged: &[AcknowledgedEvent]) -> Findings {
    let mut findings = Findings::default();
    let mut seen: BTreeMap<String, &ConsumerRecord> = BTreeMap::new();
    let mut histories: BTreeMap<String, KeyHistory> = BTreeMap::new();
    for message in log {
        let record = &message.record;
        let (Some(event), Some(sequence)) = (text(record, EVENT_ID), number(record, "x-sequence")) else {
            findings.malformed.push(format!("{} has no {EVENT_ID} or x-sequence", position_text(message)));
            continue;
        };
        if let Some(first) = seen.get(&event) {
            findings.duplicated.push(format!(
                "event {event}: {} and again {}",
                position_text(first),
                position_text(message)
            ));
            continue;
        }
        seen.insert(event.clone(), message);
        histories.entry(record.key.to_string()).or_default().add(sequence, event, message, &mut findings);
    }
    findings.events = seen.len();
    for (key, history) in &histories {
        let last = history.events.keys().next_back().copied().unwrap_or(0);
        let missing = (1..last).filter(|sequence| !history.events.contains_key(sequence));
        findings.gaps.extend(missing.map(|sequence| format!("key {key}: no event at {sequence} of {last}")));
    }
    for expected in acknowledged.iter().collect::<BTreeSet<_>>() {
        let found = histories.get(&expected.key).and_then(|history| history.events.get(&expected.sequence));
        if found.is_none_or(|found| expected.event_id.as_ref().is_some_and(|event| event != found)) {
            let event = expected.event_id.as_deref().unwrap_or("its event");
            findings.lost.push(format!("key {}: {event} at {}", expected.key, expected.sequence));
        }
    }
    findings
}

/// The events of one key, in the order of the log.
#[derive(Default)]
struct KeyHistory {
    partition: Option<u32>,
    highest: u64,
    events: BTreeMap<u64, String>,
}

impl KeyHistory {
    fn add(&mut self, sequence: u64, event: String, message: &ConsumerRecord, findings: &mut Findings) {
        let key = &message.record.key;
        let partition = *self.partition.get_or_insert(message.position.partition);
        if partition != message.position.partition {
            findings.reordered.push(format!(
                "key {key}: {} although the key's first event is in partition {partition}",
                position_text(message)
            ));
        } else if sequence < self.highest {
            findings.reordered.push(format!(
                "key {key}: {sequence} after {} at {}",
                self.highest,
                position_text(message)
            ));
        }
        self.highest = self.highest.max(sequence);
        if let Some(other) = self.events.insert(sequence, event) {
            findings
                .duplicated
                .push(format!("key {key}: two events at {sequence}, {other} and at {}", position_text(message)));
        }
    }
}

fn position_text(message: &ConsumerRecord) -> String {
    let at = &message.position;
    format!("{}/{}@{}", at.topic, at.partition, at.offset)
}

fn text(record: &Record, name: &str) -> Option<String> {
    record.text(name).map(str::to_owned)
}

fn number(record: &Record, name: &str) -> Option<u64> {
    text(record, name)?.parse().ok()
}

impl Findings {
    /// Panics with the report unless every event is in the topic, once and in order.
    pub fn assert_exactly_once(&self) {
        assert!(self.duplicated.is_empty() && self.is_complete(), "{self}");
    }

    /// Panics with the report unless every event is in the topic and in order; duplicates are allowed.
    pub fn assert_at_least_once(&self) {
        assert!(self.is_complete(), "{self}");
    }

    fn is_complete(&self) -> bool {
        [&self.lost, &self.reordered, &self.gaps, &self.malformed].iter().all(|findings| findings.is_empty())
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} events", self.events)?;
        let kinds = [
            ("lost", &self.lost),
            ("duplicated", &self.duplicated),
            ("reordered", &self.reordered),
            ("gaps", &self.gaps),
            ("malformed", &self.malformed),
        ];
        for (kind, found) in kinds.into_iter().filter(|(_, found)| !found.is_empty()) {
            writeln!(f, "{} {kind}:", found.len())?;
            found.iter().take(FINDINGS_PRINTED_MAX).try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;
    use ports::broker::Position;

    use super::*;

    fn consumer_record(key: &str, sequence: u64, event: &str, partition: u32, offset: u64) -> ConsumerRecord {
        let headers = [(EVENT_ID, event), ("x-sequence", &sequence.to_string())].into_iter().collect();
        let (topic, value) = ("orders".into(), [].as_slice().into());
        let record = Record { topic, key: key.into(), headers, value, timestamp: Timestamp::default() };
        ConsumerRecord { position: Position { topic: "orders".into(), partition, offset }, record }
    }

    #[test]
    fn a_complete_log_in_order_has_no_findings() {
        let log = [
            consumer_record("a", 1, "e1", 0, 0),
            consumer_record("b", 1, "e2", 0, 1),
            consumer_record("a", 2, "e3", 0, 2),
        ];
        let acknowledged =
            [AcknowledgedEvent::of("a", 0), AcknowledgedEvent::of("a", 1), AcknowledgedEvent::of("b", 0)];

        let findings = check(&log, &acknowledged);

        findings.assert_exactly_once();
        assert_eq!(findings.events, 3);
    }

    #[test]
    fn each_kind_of_violation_is_found() {
        let log = [
            consumer_record("a", 2, "e2", 0, 0),
            consumer_record("a", 1, "e1", 0, 1),
            consumer_record("a", 1, "e1", 0, 2),
            consumer_record("b", 3, "e3", 1, 0),
            consumer_record("c", 1, "e4", 1, 1),
            consumer_record("c", 2, "e5", 0, 3),
        ];
        let mut without_headers = consumer_record("d", 1, "e6", 1, 2);
        without_headers.record.headers.clear();
        let log: Vec<ConsumerRecord> = log.into_iter().chain([without_headers]).collect();

        let findings = check(&log, &[AcknowledgedEvent::of("z", 0), AcknowledgedEvent::of("b", 2)]);

        assert_eq!(findings.lost, ["key z: its event at 1"]);
        assert_eq!(findings.duplicated, ["event e1: orders/0@1 and again orders/0@2"]);
        assert_eq!(findings.reordered.len(), 2, "{findings}");
        assert_eq!(findings.gaps, ["key b: no event at 1 of 3", "key b: no event at 2 of 3"]);
        assert_eq!(findings.malformed.len(), 1);
    }

    #[test]
    fn another_event_at_the_acknowledged_sequence_is_a_loss() {
        let log = [consumer_record("a", 1, "e1", 0, 0)];
        let acknowledged = AcknowledgedEvent { event_id: Some("e9".to_owned()), ..AcknowledgedEvent::of("a", 0) };

        assert_eq!(check(&log, &[acknowledged]).lost, ["key a: e9 at 1"]);
    }
}
