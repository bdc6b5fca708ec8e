//! Compares the topics with the records of the clients and writers: finished orders, committed events, and events that were rolled back.
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use ports::broker::consumer_groups::ConsumerRecord;
use serde_json::{Value, json};

use super::clients::EVENTS_PER_ORDER;
use super::progress::{EVENT_TYPE, Progress, WrittenEvent};
use crate::error::Error;
use crate::program::ThrowawayData;
use crate::service::topic_checker::{for_each_record, read_until_complete};

/// One event of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PublishedEvent {
    partition: u32,
    key: String,
    event_type: String,
    sequence: u64,
    event_id: String,
}

/// The events that must be in the topics, and those that must not.
struct Expected<'a> {
    orders: &'a BTreeSet<String>,
    /// The events of other services, by their ids.
    events: BTreeMap<&'a str, &'a WrittenEvent>,
    rolled_back: &'a BTreeSet<String>,
}

/// The verdict on the topics of the orders and of other services. A topic is read until nothing is missing and a second read finds the same:
/// an event that should not exist may become visible later.
pub(super) async fn read_verdict(
    data: &impl ThrowawayData,
    external_topic: &str,
    progress: &Progress,
) -> Result<ChaosVerdict, Error> {
    let events = progress.http.iter().chain(&progress.sql).map(|(id, event)| (id.as_str(), event)).collect();
    let expected = Expected { orders: &progress.finished, events, rolled_back: &progress.rolled_back };
    let read = async || {
        let orders = read_topic(data, &data.topic()).await?;
        Ok(ChaosVerdict::compare(&expected, &orders, &read_topic(data, external_topic).await?))
    };
    let last = RefCell::new(None);
    read_until_complete(read, |verdict| {
        let is_unchanged = last.replace(Some(verdict.clone())).as_ref() == Some(verdict);
        is_unchanged && verdict.missing == 0 && verdict.missing_events == 0
    })
    .await
}

/// Reads a whole topic, each partition in its order.
async fn read_topic(data: &impl ThrowawayData, topic: &str) -> Result<Vec<PublishedEvent>, Error> {
    let mut events = Vec::new();
    let event = |message: &ConsumerRecord| {
        let record = &message.record;
        let header = |name: &str| record.text(name).unwrap_or_default().to_owned();
        PublishedEvent {
            partition: message.position.partition,
            key: record.key.to_string(),
            event_type: header("ce_type"),
            sequence: header("x-sequence").parse().unwrap_or(0),
            event_id: header("ce_id"),
        }
    };
    for_each_record(data, topic, |message| events.push(event(message))).await?;
    Ok(events)
}

/// The violations by kind; all zero when every guarantee held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChaosVerdict {
    /// Records of the order topic.
    pub events: u64,
    /// Further records of an event, in both topics.
    pub duplicates: u64,
    /// Events that do not follow the one before them of their key, in both topics.
    pub order_violations: u64,
    /// Events of finished orders that are not in the topic.
    pub missing: u64,
    /// Orders in the topic that no client created: an idempotency key created two.
    pub unknown_orders: u64,
    /// Records of the topic of other services.
    pub external_events: u64,
    /// Committed events of other services that are not in their topic.
    pub missing_events: u64,
    /// Events of transactions and savepoints that were rolled back.
    pub rolled_back_events: u64,
    /// Events that no client and no writer has published.
    pub unknown_events: u64,
    /// Events of one writer and key after a later one.
    pub writer_order: u64,
    /// Events with another key or type than they were written with.
    pub wrong_events: u64,
    pub parked: u64,
    pub waiting: u64,
    pub unfinished_orders: u64,
    /// Clients and writers of events whose last batch or transaction did not end.
    pub unfinished_publishers: u64,
    pub unexpected_exits: Vec<String>,
}

impl ChaosVerdict {
    /// Compares the records of both topics with the expected ones.
    fn compare(expected: &Expected<'_>, orders: &[PublishedEvent], external: &[PublishedEvent]) -> Self {
        let mut verdict =
            Self { events: orders.len() as u64, external_events: external.len() as u64, ..Self::default() };
        let (orders, external) = (verdict.first_copies(orders), verdict.first_copies(external));
        verdict.count_orders(expected.orders, &orders);
        verdict.count_external(expected, &external);
        verdict
    }

