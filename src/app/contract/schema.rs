//! JSON Schemas of the events, for registries and consumers. The schema of a version accepts every version from the oldest readable one on,
//! as its reader does: each version adds an alternative, which registries call transitively backward compatible.
use serde_json::{Value, json};

use super::event::{LATEST, READABLE_MIN};

/// Released alternatives, oldest first. Never edit one: add the next version's.
const RELEASED: [&str; (LATEST - READABLE_MIN + 1) as usize] =
    [include_str!("released/event_v1.schema.json"), include_str!("released/event_v2.schema.json")];

/// JSON Schema (draft 7, which every registry supports) of the values that a reader of this version accepts; `None` for unknown versions.
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
