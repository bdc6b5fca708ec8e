//! The key of an event: any text, and the 128-bit group by which the stores keep the order of a key.
use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// Most bytes of a key: 1,024, because an outbox table as Debezium documents it has keys of up to 255 characters, 1,020 bytes.
pub const KEY_BYTES_MAX: usize = 1_024;

/// The byte of a UUID that begins with its version.
const VERSION_BYTE: usize = 6;
/// The version of the groups of texts: 8, the one that RFC 9562 leaves to each application.
const TEXT_VERSION: u8 = 0x80;

/// The key of an event. Events of one key are published in the order of their commits.
///
/// The stores order by the key's *group*. The group of a UUID in its canonical form (lower case, hyphens) is that UUID; the group of every
/// other text is the first 16 bytes of its SHA-256, as a UUID of version 8. A UUID of version 8 counts as text, so two keys share a group
/// only if SHA-256 collides in 124 bits. Such keys would wait for each other, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventKey {
    group: [u8; 16],
    /// `None` if the text is the group's own canonical form.
    text: Option<Arc<str>>,
}

/// Why a text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKeyError {
    /// The text is empty.
    Empty,
    /// The text has more than [`KEY_BYTES_MAX`] bytes.
    TooLong,
    /// The text has a control character, which a log line or a terminal could not show.
    ControlCharacter,
}

impl fmt::Display for EventKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventKeyError::Empty => f.write_str("a key must not be empty"),
            EventKeyError::TooLong => write!(f, "a key must have at most {KEY_BYTES_MAX} bytes"),
            EventKeyError::ControlCharacter => f.write_str("a key must not contain control characters"),
        }
    }
}

impl std::error::Error for EventKeyError {}

impl EventKey {
    /// The key whose text is the canonical form of a UUID.
    pub fn from_uuid(uuid: [u8; 16]) -> Self {
        if uuid[VERSION_BYTE] & 0xf0 == TEXT_VERSION {
            let text = hyphenated(&uuid);
            return Self { group: group_of_text(&text), text: Some(text.into()) };
        }
        Self { group: uuid, text: None }
    }

    /// The key of a text that a client or an operator gave.
    ///
    /// # Errors
    /// The rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, EventKeyError> {
        check(text)?;
        Ok(Self::from_text(text))
    }

    /// The key of any text, also of one that [`EventKey::parse`] refuses: a stored row may have such a key, and is refused later.
    pub fn from_text(text: &str) -> Self {
        match canonical_uuid(text).filter(|uuid| uuid[VERSION_BYTE] & 0xf0 != TEXT_VERSION) {
            Some(uuid) => Self { group: uuid, text: None },
            None => Self { group: group_of_text(text), text: Some(text.into()) },
        }
    }

    /// A key as a store holds it. The stored group counts, because the store has ordered by it.
    pub fn from_stored(group: [u8; 16], text: Option<&str>) -> Self {
        Self { group, text: text.map(Arc::from) }
    }

    /// The value by which the stores keep the order of the key.
    pub fn group(&self) -> [u8; 16] {
        self.group
    }

    /// The text, unless it is the canonical form of the group.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The whole text of the key.
    pub fn to_text(&self) -> Arc<str> {
        self.text.clone().unwrap_or_else(|| hyphenated(&self.group).into())
    }

    /// Checks a key that a store returned.
    ///
    /// # Errors
    /// The rule that the key breaks.
    pub fn check(&self) -> Result<(), EventKeyError> {
        self.text.as_deref().map_or(Ok(()), check)
    }
}

impl fmt::Display for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => f.write_str(&hyphenated(&self.group)),
        }
    }
}

fn check(text: &str) -> Result<(), EventKeyError> {
    if text.is_empty() {
        return Err(EventKeyError::Empty);
    }
    if text.len() > KEY_BYTES_MAX {
        return Err(EventKeyError::TooLong);
    }
    if text.chars().any(char::is_control) {
        return Err(EventKeyError::ControlCharacter);
    }
    Ok(())
}

