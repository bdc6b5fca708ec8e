//! Tests of the checks: valid evidence has no violation, and each single defect is found.
use std::collections::BTreeMap;

use domain::{Status, Timestamp};
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::{Position, Record};
use serde_json::json;

use crate::oracle::checks::{DeliveryGuarantee, Evidence, violations};
use crate::oracle::client_orders::{ClientOrder, OrderView};

fn event(key: &str, version: u64, status: Status, kind: &str, offset: u64) -> ConsumerRecord {
    let id = format!("event-{key}-{version}");
    let value = json!({"eventId": id, "eventType": kind, "status": status.as_str(), "version": version});
    let record = Record {
        topic: "t".into(),
        key: key.into(),
        headers: [("ce_id", &id), ("x-sequence", &(version + 1).to_string())].into_iter().collect(),
        value: value.to_string().into_bytes().into(),
        timestamp: Timestamp::default(),
    };
    ConsumerRecord { position: Position { topic: "t".into(), partition: 0, offset }, record }
}

/// `a` was created, shipped and delivered; `b` was cancelled, and its client does not know the outcome; `c` was refused.
fn valid_evidence() -> Evidence {
    let order = |label: &str, id: Option<&str>, acknowledged: &[Status], unknown| ClientOrder {
        label: label.into(),
        id: id.map(str::to_owned),
        acknowledged: acknowledged.to_vec(),
        unknown,
    };
    let shown = |label: &str, status, version| OrderView { label: label.into(), status, version };
    let log = vec![
        event("a", 0, Status::Pending, "ORDER_CREATED", 0),
        event("b", 0, Status::Pending, "ORDER_CREATED", 1),
        event("a", 1, Status::Shipped, "ORDER_STATUS_CHANGED", 2),
        event("b", 1, Status::Cancelled, "ORDER_CANCELLED", 3),
        event("a", 2, Status::Delivered, "ORDER_STATUS_CHANGED", 4),
    ];
    Evidence {
        orders: vec![
            order("for-a", Some("a"), &[Status::Pending, Status::Shipped, Status::Delivered], None),
            order("for-b", Some("b"), &[Status::Pending], Some(Status::Cancelled)),
            order("for-c", None, &[], None),
        ],
        shown: BTreeMap::from([
            ("a".into(), shown("for-a", Status::Delivered, 2)),
            ("b".into(), shown("for-b", Status::Cancelled, 1)),
        ]),
        consumed: ["a-0", "b-0", "a-1", "b-1", "a-2"].map(|event| format!("event-{event}")).into(),
        log,
        ..Evidence::default()
    }
}

/// The violations after one defect, one a line.
fn violations_after(defect: impl FnOnce(&mut Evidence)) -> String {
    let mut evidence = valid_evidence();
    defect(&mut evidence);
    let violations = violations(&evidence, DeliveryGuarantee::ExactlyOnce);
    assert!(!violations.is_empty(), "the defect was not found");
    violations.join("\n")
}

#[test]
fn valid_evidence_has_no_violation() {
    assert_eq!(violations(&valid_evidence(), DeliveryGuarantee::ExactlyOnce), Vec::<String>::new());
}

#[test]
fn a_duplicate_is_a_violation_only_in_exactly_once_mode() {
    let duplicate =
        |evidence: &mut Evidence| evidence.log.push(event("a", 1, Status::Shipped, "ORDER_STATUS_CHANGED", 9));

    assert!(violations_after(duplicate).contains("doubled: event event-a-1"));
    let mut evidence = valid_evidence();
    duplicate(&mut evidence);
    assert_eq!(violations(&evidence, DeliveryGuarantee::AtLeastOnce), Vec::<String>::new());
}

#[test]
fn a_missing_event_is_lost_at_the_end_and_a_gap_in_the_middle() {
    assert!(violations_after(|evidence| drop(evidence.log.remove(4))).contains("lost: key a: its event at 3"));
    assert!(violations_after(|evidence| drop(evidence.log.remove(2))).contains("gap: key a: no event at 2 of 3"));
    assert!(
        violations_after(|evidence| drop(evidence.log.remove(3))).contains("the changes of b are"),
        "also when no client was acknowledged"
    );
}

#[test]
fn swapped_events_are_out_of_order() {
    assert!(violations_after(|evidence| evidence.log.swap(2, 4)).contains("reordered: key a"));
}

#[test]
fn an_event_without_an_order_is_found() {
    let unknown = event("z", 0, Status::Pending, "ORDER_CREATED", 9);
    assert!(violations_after(|evidence| evidence.log.push(unknown)).contains("events of z, which is not an order"));
    let more = event("b", 2, Status::Delivered, "ORDER_STATUS_CHANGED", 9);
    assert!(violations_after(|evidence| evidence.log.push(more)).contains("the changes of b are"));
}

#[test]
fn an_event_with_a_wrong_status_or_type_is_found() {
    let other = event("a", 1, Status::Processing, "ORDER_STATUS_CHANGED", 2);
    assert!(violations_after(|evidence| evidence.log[2] = other).contains("the changes of a are"));
    let misnamed = event("b", 1, Status::Cancelled, "ORDER_STATUS_CHANGED", 3);
    assert!(violations_after(|evidence| evidence.log[3] = misnamed).contains("the changes of b are"));
}

#[test]
fn an_acknowledged_order_that_is_missing_or_outdated_is_found() {
    assert!(violations_after(|evidence| drop(evidence.shown.remove("a"))).contains("was acknowledged and is missing"));
    let outdated = |evidence: &mut Evidence| evidence.shown.get_mut("a").expect("a").version = 1;
    assert!(violations_after(outdated).contains("a is shown as"));
}

#[test]
fn an_order_that_was_refused_duplicated_or_never_placed_is_found() {
    let shown = |label: &str| OrderView { label: label.into(), status: Status::Pending, version: 0 };
    let refused = |evidence: &mut Evidence| drop(evidence.shown.insert("c".into(), shown("for-c")));
    assert!(violations_after(refused).contains("for-c (c) was refused"));
    let twice = |evidence: &mut Evidence| drop(evidence.shown.insert("d".into(), shown("for-a")));
    assert!(violations_after(twice).contains("for-a was created 2 times"));
    let unknown = |evidence: &mut Evidence| drop(evidence.shown.insert("e".into(), shown("for-e")));
    assert!(violations_after(unknown).contains("no client created for-e"));
}

#[test]
fn the_inbox_holds_each_event_once_and_no_other() {
    assert!(violations_after(|evidence| drop(evidence.consumed.pop())).contains("never consumed: event-a-2"));
    assert!(violations_after(|evidence| evidence.consumed.push("event-a-0".into())).contains("duplicates"));
    assert!(violations_after(|evidence| evidence.consumed.push("other".into())).contains("not in the log: other"));
}
