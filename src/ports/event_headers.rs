//! The headers that a writer adds to its event: names and text values, stored as one JSON object.
use std::collections::BTreeMap;
use std::sync::Arc;

use ::outbox::event_rules::{EventRuleError, check_headers};
use serde_json::Value;

/// Name and value of one header.
type NamedText = (Arc<str>, Arc<str>);

/// Headers of an event in the order of their names; none is the usual case and allocates nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventHeaders(Option<Arc<[NamedText]>>);

impl EventHeaders {
    /// Headers from names and values; of two values with one name the later one counts.
    pub fn from_pairs<N: AsRef<str>, V: AsRef<str>>(headers: impl IntoIterator<Item = (N, V)>) -> Self {
        let headers: BTreeMap<Arc<str>, Arc<str>> =
            headers.into_iter().map(|(name, value)| (name.as_ref().into(), value.as_ref().into())).collect();
        Self((!headers.is_empty()).then(|| headers.into_iter().collect()))
    }

    /// Parses a stored JSON object. A value that is not a string counts by its JSON text; a null is skipped. Another text gives headers that
    /// [`EventHeaders::check`] refuses, so that the row of another program that wrote it is parked and stops no other one.
    pub fn from_json(text: &str) -> Self {
        let Ok(stored) = serde_json::from_str::<BTreeMap<String, Value>>(text) else {
            return Self::from_pairs([("", text)]);
        };
        let headers = stored.into_iter().filter_map(|(name, value)| match value {
            Value::Null => None,
            Value::String(text) => Some((name, text)),
            other => Some((name, other.to_string())),
        });
        Self::from_pairs(headers)
    }

    /// The JSON object that a store keeps; `None` without headers.
    pub fn to_json(&self) -> Option<String> {
        self.0.as_ref()?;
        let object: serde_json::Map<String, Value> =
            self.iter().map(|(name, value)| (name.to_string(), Value::String(value.to_string()))).collect();
        Some(Value::Object(object).to_string())
    }

    /// Names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().flat_map(|headers| headers.iter()).map(|(name, value)| (name, value))
    }

    /// Checks names, number and size.
    ///
    /// # Errors
    /// The first rule that the headers break.
    pub fn check(&self) -> Result<(), EventRuleError> {
        check_headers(self.iter().map(|(name, value)| (&**name, value.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_the_same_after_they_were_stored() {
        let headers = EventHeaders::from_pairs([("tenant", "a\"b"), ("empty", ""), ("ümlaut", "🙂")]);

        let text = headers.to_json().unwrap();

        assert_eq!(EventHeaders::from_json(&text), headers);
        assert_eq!(EventHeaders::default().to_json(), None);
    }

    #[test]
    fn stored_values_that_are_no_strings_count_by_their_json_text() {
        let headers = EventHeaders::from_json(r#"{"n": 7, "b": true, "none": null, "o": {"a": [1]}}"#);

        let expected = EventHeaders::from_pairs([("b", "true"), ("n", "7"), ("o", r#"{"a":[1]}"#)]);
        assert_eq!(headers, expected);
        for text in ["", "[]", "7", "{", r#"{"a":1}x"#] {
            assert!(EventHeaders::from_json(text).check().is_err(), "{text}");
        }
        assert_eq!(EventHeaders::from_json("{}"), EventHeaders::default());
    }
}
