//! The events' JSON Schemas, for a registry or a consumer's checks. The schema of a version takes all values from the oldest readable
//! version on, as its reader does: each is an alternative that is added, which registries call backward compatible, transitively.
use serde_json::{Value, json};

use super::{LATEST, READABLE_MIN};

/// Released alternatives, oldest first. Never edit one: add the next version's.
const RELEASED: [&str; (LATEST - READABLE_MIN + 1) as usize] =
    [include_str!("released/event_v1.schema.json"), include_str!("released/event_v2.schema.json")];

/// JSON Schema (draft 7, which every registry knows) of what a reader of this version reads; none for a version that is not.
pub fn schema(version: u32) -> Option<Value> {
    let last = version.checked_sub(READABLE_MIN)? as usize;
    let alternatives: Option<Vec<Value>> =
        RELEASED.get(..=last)?.iter().map(|text| serde_json::from_str(text).ok()).collect();
    Some(json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "OrderEvent",
        "description": "What happened to an order.",
        "oneOf": alternatives?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(version: u32, value: &str) -> bool {
        let schema = jsonschema::validator_for(&schema(version).expect("released")).expect("a schema");
        schema.is_valid(&serde_json::from_str(value).expect("JSON"))
    }

    #[test]
    fn a_schema_takes_what_was_released_until_its_version_and_nothing_later() {
        for version in READABLE_MIN..=LATEST {
            for (of, released) in (READABLE_MIN..).zip(super::super::tests::RELEASED.map(|(_, released)| released)) {
                assert_eq!(allows(version, released), of <= version, "schema {version}, value {of}");
            }
        }
        assert_eq!((schema(READABLE_MIN - 1), schema(LATEST + 1)), (None, None));
    }

    #[test]
    fn what_a_reader_refuses_the_schema_refuses_too() {
        let (_, released) = super::super::tests::RELEASED[1];
        let wrong = [
            ("\"schemaVersion\":2", "\"schemaVersion\":9"),
            ("\"eventType\":\"ORDER_CREATED\"", "\"eventType\":\"ORDER_EATEN\""),
            ("\"status\":\"PENDING\",", ""),
            ("\"version\":0", "\"version\":-1"),
            ("\"quantity\":2", "\"quantity\":\"2\""),
            ("019a7afd-1e7b-7202-8202-020202020202", "nobody"),
        ];
        for (right, wrong) in wrong {
            assert!(released.contains(right), "{right}");
            let value = released.replacen(right, wrong, 1);
            assert!(!allows(2, &value), "{value}");
            assert!(super::super::decode(value.as_bytes()).is_err(), "{value}");
        }
        assert!(allows(2, &released.replacen('{', "{\"new\":1,", 1)), "a member nobody knows is no reason");
    }
}
