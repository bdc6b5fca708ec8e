//! Checkers of the invariants over a topic read back: nothing lost, doubled or reordered, and `x-sequence` gapless per key.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ports::Error;
use ports::broker::Record;
use ports::source::Delivery;
use ports::topics::TopicReader;

/// Records read at a time.
const PAGE: u32 = 500;
/// Faults of a kind that a report spells out.
const SHOWN: usize = 10;
/// The header that names the event, as CloudEvents have it.
const EVENT_ID: &str = "ce_id";

/// An event that somebody was answered for: it must arrive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answered {
    /// Its key, as the record carries it.
    pub key: String,
    /// Its place in the key's line, from 1.
    pub sequence: u64,
    /// Its name, where the client was told; without it any event in that place will do.
    pub event_id: Option<String>,
}

impl Answered {
    /// The event of an order's version, whatever its name.
    pub fn of(key: impl fmt::Display, version: u64) -> Self {
        Self { key: key.to_string(), sequence: version + 1, event_id: None }
    }
}

/// What a checker found wrong, line by line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Answered for, and not there.
    pub lost: Vec<String>,
    /// There more than once.
    pub doubled: Vec<String>,
    /// Behind a later one of its key, or beside its key's other events in another partition.
    pub reordered: Vec<String>,
    /// A place of a key's line that nothing stands in, although a later one is taken.
    pub gaps: Vec<String>,
    /// Records that do not say who they are.
    pub malformed: Vec<String>,
    /// Events read, doubles not counted.
    pub events: usize,
}

/// Every committed record of a topic, partition by partition, in order. Reads in pages.
///
/// # Errors
/// What the port says.
pub async fn read_all(topics: &dyn TopicReader, topic: &str) -> Result<Vec<Delivery>, Error> {
    let views = topics.list().await?;
    let partitions = views.into_iter().filter(|view| view.name == topic).flat_map(|view| view.partitions);
    let mut all = Vec::new();
    for (partition, (mut next, end)) in (0..).zip(partitions) {
        while next < end {
            let page = topics.read(topic, partition, next, PAGE).await?;
            // A transactional broker's markers take offsets that nothing stands at: an empty page is the end.
            let Some(last) = page.last() else { break };
            next = last.position.offset + 1;
            all.extend(page);
        }
    }
    Ok(all)
}

/// Judges a log against what was answered. Events that nobody was answered for may be there too: an answer can be lost.
pub fn check(log: &[Delivery], answered: &[Answered]) -> Findings {
    let mut findings = Findings::default();
    let mut seen: BTreeMap<String, &Delivery> = BTreeMap::new();
    let mut lines: BTreeMap<String, Line> = BTreeMap::new();
    for delivery in log {
        let record = &delivery.record;
        let (Some(event), Some(sequence)) = (text(record, EVENT_ID), number(record, "x-sequence")) else {
            findings.malformed.push(format!("{} has no {EVENT_ID} or x-sequence", place(delivery)));
            continue;
        };
        if let Some(first) = seen.get(&event) {
            findings.doubled.push(format!("event {event}: {} and again {}", place(first), place(delivery)));
            continue;
        }
        seen.insert(event.clone(), delivery);
        lines.entry(record.key.to_string()).or_default().add(sequence, event, delivery, &mut findings);
    }
    findings.events = seen.len();
    for (key, line) in &lines {
        let last = line.places.keys().next_back().copied().unwrap_or(0);
        let missing = (1..last).filter(|sequence| !line.places.contains_key(sequence));
        findings.gaps.extend(missing.map(|sequence| format!("key {key}: nothing at {sequence} of {last}")));
    }
    for wanted in answered.iter().collect::<BTreeSet<_>>() {
        let there = lines.get(&wanted.key).and_then(|line| line.places.get(&wanted.sequence));
        if there.is_none_or(|there| wanted.event_id.as_ref().is_some_and(|event| event != there)) {
            let name = wanted.event_id.as_deref().unwrap_or("its event");
            findings.lost.push(format!("key {}: {name} at {}", wanted.key, wanted.sequence));
        }
    }
    findings
}

/// One key's events so far.
#[derive(Default)]
struct Line {
    partition: Option<u32>,
    highest: u64,
    places: BTreeMap<u64, String>,
}

