//! The idempotency key, read from `Idempotency-Key` or `X-Idempotency-Key`, which share one name space.
use std::sync::Arc;

use actix_web::http::header::HeaderMap;

use crate::error::Problem;

const KEY_MAX: usize = 128;
/// White space around a header value, as RFC 9110 defines it.
const WHITE_SPACE: [char; 2] = [' ', '\t'];
const NAMES: [&str; 2] = ["idempotency-key", "x-idempotency-key"];

/// The idempotency key without its quotes; a blank key counts as absent.
///
/// # Errors
/// 400 for two different keys, more than 128 characters, or characters that are not printable ASCII.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<Arc<str>>, Problem> {
    let mut found: Option<&str> = None;
    for value in NAMES.iter().flat_map(|name| headers.get_all(*name)) {
        let Ok(text) = std::str::from_utf8(value.as_bytes()) else {
            return Err(Problem::field("Idempotency-Key", "must be printable ASCII"));
        };
        let key = unquoted(text.trim_matches(WHITE_SPACE));
        if key.trim_matches(WHITE_SPACE).is_empty() {
            continue;
        }
        if found.is_some_and(|found| found != key) {
            return Err(Problem::field("Idempotency-Key", "was sent twice with different values"));
        }
        found = Some(key);
    }
    found.map(validated).transpose()
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}

fn validated(key: &str) -> Result<Arc<str>, Problem> {
    let printable = key.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    if printable && key.len() <= KEY_MAX {
        return Ok(key.into());
    }
    Err(Problem::field("Idempotency-Key", "must be 1 to 128 characters of printable ASCII"))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn read(pairs: &[(&'static str, &[u8])]) -> Result<Option<String>, ()> {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        idempotency_key(&map).map(|key| key.map(|key| key.to_string())).map_err(|_| ())
    }

    #[test]
    fn both_headers_share_one_name_space() {
        let some = |key: &str| Ok(Some(key.to_owned()));
        let [first, second] = NAMES;
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[(first, b"k-1")]), some("k-1"));
        assert_eq!(read(&[(first, b"\"k 1\"")]), some("k 1"));
        assert_eq!(read(&[(second, b"k-1")]), some("k-1"));
        assert_eq!(read(&[(first, b"\"k\""), (second, b"k")]), some("k"));
        assert_eq!(read(&[(first, b"\"\""), (second, b"k")]), some("k"));
        assert_eq!(read(&[(first, b"  ")]), Ok(None));
        assert_eq!(read(&[(first, b"a"), (second, b"b")]), Err(()));
        assert_eq!(read(&[(first, b"a"), (first, b"b")]), Err(()));
        assert_eq!(read(&[(first, "é".as_bytes())]), Err(()));
        assert_eq!(read(&[(first, b"\xff")]), Err(()));
        assert_eq!(read(&[(first, "\u{a0}k".as_bytes())]), Err(()));
        assert_eq!(read(&[(first, "\u{a0}".as_bytes())]), Err(()));
        assert_eq!(read(&[(first, &[b'k'; 128])]), some(&"k".repeat(128)));
        assert_eq!(read(&[(first, format!("\"{}\"", "k".repeat(128)).as_bytes())]), some(&"k".repeat(128)));
        assert_eq!(read(&[(first, &[b'k'; 129])]), Err(()));
    }

    proptest! {
        #[test]
        fn no_header_panics_and_accepted_keys_are_printable(
            bytes in proptest::collection::vec(prop_oneof![4 => 0x20_u8..0x7f, 1 => 0x80_u8..=0xff, 1 => Just(b'\t')], 0..140),
            quoted: bool,
        ) {
            let bytes = if quoted { [b"\"", bytes.as_slice(), b"\""].concat() } else { bytes };
            if let Ok(Some(key)) = read(&[(NAMES[0], &bytes)]) {
                prop_assert!((1..=KEY_MAX).contains(&key.len()) && key.bytes().all(|byte| (0x20..=0x7e).contains(&byte)));
                prop_assert_eq!(read(&[(NAMES[1], format!("\"{key}\"").as_bytes())]), Ok(Some(key)));
            }
        }
    }
}
