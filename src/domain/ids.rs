//! Names of things. Random bits and times are handed in, so that a simulation can repeat a run.
use std::fmt;

use uuid::{Builder, Uuid};

use crate::time::Timestamp;

/// Names one order. A UUID v7 made from the order's own `created_at`, so that ids sort as orders were created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId(Uuid);

/// Names one event, everywhere and for ever: the consumer's memory of duplicates rests on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Uuid);

macro_rules! uuid_name {
    ($name:ident) => {
        impl $name {
            /// A version 7 id of this instant; `entropy` makes it unique within the millisecond.
            pub fn at(now: Timestamp, entropy: [u8; 10]) -> Self {
                let millis = u64::try_from(now.millis()).unwrap_or(0);
                Self(Builder::from_unix_timestamp_millis(millis, &entropy).into_uuid())
            }

            /// Reads the hyphenated form only, in small letters or capitals; anything else is no id.
            pub fn parse(text: &str) -> Option<Self> {
                let hyphenated = text.len() == 36
                    && text.bytes().enumerate().all(|(at, byte)| match at {
                        8 | 13 | 18 | 23 => byte == b'-',
                        _ => byte.is_ascii_hexdigit(),
                    });
                if !hyphenated {
                    return None;
                }
                Uuid::try_parse(text).ok().map(Self)
            }

            /// The sixteen bytes, most significant first: they sort as the id does.
            pub fn bytes(&self) -> [u8; 16] {
                *self.0.as_bytes()
            }

            /// The id with these bytes.
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
uuid_name!(OrderId);
uuid_name!(EventId);

/// Who asked: the `sub` of a verified token. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject(std::sync::Arc<str>);

impl Subject {
    /// A subject of this name; an empty name is nobody.
    pub fn new(name: &str) -> Option<Self> {
        (!name.is_empty()).then(|| Self(name.into()))
    }

    /// The name as the token carries it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_the_time_they_were_made() {
        let early = OrderId::at(Timestamp::from_millis(1_000), [255; 10]);
        let late = OrderId::at(Timestamp::from_millis(1_001), [0; 10]);

        assert!(early < late);
        assert!(early.bytes() < late.bytes());
    }

    #[test]
    fn only_the_hyphenated_form_is_an_id() {
        let id = OrderId::at(Timestamp::from_millis(5), [7; 10]);
        let text = id.to_string();

        assert_eq!(OrderId::parse(&text), Some(id));
        assert_eq!(OrderId::parse(&text.to_uppercase()), Some(id));
        assert_eq!(OrderId::parse(&text.replace('-', "")), None);
        assert_eq!(OrderId::parse(&format!("{{{text}}}")), None);
        assert_eq!(OrderId::parse("né-à-l'envers-et-36-octets-de-long-x"), None);
    }
}
