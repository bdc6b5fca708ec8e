//! Tests of the records: which rows are sent, and what their records contain.
use std::sync::Arc;
use std::time::Duration;

use domain::{EventId, Hlc, OrderId, RegionId, Timestamp};
use ports::broker::Position;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::event_headers::EventHeaders;
use ports::orders::{RegionStamp, event_key};
use ports::outbox::{ClaimedRow, EventKey};

use crate::contract::{checksum, order_values};
use crate::operators::dead_letters::DeadLetter;
use crate::relay::records::{Options, RecordEnvelope, RefusedRow, fallback_record, plan, record};

const ORDER_TOPIC: &str = "order.events";

fn envelope() -> RecordEnvelope {
    RecordEnvelope::new(&RegionId::new("eu"), order_values(ORDER_TOPIC.into(), None))
}

/// A row of another service.
fn foreign() -> ClaimedRow {
    ClaimedRow {
        id: 1,
        event_id: EventId::new_v7(Timestamp::from_millis(1_000), [7; 10]),
        key: EventKey::parse("customer-7").unwrap(),
        event_type: "customer moved".into(),
        topic: "customers".into(),
        payload: Some([0, 159, 146].as_slice().into()),
        sequence: 3,
        occurred_at: Timestamp::from_millis(1_000),
        stamp: None,
        trace: None,
        request_id: None,
        headers: EventHeaders::from_pairs([("tenant", "blue")]),
        content_type: Some("application/x-protobuf".into()),
        contract_checksum: None,
        attempt: 2,
        created_at: Timestamp::from_millis(1_000),
    }
}