fn group_of_text(text: &str) -> [u8; 16] {
    let digest = Sha256::digest(text.as_bytes());
    let mut group = [0; 16];
    group.copy_from_slice(&digest[..16]);
    group[VERSION_BYTE] = (group[VERSION_BYTE] & 0x0f) | TEXT_VERSION;
    group
}

/// The indexes of the hyphens in a UUID's text.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

fn canonical_uuid(text: &str) -> Option<[u8; 16]> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 || HYPHENS.iter().any(|index| bytes[*index] != b'-') {
        return None;
    }
    let mut digits =
        bytes.iter().enumerate().filter(|(index, _)| !HYPHENS.contains(index)).map(|(_, byte)| digit(*byte));
    let mut uuid = [0; 16];
    for byte in &mut uuid {
        *byte = (digits.next()?? << 4) | digits.next()??;
    }
    Some(uuid)
}

/// The value of a hexadecimal digit in lower case.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

fn hyphenated(uuid: &[u8; 16]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(36);
    for byte in uuid {
        if HYPHENS.contains(&text.len()) {
            text.push('-');
        }
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 0x0f)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const V7: &str = "0190163d-8694-739b-aea5-966c26f8ad91";

    #[test]
    fn group_of_a_canonical_uuid_is_the_uuid() {
        let key = EventKey::parse(V7).unwrap();

        assert_eq!(key.group()[..4], [0x01, 0x90, 0x16, 0x3d]);
        assert_eq!((key.text(), key.to_string().as_str(), &*key.to_text()), (None, V7, V7));
        assert_eq!(key, EventKey::from_uuid(key.group()));
        assert_eq!(key, EventKey::from_stored(key.group(), None));
    }

    #[test]
    fn group_of_a_text_is_its_digest_as_a_uuid_of_version_8() {
        let key = EventKey::parse("abc").unwrap();

        assert_eq!(key.group()[..6], [0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01]);
        assert_eq!(key.group()[6], 0x8f);
        assert_eq!((key.text(), key.to_string().as_str()), (Some("abc"), "abc"));
        assert_eq!(EventKey::from_stored(key.group(), key.text()), key);
    }

    #[test]
    fn other_forms_of_a_uuid_are_other_keys() {
        let canonical = EventKey::from_text(V7);
        for text in
            [V7.to_uppercase(), V7.replace('-', ""), format!("{{{V7}}}"), format!("{V7} "), V7.replace('-', "0")]
        {
            let key = EventKey::from_text(&text);
            assert_ne!(key.group(), canonical.group(), "{text}");
            assert_eq!(key.to_string(), text);
        }
    }

    #[test]
    fn uuid_of_version_8_shares_no_group_with_the_text_that_hashes_to_it() {
        let text = EventKey::from_text("abc");
        let uuid = EventKey::from_uuid(text.group());

        assert_ne!(uuid.group(), text.group());
        assert_eq!(uuid, EventKey::from_text(&uuid.to_string()));
    }

    #[test]
    fn keys_are_not_empty_not_too_long_and_printable() {
        let longest = "k".repeat(KEY_BYTES_MAX);
        for text in [longest.as_str(), "a", "müller 7", "🙂"] {
            assert_eq!(EventKey::parse(text).map(|key| key.check()), Ok(Ok(())), "{text}");
        }
        let cases = [
            (String::new(), EventKeyError::Empty),
            (format!("{longest}k"), EventKeyError::TooLong),
            ("a\nb".to_owned(), EventKeyError::ControlCharacter),
            ("a\u{85}b".to_owned(), EventKeyError::ControlCharacter),
        ];
        for (text, error) in cases {
            assert_eq!(EventKey::parse(&text), Err(error));
            assert_eq!(EventKey::from_text(&text).check(), Err(error));
        }
    }
}
