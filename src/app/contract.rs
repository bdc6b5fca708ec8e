//! OrderEvent schemas: (type, version) → codec. What was released is read for ever; the newest is written by default.
//! Compatibility is BACKWARD_TRANSITIVE: every reader reads everything from [`READABLE_MIN`] on, and ignores members it does not know.
pub mod framing;
mod schema;
pub mod v1;
pub mod v2;

use std::borrow::Cow;

use domain::{EventId, EventType, OrderEvent, OrderId, Status, Timestamp};
use serde::Deserialize;

pub use schema::schema;

/// The version written by default.
pub const LATEST: u32 = 2;
/// The oldest version that is read.
pub const READABLE_MIN: u32 = 1;

/// Why a value is no event of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    /// Not JSON, or not of the schema it claims.
    #[error("not an event: {0}")]
    Malformed(String),
    /// A version nobody has released, or one no longer read.
    #[error("schema version {0} is not readable (readable: {READABLE_MIN} to {LATEST})")]
    Version(u32),
    /// The header and the value name different types or events.
    #[error("header and value disagree: {0}")]
    Disagrees(String),
}

/// A consumed event: what every version says, and what later ones add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedEvent {
    /// Version it was written in.
    pub schema_version: u32,
    /// Its name.
    pub event_id: EventId,
    /// What happened.
    pub kind: EventType,
    /// To which order.
    pub order_id: OrderId,
    /// When.
    pub occurred_at: Timestamp,
    /// The order afterwards; from version 2 on.
    pub after: Option<OrderAfterEvent>,
}

/// The order as it stood right after the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderAfterEvent {
    /// Its state.
    pub status: Status,
    /// Its version.
    pub version: u64,
}

/// The value of an event in a released schema.
pub fn encode(event: &OrderEvent, version: u32) -> Vec<u8> {
    match version {
        1 => v1::encode(event),
        _ => v2::encode(event),
    }
}

#[derive(Deserialize)]
struct Versioned {
    #[serde(rename = "schemaVersion")]
    schema_version: u32,
}

/// Reads a value of any readable version, framed or not.
///
/// # Errors
/// IdentityFields what is wrong; such a message goes straight to the dead letters.
pub fn decode(value: &[u8]) -> Result<DecodedEvent, ContractError> {
    let (_, value) = framing::unframed(value);
    // Nearly all are of the latest version: the others are read twice, to be told by their version what is wrong with them.
    if let Ok(incoming) = v2::decode(value)
        && incoming.schema_version == LATEST
    {
        return Ok(incoming);
    }
    let Versioned { schema_version } = read(value)?;
    match schema_version {
        1 => v1::decode(value),
        2 => v2::decode(value),
        other => Err(ContractError::Version(other)),
    }
}

/// Of whom a value tells, whatever its version says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventIdentity {
    /// The event.
    pub event_id: EventId,
    /// What happened.
    pub kind: EventType,
    /// To which order.
    pub order_id: OrderId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentityFields<'a> {
    schema_version: u32,
    #[serde(borrow)]
    event_id: Cow<'a, str>,
    #[serde(borrow)]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    order_id: Cow<'a, str>,
}

/// Reads only of whom a value tells: what is enough for whoever carries it and wrote it himself, and a third of the work.
///
/// # Errors
/// The same as [`decode`], as far as it is read.
pub fn event_identity(value: &[u8]) -> Result<EventIdentity, ContractError> {
    let names: IdentityFields<'_> = read(value)?;
    if !(READABLE_MIN..=LATEST).contains(&names.schema_version) {
        return Err(ContractError::Version(names.schema_version));
    }
    Ok(EventIdentity {
        event_id: member("eventId", EventId::parse(&names.event_id))?,
        kind: member("eventType", EventType::parse(&names.event_type))?,
        order_id: member("orderId", OrderId::parse(&names.order_id))?,
    })
}

fn read<'a, T: Deserialize<'a>>(value: &'a [u8]) -> Result<T, ContractError> {
    serde_json::from_slice(value).map_err(|error| ContractError::Malformed(error.to_string()))
}

fn member<T>(field: &str, read: Option<T>) -> Result<T, ContractError> {
    read.ok_or_else(|| ContractError::Malformed(format!("{field} is not what it should be")))
}

static PRINTER: jiff::fmt::temporal::DateTimePrinter = jiff::fmt::temporal::DateTimePrinter::new().precision(Some(3));

/// RFC 3339 in UTC with `Z` and milliseconds: the form of all times, everywhere.
pub fn rfc3339(at: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(at.millis()) {
        Ok(stamp) => PRINTER.timestamp_to_string(&stamp),
        // Beyond year 9999; a store cannot hold it and no clock tells it.
        Err(_) => String::from("9999-12-31T23:59:59.999Z"),
    }
}

/// Reads such a time.
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(|stamp| Timestamp::from_millis(stamp.as_millisecond()))
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
        });
        event
    }

    #[test]
    fn times_carry_z_and_milliseconds() {
        assert_eq!(rfc3339(Timestamp::from_millis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(Timestamp::from_millis(1_769_860_800_120)), "2026-01-31T12:00:00.120Z");
    }

    /// Released values, byte for byte as they stand in topics. Never edit one: add the next version's.
    pub(super) const RELEASED: [(u32, &str); 2] = [
        (1, include_str!("contract/released/order_created_v1.json")),
        (2, include_str!("contract/released/order_created_v2.json")),
    ];

    #[test]
    fn what_was_released_is_written_as_it_was() {
        for (version, released) in RELEASED {
            let written = String::from_utf8(encode(&event(), version)).expect("JSON is UTF-8");
            assert_eq!(written, released.trim_end(), "version {version}");
        }
    }

    #[test]
    fn every_version_from_the_oldest_readable_on_is_read() {
        let versions: Vec<u32> = RELEASED.iter().map(|(version, _)| *version).collect();
        assert_eq!(versions, (READABLE_MIN..=LATEST).collect::<Vec<_>>());
        for (version, released) in RELEASED {
            let incoming = decode(released.as_bytes()).expect("readable");
            assert_eq!(incoming.schema_version, version);
            assert_eq!(incoming.event_id, event().id);
            assert_eq!(incoming.order_id, event().order_id);
            assert_eq!(incoming.kind, EventType::OrderCreated);
            assert_eq!(incoming.occurred_at, event().occurred_at);
            assert_eq!(incoming.after.is_some(), version >= 2);
            let DecodedEvent { event_id, kind, order_id, .. } = incoming;
            assert_eq!(event_identity(released.as_bytes()), Ok(EventIdentity { event_id, kind, order_id }));
        }
    }

    #[test]
    fn members_a_reader_does_not_know_are_no_reason_to_refuse() {
        for (_, released) in RELEASED {
            let extended = released.trim_end().replacen('{', "{\"new\":{\"x\":[1]},", 1);
            assert!(decode(extended.as_bytes()).is_ok());
        }
    }

    #[test]
    fn what_is_no_event_is_named() {
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
}