fn headers(row: &ClaimedRow) -> Vec<(String, String)> {
    let record = record(row, row.payload.as_ref().unwrap(), &envelope());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    record.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

fn reasons(rows: &[ClaimedRow]) -> Vec<String> {
    plan(rows, &envelope(), 1_000).refused.into_iter().map(|refused| refused.reason).collect()
}

#[test]
fn record_of_another_service_has_its_own_key_type_content_and_headers() {
    let row = foreign();

    let plan = plan(std::slice::from_ref(&row), &envelope(), 1_000);

    let (_, record) = &plan.send[0];
    assert_eq!((&*record.topic, &*record.key), ("customers", "customer-7"));
    assert_eq!(record.value, row.payload.clone().unwrap());
    let names: Vec<String> = headers(&row).into_iter().map(|(name, _)| name).collect();
    let expected = [
        "ce_id",
        "ce_source",
        "ce_type",
        "ce_specversion",
        "ce_time",
        "ce_partitionkey",
        "content-type",
        "id",
        "x-attempt",
        "x-sequence",
        "tenant",
    ];
    assert_eq!(names, expected);
    for (name, value) in [
        ("ce_type", "customer moved"),
        ("ce_source", "/posthaste/eu"),
        ("ce_partitionkey", "customer-7"),
        ("content-type", "application/x-protobuf"),
        ("x-attempt", "2"),
        ("x-sequence", "3"),
        ("tenant", "blue"),
    ] {
        assert!(headers(&row).contains(&(name.into(), value.into())), "{name}: {:?}", headers(&row));
    }
}

#[test]
fn record_of_an_orders_event_has_the_released_headers_in_their_order() {
    let id = OrderId::new_v7(Timestamp::from_millis(1_000), [1; 10]);
    let stamp = RegionStamp { region: RegionId::new("eu"), hlc: Hlc { millis: 1_000, counter: 2 } };
    let row = ClaimedRow {
        key: event_key(id),
        topic: ORDER_TOPIC.into(),
        stamp: Some(stamp),
        headers: EventHeaders::default(),
        content_type: None,
        request_id: Some("request-7".into()),
        ..foreign()
    };

    let headers = headers(&ClaimedRow { payload: Some(b"{}".as_slice().into()), ..row });

    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let released = [
        "ce_id",
        "ce_source",
        "ce_type",
        "ce_specversion",
        "ce_time",
        "ce_partitionkey",
        "content-type",
        "id",
        "x-region",
        "x-hlc",
        "x-attempt",
        "x-sequence",
    ];
    assert_eq!(names, [&released[..], &["x-request-id"]].concat());
    assert!(headers.contains(&("content-type".into(), "application/json".into())));
    assert!(headers.contains(&("ce_partitionkey".into(), id.to_string())));
    assert!(headers.contains(&("x-request-id".into(), "request-7".into())));
}

#[test]
fn rows_for_internal_topics_are_refused() {
    let options = Options {
        region: RegionId::new("eu"),
        contracts: order_values(ORDER_TOPIC.into(), None),
        internal_topics: outbox::topics::internal_topics("").into(),
        batch: 1,
        lease: Duration::ZERO,
        margin: Duration::ZERO,
        defers_settlement: false,
    };
    let rows = ["relay-watermarks", "webhooks-retry-0", "webhooks-dlt", "webhooks"]
        .map(|topic| ClaimedRow { topic: topic.into(), ..foreign() });

    let plan = plan(&rows, &options.envelope(), 1_000);

    assert_eq!(plan.send.iter().map(|(_, record)| &*record.topic).collect::<Vec<_>>(), ["webhooks"]);
    let reasons: Vec<&str> = plan.refused.iter().map(|refused| refused.reason.as_str()).collect();
    assert_eq!(reasons.len(), 3);
    assert_eq!(reasons[0], "only the service itself writes to the topic relay-watermarks");
}

#[test]
fn contract_of_orders_is_checked_in_the_order_topic_only() {
    let other = ClaimedRow { topic: ORDER_TOPIC.into(), ..foreign() };

    let plan = plan(&[foreign(), other], &envelope(), 1_000);

    assert_eq!((plan.send.len(), plan.refused.len()), (1, 1));
    assert!(
        plan.refused[0].contract_violation && plan.refused[0].reason.starts_with("not an event"),
        "{:?}",
        plan.refused
    );
}

#[test]
fn dead_letter_of_a_row_shows_its_error_and_its_attempts() {
    let row = foreign();
    let refused = RefusedRow::from_error(row.id, &ports::Error::Rejected("too large".into()));

    let record = fallback_record(&row, row.payload.as_ref().unwrap(), &envelope(), &refused);

    let position = Position { topic: Arc::clone(&record.topic), partition: 0, offset: 0 };
    let dead = DeadLetter { message: ConsumerRecord { position, record }, redrive: None };
    assert_eq!((dead.exception(), dead.reason()), (Some("posthaste.RefusedRow"), Some("rejected: too large")));
    assert_eq!((dead.attempts(), dead.failure_type()), (Some(2), Some(refused.failure_type)));
    let origin = dead.origin().unwrap();
    assert_eq!((&*origin.topic, origin.partition, origin.offset), ("customers", None, None));
}

#[test]
fn value_with_the_checksum_of_its_encoding_is_sent_without_being_parsed() {
    let row = ClaimedRow { topic: ORDER_TOPIC.into(), ..foreign() };
    let value = row.payload.clone().unwrap();
    let row = ClaimedRow { contract_checksum: Some(checksum(row.event_id, &row.key, &row.event_type, &value)), ..row };
    // It is not an event: only a value that is parsed is refused.
    assert!(reasons(std::slice::from_ref(&row)).is_empty());

    let changed = [
        ClaimedRow { payload: Some([0, 159, 147].as_slice().into()), ..row.clone() },
        ClaimedRow { event_id: EventId::new_v7(Timestamp::from_millis(1_000), [8; 10]), ..row.clone() },
        ClaimedRow { key: EventKey::from_text("customer-8"), ..row.clone() },
        ClaimedRow { key: EventKey::from_stored(row.key.group(), None), ..row.clone() },
        ClaimedRow { event_type: "customer left".into(), ..row.clone() },
        ClaimedRow { contract_checksum: None, ..row },
    ];
    let reasons = reasons(&changed);
    assert_eq!(reasons.len(), changed.len());
    assert!(reasons.iter().all(|reason| reason.starts_with("not an event")), "{reasons:?}");
}

#[test]
fn rows_that_break_a_rule_are_refused_with_its_text() {
    let key = EventKey::from_text;
    let cases = [
        (ClaimedRow { payload: None, ..foreign() }, "payload is missing"),
        (ClaimedRow { payload: Some([0; 1_001].as_slice().into()), ..foreign() }, "has 1001 bytes"),
        (ClaimedRow { key: key("a\nb"), ..foreign() }, "control character"),
        (ClaimedRow { key: key(&"k".repeat(1_025)), ..foreign() }, "at most 1024 bytes"),
        (ClaimedRow { key: key(""), ..foreign() }, "must not be empty"),
        (ClaimedRow { topic: "a b".into(), ..foreign() }, "not a valid topic name"),
        (ClaimedRow { event_type: "".into(), ..foreign() }, "type"),
        (ClaimedRow { headers: EventHeaders::from_pairs([("ce_id", "1")]), ..foreign() }, "written by the relay"),
        (ClaimedRow { headers: EventHeaders::from_pairs([("a b", "1")]), ..foreign() }, "not a valid header name"),
        (ClaimedRow { content_type: Some("\n".into()), ..foreign() }, "content type"),
    ];
    for (row, reason) in cases {
        let reasons = reasons(&[row, foreign()]);
        assert!(reasons.len() == 1 && reasons[0].contains(reason), "{reason}: {reasons:?}");
    }
}