impl Line {
    fn add(&mut self, sequence: u64, event: String, delivery: &Delivery, findings: &mut Findings) {
        let key = &delivery.record.key;
        let partition = *self.partition.get_or_insert(delivery.position.partition);
        if partition != delivery.position.partition {
            findings
                .reordered
                .push(format!("key {key}: {} although it began in partition {partition}", place(delivery)));
        } else if sequence < self.highest {
            findings.reordered.push(format!("key {key}: {sequence} after {} at {}", self.highest, place(delivery)));
        }
        self.highest = self.highest.max(sequence);
        if let Some(other) = self.places.insert(sequence, event) {
            findings.doubled.push(format!("key {key}: two events at {sequence}, {other} and at {}", place(delivery)));
        }
    }
}

fn place(delivery: &Delivery) -> String {
    let at = &delivery.position;
    format!("{}/{}@{}", at.topic, at.partition, at.offset)
}

fn text(record: &Record, name: &str) -> Option<String> {
    let (_, value) = record.headers.iter().find(|(header, _)| &**header == name)?;
    String::from_utf8(value.to_vec()).ok()
}

fn number(record: &Record, name: &str) -> Option<u64> {
    text(record, name)?.parse().ok()
}

impl Findings {
    /// Panics with the report unless everything is there, once and in order.
    pub fn assert_exactly_once(&self) {
        assert!(self.doubled.is_empty() && self.is_complete(), "{self}");
    }

    /// Panics with the report unless everything is there and in order; doubles are forgiven.
    pub fn assert_at_least_once(&self) {
        assert!(self.is_complete(), "{self}");
    }

    fn is_complete(&self) -> bool {
        [&self.lost, &self.reordered, &self.gaps, &self.malformed].iter().all(|found| found.is_empty())
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} events", self.events)?;
        let kinds = [
            ("lost", &self.lost),
            ("doubled", &self.doubled),
            ("reordered", &self.reordered),
            ("gaps", &self.gaps),
            ("malformed", &self.malformed),
        ];
        for (kind, found) in kinds.into_iter().filter(|(_, found)| !found.is_empty()) {
            writeln!(f, "{} {kind}:", found.len())?;
            found.iter().take(SHOWN).try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;
    use ports::broker::Position;

    use super::*;

    fn delivery(key: &str, sequence: u64, event: &str, partition: u32, offset: u64) -> Delivery {
        let header = |name: &str, value: String| (name.into(), value.into_bytes().into());
        let headers = vec![header(EVENT_ID, event.to_owned()), header("x-sequence", sequence.to_string())];
        let (topic, value) = ("orders".into(), [].as_slice().into());
        let record = Record { topic, key: key.into(), headers, value, timestamp: Timestamp::default() };
        Delivery { position: Position { topic: "orders".into(), partition, offset }, record }
    }

    #[test]
    fn a_whole_log_in_order_is_clean() {
        let log = [delivery("a", 1, "e1", 0, 0), delivery("b", 1, "e2", 0, 1), delivery("a", 2, "e3", 0, 2)];
        let answered = [Answered::of("a", 0), Answered::of("a", 1), Answered::of("b", 0)];

        let findings = check(&log, &answered);

        findings.assert_exactly_once();
        assert_eq!(findings.events, 3);
    }

    #[test]
    fn each_kind_of_damage_is_found() {
        let log = [
            delivery("a", 2, "e2", 0, 0),
            delivery("a", 1, "e1", 0, 1),
            delivery("a", 1, "e1", 0, 2),
            delivery("b", 3, "e3", 1, 0),
            delivery("c", 1, "e4", 1, 1),
            delivery("c", 2, "e5", 0, 3),
        ];
        let mut nameless = delivery("d", 1, "e6", 1, 2);
        nameless.record.headers.clear();
        let log: Vec<Delivery> = log.into_iter().chain([nameless]).collect();

        let findings = check(&log, &[Answered::of("z", 0), Answered::of("b", 2)]);

        assert_eq!(findings.lost, ["key z: its event at 1"]);
        assert_eq!(findings.doubled, ["event e1: orders/0@1 and again orders/0@2"]);
        assert_eq!(findings.reordered.len(), 2, "{findings}");
        assert_eq!(findings.gaps, ["key b: nothing at 1 of 3", "key b: nothing at 2 of 3"]);
        assert_eq!(findings.malformed.len(), 1);
    }

    #[test]
    fn another_event_in_the_answered_ones_place_is_a_loss() {
        let log = [delivery("a", 1, "e1", 0, 0)];
        let answered = Answered { event_id: Some("e9".to_owned()), ..Answered::of("a", 0) };

        assert_eq!(check(&log, &[answered]).lost, ["key a: e9 at 1"]);
    }
}
