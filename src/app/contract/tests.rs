//! Tests of the contracts: the registry, the codecs and the schemas agree with each other and with the released samples.
use std::collections::BTreeSet;
use std::sync::LazyLock;

use domain::*;
use jsonschema::Validator;
use proptest::prelude::*;

use super::codec::{decode, encode, validate};
use super::event::{ContractError, DecodedEvent, LATEST, OrderAfterEvent, READABLE_MIN};
use super::registry::{SAMPLE_FILES, contract, contracts};
use super::schema::schema;
use super::time::rfc3339;

const NOW: Timestamp = Timestamp::from_millis(1_763_000_000_123);

fn price(text: &str) -> Money {
    Money::parse(text).expect("a price")
}

fn placed(items: Vec<Item>) -> (Order, OrderEvent) {
    Order::place(NewOrder {
        id: OrderId::new_v7(NOW, [1; 10]),
        event_id: EventId::new_v7(NOW, [2; 10]),
        owner: Subject::new("ann").expect("a name"),
        items: Items::new(items).expect("legal items"),
        region: RegionId::new("local"),
        now: NOW,
        physical_time: NOW,
        received: Hlc::default(),
    })
}

fn tea() -> Vec<Item> {
    vec![Item::new("Tea \"green\"", 2, price("2.50")).expect("legal")]
}

fn exact_prices() -> Vec<Item> {
    let item = |name, quantity, text| Item::new(name, quantity, price(text)).expect("legal");
    vec![item("naïve ☕ \\ 漢", 1, "1234567890.123456789012"), item("gift", 1_000_000, "0"), item("box", 3, "100")]
}

/// The event of each released sample, in the order of the registry.
fn events_of(event_type: EventType) -> Vec<OrderEvent> {
    let changed = |to| {
        let (event_id, region) = (EventId::new_v7(NOW, [3; 10]), RegionId::new("local"));
        let now = Timestamp::from_millis(NOW.millis() + 1_000);
        let change = ChangeContext { event_id, region, now, physical_time: now, received: Hlc::default() };
        placed(tea()).0.change_status(to, change).expect("a legal change").1
    };
    match event_type {
        EventType::OrderCreated => vec![placed(tea()).1, placed(exact_prices()).1],
        EventType::OrderStatusChanged => vec![changed(Status::Shipped)],
        EventType::OrderCancelled => vec![changed(Status::Cancelled)],
    }
}

#[test]
fn times_have_milliseconds_and_end_in_z() {
    assert_eq!(rfc3339(Timestamp::from_millis(0)), "1970-01-01T00:00:00.000Z");
    assert_eq!(rfc3339(Timestamp::from_millis(1_769_860_800_120)), "2026-01-31T12:00:00.120Z");
}

#[test]
fn every_type_has_a_contract_in_every_readable_version() {
    let registered: BTreeSet<(u32, EventType)> =
        contracts().iter().map(|entry| (entry.version, entry.event_type)).collect();
    let expected = (READABLE_MIN..=LATEST).flat_map(|version| EventType::ALL.map(|event_type| (version, event_type)));

    assert_eq!(registered, expected.collect());
    assert_eq!(registered.len(), contracts().len(), "no pair is registered twice");
    let unknown = ContractError::Unregistered { event_type: EventType::OrderCreated, version: LATEST + 1 };
    assert_eq!(contract(EventType::OrderCreated, LATEST + 1).err(), Some(unknown));
}

#[test]
fn every_released_file_is_a_sample_of_the_registry() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/contract/released");
    let files = std::fs::read_dir(folder).expect("the folder").map(|file| file.expect("a file").file_name());
    let names = files.map(|name| name.into_string().expect("UTF-8")).filter(|name| !name.contains(".schema."));

    assert_eq!(names.collect::<BTreeSet<_>>(), SAMPLE_FILES.iter().map(|name| (*name).to_owned()).collect());
}

#[test]
fn released_samples_are_encoded_byte_for_byte() {
    for entry in contracts() {
        for (sample, event) in entry.samples.iter().zip(events_of(entry.event_type)) {
            let written = String::from_utf8(encode(&event, entry.version)).expect("JSON is UTF-8");
            assert_eq!(written, sample.trim_end(), "{} {}", entry.event_type, entry.version);
        }
    }
}

