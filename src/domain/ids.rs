//! Ids of orders, events, webhooks and subjects. Callers pass in time and random bits, so that a simulation can repeat a run.
use std::fmt;

use uuid::{Builder, Uuid};

use crate::time::Timestamp;

/// Id of one order: a UUID v7 made from the order's own `created_at`, so that ids sort by creation time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId(Uuid);

/// Id of one event, everywhere and for ever: consumers detect duplicates by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Uuid);

/// Id of one webhook; ids sort by creation time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WebhookId(Uuid);

macro_rules! uuid_id {
    ($name:ident) => {
        impl $name {
            /// Creates a version 7 id of this instant; `entropy` makes it unique within the millisecond.
            pub fn new_v7(now: Timestamp, entropy: [u8; 10]) -> Self {
                let millis = u64::try_from(now.millis()).unwrap_or(0);
                Self(Builder::from_unix_timestamp_millis(millis, &entropy).into_uuid())
            }

            /// Parses the hyphenated form, in lower or upper case; no other form is accepted.
            pub fn parse(text: &str) -> Option<Self> {
                let hyphenated = text.len() == 36
                    && text.bytes().enumerate().all(|(index, byte)| match index {
                        8 | 13 | 18 | 23 => byte == b'-',
                        _ => byte.is_ascii_hexdigit(),
                    });
                if !hyphenated {
                    return None;
                }
                Uuid::try_parse(text).ok().map(Self)
            }

            /// The sixteen bytes, most significant first: they sort like the id.
            pub fn bytes(&self) -> [u8; 16] {
                *self.0.as_bytes()
            }

            /// Creates the id with these bytes.
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }
    };
}
uuid_id!(OrderId);
uuid_id!(EventId);
uuid_id!(WebhookId);

/// The `sub` claim of a verified token. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject(std::sync::Arc<str>);

impl Subject {
    /// Creates a subject; `None` for an empty name.
    pub fn new(name: &str) -> Option<Self> {
        (!name.is_empty()).then(|| Self(name.into()))
    }

    /// The name, exactly as in the token.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_creation_time() {
        let early = OrderId::new_v7(Timestamp::from_millis(1_000), [255; 10]);
        let late = OrderId::new_v7(Timestamp::from_millis(1_001), [0; 10]);

        assert!(early < late);
        assert!(early.bytes() < late.bytes());
    }

    #[test]
    fn only_the_hyphenated_form_is_parsed() {
        let id = OrderId::new_v7(Timestamp::from_millis(5), [7; 10]);
        let text = id.to_string();

        assert_eq!(OrderId::parse(&text), Some(id));
        assert_eq!(OrderId::parse(&text.to_uppercase()), Some(id));
        assert_eq!(OrderId::parse(&text.replace('-', "")), None);
        assert_eq!(OrderId::parse(&format!("{{{text}}}")), None);
        assert_eq!(OrderId::parse("né-à-l'envers-et-36-octets-de-long-x"), None);
    }
}
