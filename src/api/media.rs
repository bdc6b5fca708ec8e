//! Content negotiation: an `Accept` must let JSON through, a body must be plain JSON.
use actix_web::http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};

/// Whether `Accept` lets `application/json` through. The most specific range decides; no range at all means anything.
pub(crate) fn accepts_json(headers: &HeaderMap) -> bool {
    let mut best: Option<(u8, bool)> = None;
    for line in headers.get_all(ACCEPT).filter_map(|value| value.to_str().ok()) {
        for range in line.split(',') {
            let Some((rank, wanted)) = judge_range(range) else { continue };
            best = Some(match best {
                Some((top, decided)) if top > rank => (top, decided),
                Some((top, decided)) if top == rank => (top, decided || wanted),
                _ => (rank, wanted),
            });
        }
    }
    best.is_none_or(|(_, wanted)| wanted)
}

/// How specific a range is about JSON (0: not at all), and whether it wants it. `None`: nothing that can be read.
fn judge_range(range: &str) -> Option<(u8, bool)> {
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
    let unwanted = weight.is_some_and(|(_, q)| q.trim().parse::<f32>().is_ok_and(|q| q <= 0.0));
    Some((rank, !unwanted))
}

/// Whether a body is announced as plain `application/json` in UTF-8, not encoded.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    is_plain(headers, "application/json")
}

/// Whether a body is announced as a form in UTF-8, not encoded.
pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    is_plain(headers, "application/x-www-form-urlencoded")
}

fn is_plain(headers: &HeaderMap, wanted: &str) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE);
    let (Some(only), None) = (types.next(), types.next()) else { return false };
    let encoded = headers.get_all(CONTENT_ENCODING).any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"));
    !encoded && only.to_str().is_ok_and(|text| is_type(text, wanted))
}

fn is_type(text: &str, wanted: &str) -> bool {
    let mut parts = text.split(';');
    let name = parts.next().unwrap_or_default().trim();
    let utf8 = |part: &str| match part.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            matches!(value.trim().trim_matches('"').to_ascii_lowercase().as_str(), "utf-8" | "utf8")
        }
        _ => true,
    };
    name.eq_ignore_ascii_case(wanted) && parts.all(utf8)
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
    fn an_accept_that_excludes_json_is_told_apart() {
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
    fn only_plain_json_is_json() {
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
