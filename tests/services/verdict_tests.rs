//! The judge judged: a world in which all is well, and one lie at a time.
use std::collections::BTreeMap;

use domain::{Status, Timestamp};
use ports::broker::{Position, Record};
use ports::source::Delivery;
use serde_json::json;

use crate::book::{Line, Shown};
use crate::verdict::{Copies, Evidence, wrongs};

fn event(key: &str, version: u64, status: Status, kind: &str, offset: u64) -> Delivery {
    let id = format!("event-{key}-{version}");
    let header = |name: &str, value: &str| (name.into(), value.as_bytes().into());
    let value = json!({"eventId": id, "eventType": kind, "status": status.as_str(), "version": version});
    let record = Record {
        topic: "t".into(),
        key: key.into(),
        headers: vec![header("ce_id", &id), header("x-sequence", &(version + 1).to_string())],
        value: value.to_string().into_bytes().into(),
        timestamp: Timestamp::default(),
    };
    Delivery { position: Position { topic: "t".into(), partition: 0, offset }, record }
}

/// `a` was placed, shipped and delivered; nobody knows about the cancel of `b`, which happened; `c` was refused.
fn all_is_well() -> Evidence {
    let line = |label: &str, id: Option<&str>, told: &[Status], open| Line {
        label: label.into(),
        id: id.map(str::to_owned),
        told: told.to_vec(),
        open,
    };
    let shown = |label: &str, status, version| Shown { label: label.into(), status, version };
    let log = vec![
        event("a", 0, Status::Pending, "ORDER_CREATED", 0),
        event("b", 0, Status::Pending, "ORDER_CREATED", 1),
        event("a", 1, Status::Shipped, "ORDER_STATUS_CHANGED", 2),
        event("b", 1, Status::Cancelled, "ORDER_CANCELLED", 3),
        event("a", 2, Status::Delivered, "ORDER_STATUS_CHANGED", 4),
    ];
    Evidence {
        lines: vec![
            line("for-a", Some("a"), &[Status::Pending, Status::Shipped, Status::Delivered], None),
            line("for-b", Some("b"), &[Status::Pending], Some(Status::Cancelled)),
            line("for-c", None, &[], None),
        ],
        shown: BTreeMap::from([
            ("a".into(), shown("for-a", Status::Delivered, 2)),
            ("b".into(), shown("for-b", Status::Cancelled, 1)),
        ]),
        consumed: ["a-0", "b-0", "a-1", "b-1", "a-2"].map(|event| format!("event-{event}")).into(),
        log,
    }
}

/// What is wrong after one lie.
fn after(lie: impl FnOnce(&mut Evidence)) -> String {
    let mut evidence = all_is_well();
    lie(&mut evidence);
    let wrongs = wrongs(&evidence, Copies::One);
    assert!(!wrongs.is_empty(), "the lie was believed");
    wrongs.join("\n")
}

#[test]
fn a_world_in_which_all_is_well_is_believed() {
    assert_eq!(wrongs(&all_is_well(), Copies::One), Vec::<String>::new());
}

#[test]
fn a_double_is_found_and_forgiven_only_where_it_may_be() {
    let double = |evidence: &mut Evidence| evidence.log.push(event("a", 1, Status::Shipped, "ORDER_STATUS_CHANGED", 9));

    assert!(after(double).contains("doubled: event event-a-1"));
    let mut evidence = all_is_well();
    double(&mut evidence);
    assert_eq!(wrongs(&evidence, Copies::AtLeastOne), Vec::<String>::new());
}

#[test]
fn a_missing_event_is_a_loss_and_in_the_middle_a_gap() {
    assert!(after(|evidence| drop(evidence.log.remove(4))).contains("lost: key a: its event at 3"));
    assert!(after(|evidence| drop(evidence.log.remove(2))).contains("gap: key a: nothing at 2 of 3"));
    assert!(after(|evidence| drop(evidence.log.remove(3))).contains("of b happened"), "also where nobody was answered");
}

#[test]
fn swapped_events_are_out_of_order() {
    assert!(after(|evidence| evidence.log.swap(2, 4)).contains("reordered: key a"));
}

#[test]
fn an_event_of_nobody_is_an_alien() {
    let alien = event("z", 0, Status::Pending, "ORDER_CREATED", 9);
    assert!(after(|evidence| evidence.log.push(alien)).contains("alien: events of z"));
    let more = event("b", 2, Status::Delivered, "ORDER_STATUS_CHANGED", 9);
    assert!(after(|evidence| evidence.log.push(more)).contains("of b happened"));
}

#[test]
fn an_event_that_tells_another_story_is_found() {
    let other = event("a", 1, Status::Processing, "ORDER_STATUS_CHANGED", 2);
    assert!(after(|evidence| evidence.log[2] = other).contains("of a happened"));
    let misnamed = event("b", 1, Status::Cancelled, "ORDER_STATUS_CHANGED", 3);
    assert!(after(|evidence| evidence.log[3] = misnamed).contains("of b happened"));
}

#[test]
fn an_answered_order_that_is_gone_or_stands_elsewhere_is_found() {
    assert!(after(|evidence| drop(evidence.shown.remove("a"))).contains("was answered and is gone"));
    let back = |evidence: &mut Evidence| evidence.shown.get_mut("a").expect("a").version = 1;
    assert!(after(back).contains("a is shown as"));
}

#[test]
fn an_order_that_was_refused_or_placed_twice_must_not_be_there() {
    let shown = |label: &str| Shown { label: label.into(), status: Status::Pending, version: 0 };
    let refused = |evidence: &mut Evidence| drop(evidence.shown.insert("c".into(), shown("for-c")));
    assert!(after(refused).contains("for-c (c) was refused"));
    let twice = |evidence: &mut Evidence| drop(evidence.shown.insert("d".into(), shown("for-a")));
    assert!(after(twice).contains("for-a was placed 2 times"));
    let nobodys = |evidence: &mut Evidence| drop(evidence.shown.insert("e".into(), shown("for-e")));
    assert!(after(nobodys).contains("nobody placed for-e"));
}

#[test]
fn the_inbox_holds_each_event_once_and_no_other() {
    assert!(after(|evidence| drop(evidence.consumed.pop())).contains("never consumed: event-a-2"));
    assert!(after(|evidence| evidence.consumed.push("event-a-0".into())).contains("doubles"));
    assert!(after(|evidence| evidence.consumed.push("other".into())).contains("not in the log: other"));
}
