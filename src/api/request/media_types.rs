//! Content negotiation: whether `Accept` allows JSON, and whether a body is declared as JSON or as a form.
use actix_web::http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};

/// Whether `Accept` names `text/html` and not JSON, as browsers do and programs do not.
pub(crate) fn prefers_html(headers: &HeaderMap) -> bool {
    accept_names(headers, "text/html") && !accept_names(headers, "application/json")
}

/// Whether `Accept` allows `application/json`. The most specific media range decides; without a range everything is allowed.
pub(crate) fn accepts_json(headers: &HeaderMap) -> bool {
    let mut best: Option<(u8, bool)> = None;
    for value in headers.get_all(ACCEPT).filter_map(|value| value.to_str().ok()) {
        for range in value.split(',') {
            let Some((rank, accepted)) = json_range(range) else { continue };
            best = Some(match best {
                Some((top, decided)) if top > rank => (top, decided),
                Some((top, decided)) if top == rank => (top, decided || accepted),
                _ => (rank, accepted),
            });
        }
    }
    best.is_none_or(|(_, accepted)| accepted)
}

/// How specifically a media range names JSON (0: not at all), and whether it accepts it. `None`: not a media range.
fn json_range(range: &str) -> Option<(u8, bool)> {
    let mut parts = range.split(';');
    let name = parts.next()?.trim();
    if !name.contains('/') {
        return None;
    }
    let rank = match name.to_ascii_lowercase().as_str() {
        "application/json" => 3,
        "application/*" => 2,
        "*/*" => 1,
        _ => return Some((0, false)),
    };
    let weight = parts.filter_map(|part| part.split_once('=')).find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    let excluded = weight.is_some_and(|(_, q)| q.trim().parse::<f32>().is_ok_and(|q| q <= 0.0));
    Some((rank, !excluded))
}

/// Whether `Accept` names `text/event-stream`.
pub(crate) fn accepts_event_stream(headers: &HeaderMap) -> bool {
    accept_names(headers, "text/event-stream")
}

fn accept_names(headers: &HeaderMap, media_type: &str) -> bool {
    let values = headers.get_all(ACCEPT).filter_map(|value| value.to_str().ok());
    let mut ranges = values.flat_map(|value| value.split(',')).filter_map(|range| range.split(';').next());
    ranges.any(|range| range.trim().eq_ignore_ascii_case(media_type))
}

/// Whether the body is declared as `application/json` in UTF-8 without a content encoding.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    is_unencoded(headers, "application/json")
}

/// Whether the body is declared as a form in UTF-8 without a content encoding.
pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    is_unencoded(headers, "application/x-www-form-urlencoded")
}

/// Whether the body is declared as this media type, in UTF-8 and without a content encoding.
pub(crate) fn is_unencoded(headers: &HeaderMap, media_type: &str) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE);
    let (Some(only), None) = (types.next(), types.next()) else { return false };
    !is_encoded(headers) && only.to_str().is_ok_and(|text| is_type(text, media_type))
}

/// Whether the body has a content encoding: no route decodes one.
pub(crate) fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn is_type(text: &str, media_type: &str) -> bool {
    let mut parts = text.split(';');
    let name = parts.next().unwrap_or_default().trim();
    let utf8 = |part: &str| match part.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            matches!(value.trim().trim_matches('"').to_ascii_lowercase().as_str(), "utf-8" | "utf8")
        }
        _ => true,
    };
    name.eq_ignore_ascii_case(media_type) && parts.all(utf8)
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(name: HeaderName, values: &[&str]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for value in values {
            map.append(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        map
    }

    #[test]
    fn accept_headers_that_exclude_json_are_recognised() {
        let cases: [(&[&str], bool); 14] = [
            (&[], true),
            (&[""], true),
            (&["*/*"], true),
            (&["application/*"], true),
            (&["application/json"], true),
            (&["Application/JSON;charset=utf-8"], true),
            (&["text/html, application/json;q=0.1"], true),
            (&["text/html", "*/*;q=0.1"], true),
            (&["text/html"], false),
            (&["application/xml, text/*"], false),
            (&["application/json;q=0"], false),
            (&["*/*, application/json;q=0.0"], false),
            (&["application/*;q=0, */*"], false),
            (&["application/problem+json"], false),
        ];
        for (values, expected) in cases {
            assert_eq!(accepts_json(&headers(ACCEPT, values)), expected, "{values:?}");
        }
    }

    #[test]
    fn only_unencoded_json_counts_as_json() {
        let cases: [(&[&str], bool); 9] = [
            (&["application/json"], true),
            (&["application/json; charset=UTF-8"], true),
            (&["APPLICATION/JSON;charset=\"utf-8\""], true),
            (&["application/json;charset=latin1"], false),
            (&["application/merge-patch+json"], false),
            (&["text/json"], false),
            (&["application/json", "text/plain"], false),
            (&[""], false),
            (&[], false),
        ];
        for (values, expected) in cases {
            assert_eq!(is_json(&headers(CONTENT_TYPE, values)), expected, "{values:?}");
        }
        let mut encoded = headers(CONTENT_TYPE, &["application/json"]);
        encoded.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(!is_json(&encoded));
    }
}
