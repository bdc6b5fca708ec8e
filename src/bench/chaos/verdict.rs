//! Compares the topic with the orders that the clients finished.
use std::collections::{BTreeMap, BTreeSet, HashSet};

use ports::broker::consumer_groups::ConsumerRecord;
use serde_json::{Value, json};

use super::clients::EVENTS_OF_AN_ORDER;
use crate::error::Error;
use crate::program::ThrowawayData;
use crate::service::topic_checker::{for_each_record, read_until_complete};

/// One event of the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PublishedEvent {
    key: String,
    sequence: u64,
    event_id: String,
}

/// The verdict on the event topic, which must contain every event of the finished orders.
pub(super) async fn read_verdict(
    data: &impl ThrowawayData,
    finished: &BTreeSet<String>,
) -> Result<ChaosVerdict, Error> {
    let read = async || Ok(ChaosVerdict::of(finished, &read_topic(data).await?));
    read_until_complete(read, |verdict| verdict.missing == 0).await
}

/// Reads the whole event topic, each partition in its order.
async fn read_topic(data: &impl ThrowawayData) -> Result<Vec<PublishedEvent>, Error> {
    let mut events = Vec::new();
    let event = |message: &ConsumerRecord| {
        let record = &message.record;
        let sequence = record.text("x-sequence").and_then(|text| text.parse().ok()).unwrap_or(0);
        let event_id = record.text("ce_id").unwrap_or_default().to_owned();
        PublishedEvent { key: record.key.to_string(), sequence, event_id }
    };
    for_each_record(data, |message| events.push(event(message))).await?;
    Ok(events)
}

/// What is wrong, by kind; all zero when every guarantee held.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ChaosVerdict {
    pub events: u64,
    pub duplicates: u64,
    pub order_violations: u64,
    pub missing: u64,
    /// Orders in the topic that no client created: an idempotency key created two.
    pub unknown_orders: u64,
    pub parked: u64,
    pub waiting: u64,
    pub unfinished_orders: u64,
    pub unexpected_ends: Vec<String>,
}

impl ChaosVerdict {
    /// Compares the events with the finished orders.
    fn of(finished: &BTreeSet<String>, published: &[PublishedEvent]) -> Self {
        let mut verdict = Self { events: published.len() as u64, ..Self::default() };
        let (mut seen, mut last) = (HashSet::new(), BTreeMap::<&str, u64>::new());
        let mut events_by_order = BTreeMap::<&str, u64>::new();
        for event in published {
            if !seen.insert(&*event.event_id) {
                verdict.duplicates += 1;
                continue;
            }
            let before = last.insert(&event.key, event.sequence).unwrap_or(0);
            if event.sequence != before + 1 {
                verdict.order_violations += 1;
            }
            *events_by_order.entry(&event.key).or_default() += 1;
        }
        let missing = |order: &String| {
            EVENTS_OF_AN_ORDER.saturating_sub(events_by_order.get(order.as_str()).copied().unwrap_or(0))
        };
        verdict.missing = finished.iter().map(missing).sum();
        verdict.unknown_orders = events_by_order.keys().filter(|order| !finished.contains(**order)).count() as u64;
        verdict
    }

    /// What a guarantee forbids, in words. A client that did not finish its last order leaves an order that is not known as finished.
    pub(super) fn violations(&self, exactly_once: bool) -> Vec<String> {
        let unknown = self.unknown_orders.saturating_sub(self.unfinished_orders);
        let counts = [
            (self.missing, "events are missing"),
            (if exactly_once { self.duplicates } else { 0 }, "events were published twice"),
            (self.order_violations, "events were published out of their order"),
            (unknown, "orders exist that no client created"),
            (self.parked, "events are parked"),
            (self.waiting, "events still wait"),
            (self.unfinished_orders, "orders could not be finished"),
        ];
        let counted = counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        counted.chain(self.unexpected_ends.iter().cloned()).collect()
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "events": self.events, "duplicates": self.duplicates, "orderViolations": self.order_violations, "missing": self.missing,
            "unknownOrders": self.unknown_orders, "parked": self.parked, "waiting": self.waiting,
            "unfinishedOrders": self.unfinished_orders, "unexpectedEnds": self.unexpected_ends,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(key: &str, sequence: u64) -> PublishedEvent {
        PublishedEvent { key: key.into(), sequence, event_id: format!("{key}-{sequence}") }
    }

    fn of_order(key: &str) -> Vec<PublishedEvent> {
        (1..=EVENTS_OF_AN_ORDER).map(|sequence| event(key, sequence)).collect()
    }

    fn verdict(published: &[PublishedEvent]) -> ChaosVerdict {
        ChaosVerdict::of(&BTreeSet::from(["a".to_owned(), "b".to_owned()]), published)
    }

    #[test]
    fn interleaved_orders_with_all_their_events_are_right() {
        let (a, b) = (of_order("a"), of_order("b"));
        let published: Vec<_> = a.into_iter().zip(b).flat_map(|(a, b)| [a, b]).collect();

        let verdict = verdict(&published);

        assert_eq!(verdict, ChaosVerdict { events: 2 * EVENTS_OF_AN_ORDER, ..ChaosVerdict::default() });
        assert_eq!(verdict.violations(true), Vec::<String>::new());
    }

    #[test]
    fn a_lost_a_doubled_a_swapped_and_an_unknown_event_are_found() {
        let (a, b) = (of_order("a"), of_order("b"));

        let lost: Vec<_> = a.iter().chain(&b[..3]).cloned().collect();
        assert_eq!(verdict(&lost).violations(true), ["1 events are missing"]);
        let doubled: Vec<_> = a.iter().chain(&b).chain(&b[3..]).cloned().collect();
        assert_eq!(verdict(&doubled).violations(true), ["1 events were published twice"]);
        assert_eq!(verdict(&doubled).violations(false), Vec::<String>::new());
        let mut swapped: Vec<_> = a.iter().chain(&b).cloned().collect();
        swapped.swap(1, 2);
        assert_eq!(verdict(&swapped).order_violations, 3);
        let unknown: Vec<_> = a.iter().chain(&b).chain(&of_order("c")).cloned().collect();
        assert_eq!(verdict(&unknown).violations(true), ["1 orders exist that no client created"]);
    }

    #[test]
    fn unsent_rows_and_failed_exits_are_violations() {
        let ended = vec!["instance 0 ended with exit status: 70".to_owned()];
        let left = ChaosVerdict {
            parked: 2,
            waiting: 1,
            unfinished_orders: 1,
            unknown_orders: 1,
            unexpected_ends: ended,
            ..ChaosVerdict::default()
        };

        let violations = left.violations(true);

        assert_eq!(violations.len(), 4, "{violations:?}");
        assert!(violations.iter().any(|violation| violation.contains("70")));
    }
}
