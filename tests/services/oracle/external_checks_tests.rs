//! Tests of the checks of external events: valid evidence has no violation, and each single defect is found.
use domain::Timestamp;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::{Position, Record};

use crate::oracle::checks::{DeliveryGuarantee, Evidence, violations};
use crate::oracle::event_clients::{ClientBatch, HTTP_TYPE, SubmissionOutcome, http_value};
use crate::oracle::sql_writers::{SQL_CONTENT_TYPE, SQL_TYPE, SqlChange, TENANT, sql_value};

fn record(id: &str, key: &str, sequence: u64, (kind, content_type): (&str, &str), value: &[u8]) -> ConsumerRecord {
    let sequence = sequence.to_string();
    let headers = [
        ("ce_id", id),
        ("ce_type", kind),
        ("content-type", content_type),
        ("tenant", TENANT),
        ("x-sequence", sequence.as_str()),
    ];
    let record = Record {
        topic: "t".into(),
        key: key.into(),
        headers: headers.into_iter().collect(),
        value: value.into(),
        timestamp: Timestamp::default(),
    };
    ConsumerRecord { position: Position { topic: "t".into(), partition: 0, offset: 0 }, record }
}

fn change(id: &str, key: &str, sequence: u64) -> ConsumerRecord {
    record(id, key, sequence, (SQL_TYPE, SQL_CONTENT_TYPE), &sql_value(1))
}

fn of_batch(id: &str, key: &str, sequence: u64, number: u64, index: usize) -> ConsumerRecord {
    let value = http_value(0, number, index).to_string();
    record(id, key, sequence, (HTTP_TYPE, "application/json"), value.as_bytes())
}

/// One batch of each outcome, and two changes of the key `a`. The unknown batch 1 was published after the later batch 3.
fn valid_evidence() -> Evidence {
    let batch = |number, keys: &[&'static str], outcome| ClientBatch { client: 0, number, keys: keys.into(), outcome };
    let acknowledged = |ids: &[&str]| SubmissionOutcome::Acknowledged(ids.iter().map(|id| (*id).to_owned()).collect());
    let change_of = |id: &str, position| SqlChange { event_id: id.into(), key: "a".into(), position, writer: 1 };
    Evidence {
        batches: vec![
            batch(0, &["a", "b"], acknowledged(&["h0", "h1"])),
            batch(1, &["b", "b"], SubmissionOutcome::Unknown),
            batch(2, &["a"], SubmissionOutcome::Refused),
            batch(3, &["b"], acknowledged(&["h4"])),
            batch(4, &["a"], SubmissionOutcome::Unknown),
        ],
        changes: vec![change_of("s1", 5), change_of("s2", 7)],
        events: vec![
            change("s1", "a", 1),
            of_batch("h0", "a", 2, 0, 0),
            of_batch("h1", "b", 1, 0, 1),
            of_batch("h4", "b", 2, 3, 0),
            of_batch("h2", "b", 3, 1, 0),
            of_batch("h3", "b", 4, 1, 1),
            change("s2", "a", 3),
        ],
        ..Evidence::default()
    }
}

/// The violations after one defect, one a line.
fn violations_after(defect: impl FnOnce(&mut Vec<ConsumerRecord>)) -> String {
    let mut evidence = valid_evidence();
    defect(&mut evidence.events);
    violations(&evidence, DeliveryGuarantee::ExactlyOnce).join("\n")
}

#[track_caller]
fn assert_found(expected: &str, defect: impl FnOnce(&mut Vec<ConsumerRecord>)) {
    let found = violations_after(defect);
    assert!(found.contains(expected), "{expected:?} is not in: {found}");
}

#[test]
fn valid_external_events_have_no_violation() {
    assert_eq!(violations(&valid_evidence(), DeliveryGuarantee::ExactlyOnce), Vec::<String>::new());
}

#[test]
fn the_last_event_of_a_key_that_is_missing_is_lost() {
    assert_found("lost: SqlChange { event_id: \"s2\"", |events| drop(events.pop()));
    assert_found("lost: 0 events of ClientBatch { client: 0, number: 3", |events| drop(events.remove(3)));
}

#[test]
fn a_duplicate_external_event_is_a_violation_only_in_exactly_once_mode() {
    let repeat = |events: &mut Vec<ConsumerRecord>| events.push(events[1].clone());

    assert_found("doubled: event h0", repeat);
    let mut evidence = valid_evidence();
    repeat(&mut evidence.events);
    assert_eq!(violations(&evidence, DeliveryGuarantee::AtLeastOnce), Vec::<String>::new());
}

#[test]
fn changes_in_another_order_than_their_commits_are_found_whatever_their_numbers() {
    let swapped = |events: &mut Vec<ConsumerRecord>| {
        events[0] = change("s2", "a", 1);
        events[6] = change("s1", "a", 3);
    };

    assert_found("event s1 of a: position 5 follows 7", swapped);
}

#[test]
fn batches_of_a_client_and_events_of_a_batch_keep_their_order() {
    let batches = |events: &mut Vec<ConsumerRecord>| {
        events[2] = of_batch("h4", "b", 1, 3, 0);
        events[3] = of_batch("h1", "b", 2, 0, 1);
    };
    let within = |events: &mut Vec<ConsumerRecord>| {
        events[4] = of_batch("h3", "b", 3, 1, 1);
        events[5] = of_batch("h2", "b", 4, 1, 0);
    };

    assert_found("event h1, 1 of batch 0-0 of b: follows 0 of 3", batches);
    assert_found("event h2, 0 of batch 0-1 of b: follows 1 of 1", within);
}

#[test]
fn half_of_a_batch_with_an_unknown_outcome_is_found() {
    assert_found("lost: 1 events of ClientBatch { client: 0, number: 1", |events| drop(events.remove(5)));
}

#[test]
fn events_that_were_refused_or_rolled_back_or_published_under_two_ids_are_found() {
    assert_found("batch 0-2: it was refused", |events| events.push(of_batch("h9", "a", 4, 2, 0)));
    assert_found("event s9 of a: no writer committed it", |events| events.push(change("s9", "a", 4)));
    assert_found("event h9 of a: no writer committed it", |events| events.push(of_batch("h9", "a", 4, 9, 0)));
    assert_found("acknowledged with another id", |events| events.push(of_batch("h9", "a", 4, 0, 0)));
    assert_found("batch 0-1: published under two ids", |events| events.push(of_batch("h9", "b", 5, 1, 0)));
}

#[test]
fn a_record_that_is_not_as_its_event_was_written_is_found() {
    assert_found("event h4, 0 of batch 0-3: its key is a, not b", |events| events[3] = of_batch("h4", "a", 4, 3, 0));
    assert_found("s1: its key is b, not a", |events| events[0] = change("s1", "b", 5));
    let header = |name: &'static str| {
        move |events: &mut Vec<ConsumerRecord>| {
            let headers = &mut events[0].record.headers;
            headers.retain(|header| header != name);
            headers.push(name, b"x");
        }
    };
    for name in ["ce_type", "content-type", "tenant"] {
        assert_found(&format!("s1: {name} is Some(\"x\")"), header(name));
    }
    assert_found("s1: its value is", |events| events[0].record.value = b"x".as_slice().into());
}
