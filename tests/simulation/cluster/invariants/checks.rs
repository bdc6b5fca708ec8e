//! The rules of single records and events, each as a function of what was recorded.
use std::collections::BTreeMap;

use domain::EventId;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::{Position, Record};
use ports::outbox::events::ExternalEvent;
use tokio::time::Instant;

use crate::cluster::external_writers::TENANT;
use crate::support::record_faults::header;

/// The event of a record.
pub fn event_of(message: &ConsumerRecord) -> String {
    header(&message.record, "ce_id")
}

/// Where a settlement recorded a position, its topic has the row's event there.
pub fn check_positions(recorded: &[(EventId, Position)], log: &[&ConsumerRecord]) -> Result<(), String> {
    let at: BTreeMap<&Position, String> = log.iter().map(|one| (&one.position, event_of(one))).collect();
    match recorded.iter().find(|(event, position)| at.get(position) != Some(&event.to_string())) {
        Some((event, position)) => Err(format!("event {event} is not at {position:?}")),
        None => Ok(()),
    }
}

/// Each copy of an event belongs to another claim of it: within a claim, an event is sent once, also without transactions.
pub fn check_claims(log: &[&ConsumerRecord], claims: impl Fn(&str) -> usize) -> Result<(), String> {
    match copies(log).into_iter().find(|(event, copies)| *copies > claims(event)) {
        Some((event, copies)) => {
            Err(format!("event {event} is in its topic {copies} times, more often than its {} claims", claims(&event)))
        }
        None => Ok(()),
    }
}

/// How often each event is in the topics.
fn copies(log: &[&ConsumerRecord]) -> BTreeMap<String, usize> {
    let mut copies = BTreeMap::new();
    log.iter().for_each(|message| *copies.entry(event_of(message)).or_default() += 1);
    copies
}

/// The fail-overs of a run: how many, and when the last one was accepted.
pub struct FailOvers {
    pub count: usize,
    pub accepted_at: Instant,
}

/// An event is published once more for each fail-over at most, and only if it was published before the fail-over.
pub fn check_duplicates(
    log: &[&ConsumerRecord],
    fail_overs: &FailOvers,
    committed_at: impl Fn(&str) -> Option<Instant>,
) -> Result<(), String> {
    for (event, copies) in copies(log).into_iter().filter(|(_, copies)| *copies > 1) {
        let is_bounded = copies <= 1 + fail_overs.count;
        if !is_bounded || committed_at(&event).is_none_or(|first| first > fail_overs.accepted_at) {
            return Err(format!("event {event} is duplicated: it is in its topic {copies} times"));
        }
    }
    Ok(())
}

/// The record of another service's event is what the service wrote.
pub fn check_content(record: &Record, written: &ExternalEvent) -> Result<(), String> {
    let content_type = written.content_type.as_deref().unwrap_or("application/json");
    let tenant = written.headers.iter().find(|(name, _)| &***name == TENANT).map_or("", |(_, value)| &**value);
    let texts = [("ce_type", &*written.event_type), ("content-type", content_type), (TENANT, tenant)];
    let other_header = texts.into_iter().find(|(name, text)| header(record, name) != *text).map(|(name, _)| name);
    let other = match other_header {
        _ if record.topic != written.topic => "topic",
        _ if record.key != written.key.to_text() => "key",
        _ if record.value != written.payload => "value",
        Some(name) => name,
        None => return Ok(()),
    };
    Err(format!("the {other} of event {} was changed: {record:?} of {written:?}", written.event_id))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kit::Factory;
    use ports::event_headers::EventHeaders;
    use ports::partitions::PartitionNo;

    use super::*;

    fn event(number: u8) -> EventId {
        EventId::from_bytes([number; 16])
    }

    fn message(number: u8, offset: u64) -> ConsumerRecord {
        let mut record = Factory::seeded(1, "orders".into()).record("k", "v");
        record.headers = [("ce_id", event(number).to_string().as_bytes())].into_iter().collect();
        ConsumerRecord { position: Position { topic: "orders".into(), partition: 0, offset }, record }
    }

    #[test]
    fn recorded_position_without_its_event_is_found() {
        let (first, second) = (message(1, 0), message(2, 1));
        let check = |recorded: u8, offset| {
            let position = Position { offset, ..first.position.clone() };
            check_positions(&[(event(recorded), position)], &[&first, &second])
        };

        assert_eq!((check(1, 0), check(2, 1)), (Ok(()), Ok(())));
        for (recorded, offset) in [(1, 1), (3, 0), (1, 2)] {
            assert!(check(recorded, offset).unwrap_err().contains("is not at"), "{recorded} {offset}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn event_with_more_copies_than_fail_overs_explain_is_found() {
        let (log, now) = ([message(1, 0), message(2, 1), message(1, 2)], Instant::now());
        let log: Vec<&ConsumerRecord> = log.iter().collect();
        let check = |count, committed_at: Option<Instant>| {
            check_duplicates(&log, &FailOvers { count, accepted_at: now }, |_| committed_at)
        };

        assert_eq!((check(1, Some(now)), check(2, Some(now))), (Ok(()), Ok(())));
        let unexplained = [(0, Some(now)), (1, None), (1, Some(now + Duration::from_millis(1)))];
        for (count, committed_at) in unexplained {
            assert!(check(count, committed_at).unwrap_err().contains("in its topic 2 times"), "{count}");
        }
    }

    #[test]
    fn event_with_more_copies_than_claims_is_found() {
        let log = [message(1, 0), message(2, 1), message(1, 2)];
        let log: Vec<&ConsumerRecord> = log.iter().collect();
        let check = |of_first| check_claims(&log, |claimed| if claimed == event(1).to_string() { of_first } else { 1 });

        assert_eq!((check(2), check(3)), (Ok(()), Ok(())));
        assert!(check(1).unwrap_err().contains("2 times, more often than its 1 claims"));
    }

    #[test]
    fn each_change_of_another_services_event_is_found() {
        let row = Factory::seeded(1, "orders".into()).external_row("customer 7", 1, PartitionNo(0));
        let written = ExternalEvent {
            event_id: row.event_id,
            topic: row.topic,
            key: row.key,
            event_type: row.event_type,
            partition: row.partition,
            payload: row.payload,
            headers: EventHeaders::from_pairs([(TENANT, "blue")]),
            content_type: None,
            trace: None,
            request_id: None,
        };
        let record = |event_type: &str, content_type: &str, tenant: &str| Record {
            topic: written.topic.clone(),
            key: "customer 7".into(),
            headers: [("ce_type", event_type), ("content-type", content_type), (TENANT, tenant)].into_iter().collect(),
            value: written.payload.clone(),
            timestamp: row.occurred_at,
        };
        let intact = record(&written.event_type, "application/json", "blue");
        let changes = [
            ("topic", Record { topic: "invoices".into(), ..intact.clone() }),
            ("key", Record { key: "customer-7".into(), ..intact.clone() }),
            ("value", Record { value: [0].as_slice().into(), ..intact.clone() }),
            ("ce_type", record("CustomerMoved", "application/json", "blue")),
            ("content-type", record(&written.event_type, "text/plain", "blue")),
            (TENANT, record(&written.event_type, "application/json", "red")),
        ];

        assert_eq!(check_content(&intact, &written), Ok(()));
        for (name, changed) in changes {
            let violation = check_content(&changed, &written).unwrap_err();
            assert!(violation.starts_with(&format!("the {name} of event")), "{violation}");
        }
    }
}