#[test]
fn released_samples_are_accepted_with_every_member() {
    for entry in contracts() {
        for (sample, event) in entry.samples.iter().zip(events_of(entry.event_type)) {
            let decoded = decode(sample.as_bytes()).expect("readable");
            let after = OrderAfterEvent { status: event.status, version: event.version };
            let expected = DecodedEvent {
                schema_version: entry.version,
                event_id: event.id,
                event_type: entry.event_type,
                order_id: event.order_id,
                occurred_at: event.occurred_at,
                after: (entry.version >= 2).then_some(after),
            };
            assert_eq!(decoded, expected);
            assert_eq!(validate(sample.as_bytes()), Ok(expected));
        }
    }
}

#[test]
fn unknown_members_are_ignored() {
    for sample in contracts().iter().flat_map(|entry| entry.samples) {
        let extended = sample.trim_end().replacen('{', "{\"new\":{\"x\":[1]},", 1);
        assert!(decode(extended.as_bytes()).is_ok());
    }
}

#[test]
fn errors_name_what_is_wrong_with_a_value() {
    let cases: [(&str, &str); 6] = [
        ("", "not an event"),
        ("[]", "not an event"),
        ("{\"schemaVersion\":3}", "schema version 3"),
        ("{\"schemaVersion\":0}", "schema version 0"),
        ("{\"schemaVersion\":1}", "missing field"),
        (
            "{\"schemaVersion\":1,\"eventId\":\"x\",\"eventType\":\"ORDER_CREATED\",\"orderId\":\"y\",\"occurredAt\":\"z\"}",
            "eventId",
        ),
    ];
    for (value, expected) in cases {
        let error = decode(value.as_bytes()).expect_err(value).to_string();
        assert!(error.contains(expected), "{value}: {error}");
    }
}

#[test]
fn errors_name_the_member_and_never_its_content() {
    let json = |members: &str| format!("{{\"schemaVersion\":2,\"eventId\":\"e\",\"eventType\":\"t\",{members}}}");
    let rest = "\"orderId\":\"o\",\"occurredAt\":\"t\",\"status\":\"s\",\"total\":\"1\"";
    let cases = [
        ("\"4111 1111\"".to_owned(), "the value has the wrong type or range at line 1 column 11"),
        (json(&format!("{rest},\"version\":1,\"items\":\"4111 1111\"")), "items has the wrong type or range at line 1"),
        (json(&format!("{rest},\"version\":\"4111 1111\"")), "version has the wrong type or range at line 1"),
        (
            json(&format!("{rest},\"version\":1,\"items\":[{{\"quantity\":41111111111}}]")),
            "items[0].quantity has the wrong",
        ),
        (json("\"orderId\":\"4111 1111\""), "missing field `occurredAt`"),
        (json("\"4111 1111\":nul"), "expected ident at line 1"),
    ];
    for (value, expected) in cases {
        let error = decode(value.as_bytes()).expect_err(&value).to_string();
        assert!(error.contains(expected) && !error.contains("4111"), "{value}: {error}");
    }
}

static VALIDATORS: LazyLock<Vec<Validator>> = LazyLock::new(|| {
    let validator = |version| jsonschema::validator_for(&schema(version).expect("released")).expect("a schema");
    (READABLE_MIN..=LATEST).map(validator).collect()
});

fn allows(version: u32, value: &str) -> bool {
    VALIDATORS[(version - READABLE_MIN) as usize].is_valid(&serde_json::from_str(value).expect("JSON"))
}

#[test]
fn schema_accepts_released_samples_up_to_its_version_only() {
    for version in READABLE_MIN..=LATEST {
        for entry in contracts() {
            for sample in entry.samples {
                assert_eq!(allows(version, sample), entry.version <= version, "schema {version}, value {sample}");
            }
        }
    }
    assert_eq!((schema(READABLE_MIN - 1), schema(LATEST + 1)), (None, None));
}

#[test]
fn schema_rejects_what_the_reader_rejects() {
    let released = contract(EventType::OrderCreated, 2).expect("registered").samples[0];
    let wrong = [
        ("\"schemaVersion\":2", "\"schemaVersion\":9"),
        ("\"eventType\":\"ORDER_CREATED\"", "\"eventType\":\"ORDER_EATEN\""),
        ("\"status\":\"PENDING\",", ""),
        ("\"version\":0", "\"version\":-1"),
        ("\"quantity\":2", "\"quantity\":\"2\""),
        ("\"quantity\":2", "\"quantity\":0"),
        ("\"productName\":\"Tea \\\"green\\\"\"", "\"productName\":\"\""),
        ("\"price\":\"2.50\"", "\"price\":\"2.5e0\""),
        ("\"price\":\"2.50\"", "\"price\":\"02.50\""),
        ("\"price\":\"2.50\"", "\"price\":\"-2.50\""),
        ("\"total\":\"5.00\"", "\"total\":5.00"),
        ("\"total\":\"5.00\"", "\"total\":\"5.\""),
        ("019a7afd-1e7b-7202-8202-020202020202", "not-a-uuid"),
    ];
    for (right, wrong) in wrong {
        let value = replaced(released, right, wrong);
        assert!(!allows(2, &value), "{value}");
        assert!(decode(value.as_bytes()).is_err(), "{value}");
    }
    assert!(allows(2, &released.replacen('{', "{\"new\":1,", 1)), "unknown members are accepted");
}