    /// The first record of each event. Counts the further ones, and the events that do not follow the one before them in their key's
    /// partition.
    fn first_copies<'a>(&mut self, published: &'a [PublishedEvent]) -> Vec<&'a PublishedEvent> {
        let (mut seen, mut last) = (HashSet::new(), BTreeMap::<&str, (u64, u32)>::new());
        let first: Vec<_> = published.iter().filter(|event| seen.insert(&*event.event_id)).collect();
        self.duplicates += (published.len() - first.len()) as u64;
        for event in &first {
            let (before, partition) =
                last.insert(&event.key, (event.sequence, event.partition)).unwrap_or((0, event.partition));
            self.order_violations += u64::from(event.sequence != before + 1 || event.partition != partition);
        }
        first
    }

    fn count_orders(&mut self, finished: &BTreeSet<String>, published: &[&PublishedEvent]) {
        let mut events_by_order = BTreeMap::<&str, u64>::new();
        for event in published {
            *events_by_order.entry(&event.key).or_default() += 1;
        }
        let missing =
            |order: &String| EVENTS_PER_ORDER.saturating_sub(events_by_order.get(order.as_str()).copied().unwrap_or(0));
        self.missing = finished.iter().map(missing).sum();
        self.unknown_orders = events_by_order.keys().filter(|order| !finished.contains(**order)).count() as u64;
    }

    fn count_external(&mut self, expected: &Expected<'_>, published: &[&PublishedEvent]) {
        let (mut found, mut last) = (0, BTreeMap::<(&str, &str), u64>::new());
        for event in published {
            let Some(written) = expected.events.get(event.event_id.as_str()) else {
                let count = if expected.rolled_back.contains(&event.event_id) {
                    &mut self.rolled_back_events
                } else {
                    &mut self.unknown_events
                };
                *count += 1;
                continue;
            };
            found += 1;
            self.wrong_events += u64::from(event.key != written.key || event.event_type != EVENT_TYPE);
            let before = last.insert((written.writer.as_str(), written.key.as_str()), written.number);
            self.writer_order += u64::from(before.is_some_and(|before| before > written.number));
        }
        self.missing_events = expected.events.len() as u64 - found;
    }

    /// The violated guarantees in words. A client that did not finish its last order leaves an order that is not known as finished.
    pub(super) fn violations(&self, exactly_once: bool) -> Vec<String> {
        let unknown = self.unknown_orders.saturating_sub(self.unfinished_orders);
        let counts = [
            (self.missing, "events are missing"),
            (if exactly_once { self.duplicates } else { 0 }, "events were published twice"),
            (self.order_violations, "events were published out of their order"),
            (unknown, "orders exist that no client created"),
            (self.missing_events, "events of other services are missing"),
            (self.rolled_back_events, "events were rolled back and published"),
            (self.unknown_events, "events of other services exist that no client or writer knows"),
            (self.writer_order, "events follow a later event of their key and writer"),
            (self.wrong_events, "events have another key or type than they were written with"),
            (self.parked, "events are parked"),
            (self.waiting, "events still wait"),
            (self.unfinished_orders, "orders could not be finished"),
            (self.unfinished_publishers, "clients and writers could not finish their last events"),
        ];
        let counted = counts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, description)| format!("{count} {description}"));
        counted.chain(self.unexpected_exits.iter().cloned()).collect()
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "events": self.events, "duplicates": self.duplicates, "orderViolations": self.order_violations, "missing": self.missing,
            "unknownOrders": self.unknown_orders, "externalEvents": self.external_events, "missingEvents": self.missing_events,
            "rolledBackEvents": self.rolled_back_events, "unknownEvents": self.unknown_events, "writerOrder": self.writer_order,
            "wrongEvents": self.wrong_events, "parked": self.parked, "waiting": self.waiting,
            "unfinishedOrders": self.unfinished_orders, "unfinishedPublishers": self.unfinished_publishers,
            "unexpectedEnds": self.unexpected_exits,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(key: &str, sequence: u64) -> PublishedEvent {
        let event_id = format!("{key}-{sequence}");
        PublishedEvent { partition: 0, key: key.into(), event_type: EVENT_TYPE.into(), sequence, event_id }
    }

    fn of_order(key: &str) -> Vec<PublishedEvent> {
        (1..=EVENTS_PER_ORDER).map(|sequence| event(key, sequence)).collect()
    }

    fn verdict(published: &[PublishedEvent]) -> ChaosVerdict {
        let (orders, rolled_back) = (BTreeSet::from(["a".to_owned(), "b".to_owned()]), BTreeSet::new());
        ChaosVerdict::compare(
            &Expected { orders: &orders, events: BTreeMap::new(), rolled_back: &rolled_back },
            published,
            &[],
        )
    }

    /// The verdict where the writers committed `k-1`, `k-2` and `l-1`, in this order, and `k-9` was rolled back.
    fn external_violations(published: &[PublishedEvent]) -> Vec<String> {
        let written = |key: &str, number| WrittenEvent { key: key.into(), writer: "sql-0".into(), number };
        let events = [("k-1", written("k", 0)), ("k-2", written("k", 1)), ("l-1", written("l", 2))];
        let (orders, rolled_back) = (BTreeSet::new(), BTreeSet::from(["k-9".to_owned()]));
        let events = events.iter().map(|(id, event)| (*id, event)).collect();
        let expected = Expected { orders: &orders, events, rolled_back: &rolled_back };
        ChaosVerdict::compare(&expected, &[], published).violations(true)
    }

    /// The events that the writers committed, and this one.
    fn and(event: PublishedEvent) -> Vec<PublishedEvent> {
        [external(), vec![event]].concat()
    }

    fn external() -> Vec<PublishedEvent> {
        vec![event("k", 1), event("l", 1), event("k", 2)]
    }

    #[test]
    fn interleaved_orders_with_all_their_events_are_right() {
        let (a, b) = (of_order("a"), of_order("b"));
        let published: Vec<_> = a.into_iter().zip(b).flat_map(|(a, b)| [a, b]).collect();

        let verdict = verdict(&published);

        assert_eq!(verdict, ChaosVerdict { events: 2 * EVENTS_PER_ORDER, ..ChaosVerdict::default() });
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
    fn committed_events_of_other_services_in_their_order_are_right() {
        assert_eq!(external_violations(&external()), Vec::<String>::new());
    }

    #[test]
    fn a_lost_a_rolled_back_and_an_unknown_event_of_another_service_are_found() {
        let rolled_back = PublishedEvent { event_id: "k-9".into(), ..event("k", 3) };

        assert_eq!(external_violations(&external()[..2]), ["1 events of other services are missing"]);
        assert_eq!(external_violations(&and(rolled_back)), ["1 events were rolled back and published"]);
        assert_eq!(
            external_violations(&and(event("k", 3))),
            ["1 events of other services exist that no client or writer knows"]
        );
        assert_eq!(external_violations(&and(event("k", 2))), ["1 events were published twice"]);
    }

    #[test]
    fn events_in_another_order_than_they_were_written_are_found_whatever_their_numbers() {
        let mut swapped = external();
        (swapped[0].event_id, swapped[2].event_id) = ("k-2".into(), "k-1".into());

        assert_eq!(external_violations(&swapped), ["1 events follow a later event of their key and writer"]);
    }

    #[test]
    fn an_event_with_another_key_type_or_partition_than_it_should_have_is_found() {
        let changed = |change: fn(&mut PublishedEvent)| {
            let mut events = external();
            change(&mut events[1]);
            external_violations(&events)
        };
        let wrong = ["1 events have another key or type than they were written with"];

        assert_eq!(changed(|event| event.key = "m".into()), wrong);
        assert_eq!(changed(|event| event.event_type = "Other".into()), wrong);
        let mut moved = external();
        moved[2].partition = 1;
        assert_eq!(external_violations(&moved), ["1 events were published out of their order"]);
    }

    #[test]
    fn unsent_rows_and_failed_exits_are_violations() {
        let ended = vec!["instance 0 ended with exit status: 70".to_owned()];
        let left = ChaosVerdict {
            parked: 2,
            waiting: 1,
            unfinished_orders: 1,
            unfinished_publishers: 1,
            unknown_orders: 1,
            unexpected_exits: ended,
            ..ChaosVerdict::default()
        };

        let violations = left.violations(true);

        assert_eq!(violations.len(), 5, "{violations:?}");
        assert!(violations.iter().any(|violation| violation.contains("70")));
    }
}
