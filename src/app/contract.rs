//! Event schemas: (type, version) → codec. Every released version stays readable; the latest is written by default.
//! Compatibility is BACKWARD_TRANSITIVE: a reader accepts every version from [`READABLE_MIN`] on and ignores unknown members.
mod event;
pub mod framing;
mod schema;
mod time;
pub mod v1;
pub mod v2;

use domain::OrderEvent;

pub use event::{ContractError, DecodedEvent, EventIdentity, LATEST, OrderAfterEvent, READABLE_MIN, event_identity};
pub use schema::schema;
pub use time::{parse_rfc3339, rfc3339};

/// Encodes an event in a released schema version.
pub fn encode(event: &OrderEvent, version: u32) -> Vec<u8> {
    match version {
        1 => v1::encode(event),
        _ => v2::encode(event),
    }
}

/// Decodes a value of any readable version, framed or not.
///
/// # Errors
/// Why the value is not a readable event; such a message goes to the dead-letter topic without a retry.
pub fn decode(value: &[u8]) -> Result<DecodedEvent, ContractError> {
    let (_, value) = framing::unframed(value);
    // Nearly every value has the latest version. Others are parsed twice, so that the error is that of their own version.
    if let Ok(event) = v2::decode(value)
        && event.schema_version == LATEST
    {
        return Ok(event);
    }
    match event::schema_version(value)? {
        1 => v1::decode(value),
        2 => v2::decode(value),
        other => Err(ContractError::Version(other)),
    }
}

#[cfg(test)]
mod tests {
    use domain::*;

    use super::*;

    fn event() -> OrderEvent {
        let now = Timestamp::from_millis(1_763_000_000_123);
        let price = Money::parse("2.50").expect("a price");
        let (_, event) = Order::place(NewOrder {
            id: OrderId::at(now, [1; 10]),
            event_id: EventId::at(now, [2; 10]),
            owner: Subject::new("ann").expect("a name"),
            items: Items::new(vec![Item::new("Tea \"green\"", 2, price).expect("legal")]).expect("one"),
            region: RegionId::new("local"),
            now,
            received: Hlc::default(),
        });
        event
    }

    #[test]
    fn times_have_milliseconds_and_end_in_z() {
        assert_eq!(rfc3339(Timestamp::from_millis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(Timestamp::from_millis(1_769_860_800_120)), "2026-01-31T12:00:00.120Z");
    }

    /// Released values, byte for byte as they are in topics. Never edit one: add the next version's.
    const RELEASED: [(u32, &str); 2] = [
        (1, include_str!("contract/released/order_created_v1.json")),
        (2, include_str!("contract/released/order_created_v2.json")),
    ];

    #[test]
    fn released_versions_are_encoded_byte_for_byte() {
        for (version, released) in RELEASED {
            let written = String::from_utf8(encode(&event(), version)).expect("JSON is UTF-8");
            assert_eq!(written, released.trim_end(), "version {version}");
        }
    }

    #[test]
    fn every_readable_version_is_decoded() {
        let versions: Vec<u32> = RELEASED.iter().map(|(version, _)| *version).collect();
        assert_eq!(versions, (READABLE_MIN..=LATEST).collect::<Vec<_>>());
        for (version, released) in RELEASED {
            let decoded = decode(released.as_bytes()).expect("readable");
            assert_eq!(decoded.schema_version, version);
            assert_eq!(decoded.event_id, event().id);
            assert_eq!(decoded.order_id, event().order_id);
            assert_eq!(decoded.kind, EventType::OrderCreated);
            assert_eq!(decoded.occurred_at, event().occurred_at);
            assert_eq!(decoded.after.is_some(), version >= 2);
            let DecodedEvent { event_id, kind, order_id, .. } = decoded;
            assert_eq!(event_identity(released.as_bytes()), Ok(EventIdentity { event_id, kind, order_id }));
        }
    }

    #[test]
    fn unknown_members_are_ignored() {
        for (_, released) in RELEASED {
            let extended = released.trim_end().replacen('{', "{\"new\":{\"x\":[1]},", 1);
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

    fn allows(version: u32, value: &str) -> bool {
        let schema = jsonschema::validator_for(&schema(version).expect("released")).expect("a schema");
        schema.is_valid(&serde_json::from_str(value).expect("JSON"))
    }

    #[test]
    fn schema_accepts_released_values_up_to_its_version_only() {
        for version in READABLE_MIN..=LATEST {
            for (of, released) in RELEASED {
                assert_eq!(allows(version, released), of <= version, "schema {version}, value {of}");
            }
        }
        assert_eq!((schema(READABLE_MIN - 1), schema(LATEST + 1)), (None, None));
    }

    #[test]
    fn schema_rejects_what_the_reader_rejects() {
        let (_, released) = RELEASED[1];
        let wrong = [
            ("\"schemaVersion\":2", "\"schemaVersion\":9"),
            ("\"eventType\":\"ORDER_CREATED\"", "\"eventType\":\"ORDER_EATEN\""),
            ("\"status\":\"PENDING\",", ""),
            ("\"version\":0", "\"version\":-1"),
            ("\"quantity\":2", "\"quantity\":\"2\""),
            ("019a7afd-1e7b-7202-8202-020202020202", "not-a-uuid"),
        ];
        for (right, wrong) in wrong {
            assert!(released.contains(right), "{right}");
            let value = released.replacen(right, wrong, 1);
            assert!(!allows(2, &value), "{value}");
            assert!(decode(value.as_bytes()).is_err(), "{value}");
        }
        assert!(allows(2, &released.replacen('{', "{\"new\":1,", 1)), "unknown members are accepted");
    }
}