fn replaced(value: &str, right: &str, wrong: &str) -> String {
    assert!(value.contains(right), "{right}");
    value.replacen(right, wrong, 1)
}

#[test]
fn rules_between_members_are_checked() {
    let sample = |event_type| contract(event_type, 2).expect("registered").samples[0];
    let created = sample(EventType::OrderCreated);
    let (changed, cancelled) = (sample(EventType::OrderStatusChanged), sample(EventType::OrderCancelled));
    let many = format!("\"items\":[{}]", vec!["{\"productName\":\"T\",\"quantity\":1,\"price\":\"0\"}"; 501].join(","));
    let items = "\"items\":[{\"productName\":\"Tea \\\"green\\\"\",\"quantity\":2,\"price\":\"2.50\"}]";
    let cases = [
        (created, "\"total\":\"5.00\"", "\"total\":\"5.01\"", "total is 5.01, the items add up to 5.00"),
        (created, "\"total\":\"5.00\"", "\"total\":\"5.0\"", "add up to 5.00"),
        (created, "\"quantity\":2", "\"quantity\":3", "add up to 7.50"),
        (created, "\"quantity\":2", "\"quantity\":1000001", "items[0].quantity"),
        (created, "Tea \\\"green\\\"", " \\u00a0 ", "items[0].productName"),
        (created, "Tea \\\"green\\\"", "T\\u0007", "items[0].productName"),
        (created, "\"price\":\"2.50\"", "\"price\":\"1e2\"", "items[0].price"),
        (created, items, "\"items\":[]", "1 to 500 items"),
        (created, items, many.as_str(), "1 to 500 items"),
        (created, "\"status\":\"PENDING\"", "\"status\":\"SHIPPED\"", "ORDER_CREATED of an order that is SHIPPED"),
        (created, "\"version\":0", "\"version\":1", "at version 1"),
        (changed, "\"status\":\"SHIPPED\"", "\"status\":\"CANCELLED\"", "ORDER_STATUS_CHANGED of"),
        (changed, "\"status\":\"SHIPPED\"", "\"status\":\"PENDING\"", "ORDER_STATUS_CHANGED of"),
        (changed, "\"version\":1", "\"version\":0", "at version 0"),
        (cancelled, "\"status\":\"CANCELLED\"", "\"status\":\"PENDING\"", "ORDER_CANCELLED of"),
    ];
    for (value, right, wrong, expected) in cases {
        let value = replaced(value, right, wrong);
        let error = validate(value.as_bytes()).expect_err(&value).to_string();
        assert!(error.contains(expected), "{value}: {error}");
    }
}

fn item() -> impl Strategy<Value = Item> {
    let price = (0_i128..10_000_000_000_000_000, 0_u32..=12);
    ("[^\\p{Cc}]{0,40}[a-z]", 1_u32..=1_000_000, price).prop_map(|(name, quantity, (mantissa, scale))| {
        let price = Money::from_parts(mantissa, scale).expect("16 digits fit");
        Item::new(&name, quantity, price).expect("a legal item")
    })
}

proptest! {
    /// This is why a value of the typed codec needs no check after it was written.
    #[test]
    fn every_legal_event_is_written_as_its_contract_defines(
        items in prop::collection::vec(item(), 1..6), to in prop::sample::select(Status::Pending.successors().to_vec())
    ) {
        let total = Items::new(items.clone());
        prop_assume!(total.is_ok());
        let (order, created) = placed(items);
        let (event_id, region) = (EventId::new_v7(NOW, [3; 10]), RegionId::new("local"));
        let (_, changed) = order
            .change_status(to, ChangeContext { event_id, region, now: NOW, physical_time: NOW, received: Hlc::default() })
            .expect("a legal change");
        for event in [created, changed] {
            for version in READABLE_MIN..=LATEST {
                let value = String::from_utf8(encode(&event, version)).expect("JSON is UTF-8");
                let decoded = validate(value.as_bytes());
                prop_assert_eq!(decoded.map(|decoded| decoded.event_id), Ok(event.id), "{}", value);
                prop_assert!(allows(version, &value), "{}", value);
            }
        }
    }
}
