//! The W3C trace context that a client sends along with a command.
use std::sync::Arc;

use actix_web::http::header::HeaderMap;
use app::port_types::TraceContext;
use telemetry::traces::SpanContext;

use crate::request::headers::single_value;

/// Members of a `tracestate`, limited by the W3C recommendation.
const STATE_MEMBERS_MAX: usize = 32;
/// Bytes of a `tracestate` that is passed on: eight times what the W3C asks to keep.
const STATE_BYTES_MAX: usize = 4096;

/// The trace context as defined in <https://www.w3.org/TR/trace-context/>. A malformed `traceparent` discards the `tracestate` too.
pub(crate) fn trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    let parent = single_value(headers, "traceparent").filter(|parent| is_traceparent(parent))?;
    Some(TraceContext { parent: parent.into(), state: tracestate(headers) })
}

/// The trace context of texts that are not headers of the request.
pub(crate) fn from_texts(parent: &str, state: Option<&str>) -> Option<TraceContext> {
    let state = state.filter(|state| state.len() <= STATE_BYTES_MAX && is_tracestate(state));
    is_traceparent(parent).then(|| TraceContext { parent: parent.into(), state: state.map(Arc::from) })
}

fn is_traceparent(text: &str) -> bool {
    SpanContext::parse(text).is_some()
}

fn tracestate(headers: &HeaderMap) -> Option<Arc<str>> {
    let mut lines = Vec::new();
    for value in headers.get_all("tracestate") {
        lines.push(value.to_str().ok()?);
    }
    // Repeated headers form one list: RFC 9110, 5.3.
    let state = lines.join(",");
    (state.len() <= STATE_BYTES_MAX && is_tracestate(&state)).then(|| state.into())
}

fn is_tracestate(state: &str) -> bool {
    let mut keys = Vec::new();
    for member in state.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty()) {
        match member.split_once('=') {
            Some((key, value)) if is_state_key(key) && is_state_value(value) && !keys.contains(&key) => keys.push(key),
            _ => return false,
        }
    }
    (1..=STATE_MEMBERS_MAX).contains(&keys.len())
}

fn is_state_key(key: &str) -> bool {
    let part = |part: &str, longest: usize, digit_first: bool| {
        let starts = part.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || (digit_first && b.is_ascii_digit()));
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'*' | b'/');
        starts && part.len() <= longest && part.bytes().all(legal)
    };
    match key.split_once('@') {
        Some((tenant, system)) => part(tenant, 241, true) && part(system, 14, false),
        // The second edition of the recommendation allows a simple key to begin with a digit.
        None => part(key, 256, true),
    }
}

fn is_state_value(value: &str) -> bool {
    let legal = |b: u8| (0x20..=0x7e).contains(&b) && b != b',' && b != b'=';
    (1..=256).contains(&value.len()) && value.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tracestate_is_a_list_of_distinct_members() {
        for good in ["a=1", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "a=1, ,b=2", "0t@sys=x y"] {
            assert!(is_tracestate(good), "{good}");
        }
        let many: Vec<String> = (0..33).map(|n| format!("k{n}=v")).collect();
        for bad in ["", "a", "a=", "=1", "A=1", "a=1,a=2", "a=b=c", "a@=1", &many.join(",")] {
            assert!(!is_tracestate(bad), "{bad}");
        }
    }

    /// A `traceparent` that is valid or nearly so, and any other text.
    fn parents() -> impl Strategy<Value = String> {
        prop_oneof![
            "[0-9a-fF]{2}-[0-9a-f]{31,33}-[0-9a-f]{15,17}-[0-9a-f]{2}(-[0-9a-f]{0,2})?",
            "00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]",
            any::<String>()
        ]
    }

    proptest! {
        #[test]
        fn no_header_panics_and_accepted_contexts_are_well_formed(parent in parents(), state in any::<Vec<u8>>()) {
            let mut headers = HeaderMap::new();
            for (name, value) in [("traceparent", parent.as_bytes()), ("tracestate", &state)] {
                if let Ok(value) = HeaderValue::from_bytes(value) {
                    headers.append(HeaderName::from_static(name), value);
                }
            }
            let Some(context) = trace_context(&headers) else { return Ok(()) };
            let parts: Vec<&str> = context.parent.splitn(5, '-').collect();
            let is_hex = |part: &str, length: usize| {
                part.len() == length && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            };
            prop_assert!(is_hex(parts[0], 2) && is_hex(parts[1], 32) && is_hex(parts[2], 16) && is_hex(parts[3], 2), "{}", context.parent);
            prop_assert!(parts[1..3].iter().all(|id| id.contains(|digit| digit != '0')), "{}", context.parent);
            prop_assert!(parts[0] != "ff" && (parts.len() == 4 || parts[0] != "00"), "{}", context.parent);
            prop_assert!(context.state.is_none_or(|state| state.is_ascii() && state.len() <= STATE_BYTES_MAX));
        }
    }
}
