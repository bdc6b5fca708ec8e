//! Order versions as strong entity tags, and the headers `If-Match` and `If-None-Match`.
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use app::dispatch::IfMatch;
use domain::Version;

/// The strong entity tag of a version, such as `"3"`.
pub(crate) fn etag(version: Version) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{version}\"")).expect("digits between quotes are a legal header")
}

/// Reads `If-Match`. The comparison is strong: a weak tag matches no version.
pub(crate) fn if_match(headers: &HeaderMap) -> Option<IfMatch> {
    let tags = tags(headers, IF_MATCH)?;
    if tags.contains(&"*") {
        return Some(IfMatch::Any);
    }
    Some(IfMatch::OneOf(tags.into_iter().filter_map(version).collect()))
}

/// Whether `If-Match` is absent or matches this version.
pub(crate) fn if_match_allows(if_match: Option<&IfMatch>, current: Version) -> bool {
    match if_match {
        None | Some(IfMatch::Any) => true,
        Some(IfMatch::OneOf(versions)) => versions.contains(&current),
    }
}

/// Whether `If-None-Match` names this version. The comparison is weak.
pub(crate) fn not_modified(headers: &HeaderMap, current: Version) -> bool {
    let weak = |tag: &str| version(tag.strip_prefix("W/").unwrap_or(tag));
    tags(headers, IF_NONE_MATCH).is_some_and(|tags| tags.iter().any(|tag| *tag == "*" || weak(tag) == Some(current)))
}

fn tags(headers: &HeaderMap, name: HeaderName) -> Option<Vec<&str>> {
    let mut values = headers.get_all(name).peekable();
    values.peek()?;
    // Our tags contain no comma; the parts of a foreign tag that does match no version.
    Some(values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).map(str::trim).collect())
}

/// The version in a tag; only the canonical decimal form counts.
fn version(tag: &str) -> Option<Version> {
    let digits = tag.strip_prefix('"')?.strip_suffix('"')?;
    let canonical = digits == "0" || !digits.starts_with(['0', '+']);
    digits.parse().ok().filter(|_| canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, values: &[&str]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for value in values {
            map.append(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        map
    }

    #[test]
    fn if_match_compares_strongly() {
        let cases: [(&[&str], Option<IfMatch>); 7] = [
            (&[], None),
            (&["*"], Some(IfMatch::Any)),
            (&["\"0\""], Some(IfMatch::OneOf(vec![0]))),
            (&["\"1\", \"2\"", "\"3\""], Some(IfMatch::OneOf(vec![1, 2, 3]))),
            (&["W/\"1\""], Some(IfMatch::OneOf(vec![]))),
            (&["1"], Some(IfMatch::OneOf(vec![]))),
            (&["\"01\", \"+1\", \"x\", \"\""], Some(IfMatch::OneOf(vec![]))),
        ];
        for (values, expected) in cases {
            assert_eq!(if_match(&headers(IF_MATCH, values)), expected, "{values:?}");
        }
    }

    #[test]
    fn if_none_match_compares_weakly() {
        let cases: [(&[&str], bool); 6] = [
            (&[], false),
            (&["*"], true),
            (&["\"3\""], true),
            (&["\"1\", W/\"3\""], true),
            (&["\"2\""], false),
            (&["3"], false),
        ];
        for (values, expected) in cases {
            assert_eq!(not_modified(&headers(IF_NONE_MATCH, values), 3), expected, "{values:?}");
        }
    }
}
