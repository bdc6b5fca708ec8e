//! Confluent's wire format: a zero byte, the schema's registry id as four bytes (big-endian), then the value. Consumers that use a schema
//! registry expect it. JSON never begins with a zero byte, so a reader detects the frame.
use serde::Deserialize;
use std::sync::Arc;

use super::event::{LATEST, READABLE_MIN, schema_version};

/// First byte of a framed value.
const MAGIC: u8 = 0;
/// Number of bytes before the value.
pub const FRAME_BYTES: usize = 5;
const VERSIONS: usize = (LATEST - READABLE_MIN + 1) as usize;

/// Registry ids of the schemas of every readable version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SchemaIds([u32; VERSIONS]);

impl SchemaIds {
    /// Parses `1:17,2:18`: each version with its id.
    ///
    /// # Errors
    /// The form that was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = || {
            let each: Vec<String> = (READABLE_MIN..=LATEST).map(|version| format!("{version}:ID")).collect();
            format!("{}, each ID as the registry assigned it", each.join(","))
        };
        let mut ids = [None; VERSIONS];
        for pair in text.split(',') {
            let (version, id) = pair.split_once(':').ok_or_else(expected)?;
            let version: u32 = version.trim().parse().map_err(|_| expected())?;
            let slot = version.checked_sub(READABLE_MIN).and_then(|index| ids.get_mut(index as usize));
            let slot = slot.filter(|slot| slot.is_none()).ok_or_else(expected)?;
            *slot = Some(id.trim().parse().map_err(|_| expected())?);
        }
        // Rows of older versions may still be in the outbox, so each version needs an id.
        let all: Option<Vec<u32>> = ids.into_iter().collect();
        all.and_then(|all| all.try_into().ok()).map(Self).ok_or_else(expected)
    }

    /// The value with the frame of its schema version; unchanged when its version has no id.
    pub fn framed(self, value: &Arc<[u8]>) -> Arc<[u8]> {
        let version = schema_version(value).unwrap_or_default();
        let id = version.checked_sub(READABLE_MIN).and_then(|index| self.0.get(index as usize));
        match id {
            Some(id) => [&[MAGIC], id.to_be_bytes().as_slice(), value].concat().into(),
            None => Arc::clone(value),
        }
    }
}

impl TryFrom<String> for SchemaIds {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

/// The schema's id and the value without its frame; `None` and the whole value when it has no frame.
pub fn unframed(value: &[u8]) -> (Option<u32>, &[u8]) {
    match value.split_first_chunk() {
        Some(([MAGIC, a, b, c, d], rest)) => (Some(u32::from_be_bytes([*a, *b, *c, *d])), rest),
        Some(_) | None => (None, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_in_any_order_and_each_version_needs_one() {
        assert_eq!(SchemaIds::parse("2:18, 1:17"), Ok(SchemaIds([17, 18])));
        for wrong in ["", "17", "1:17", "1:17,2:", "1:17,2:18,3:19", "1:17,1:18", "0:1,1:2", "1:17,2:-1", "1:17,2:18,"]
        {
            assert_eq!(
                SchemaIds::parse(wrong).expect_err(wrong),
                "1:ID,2:ID, each ID as the registry assigned it",
                "{wrong}"
            );
        }
    }

    #[test]
    fn framed_value_is_a_zero_byte_the_id_and_the_value() {
        let ids = SchemaIds([17, 0x0102_0304]);
        let value: Arc<[u8]> = br#"{"schemaVersion":2}"#.as_slice().into();

        let framed = ids.framed(&value);

        assert_eq!(framed[..FRAME_BYTES], [0, 1, 2, 3, 4]);
        assert_eq!(unframed(&framed), (Some(0x0102_0304), &*value));
        assert_eq!(ids.framed(&br#"{"schemaVersion":1}"#.as_slice().into())[..FRAME_BYTES], [0, 0, 0, 0, 17]);
        for plain in [&*value, b"", &[0, 0, 0, 1]] {
            assert_eq!(unframed(plain), (None, plain));
            assert_eq!(&*SchemaIds([1, 2]).framed(&b"{}".as_slice().into()), b"{}", "without a version");
        }
    }
}
