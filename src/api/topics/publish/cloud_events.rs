//! CloudEvents 1.0 in structured and binary mode: <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md>.
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use actix_web::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use app::commands::publish_events::uuid_of_digest;
use app::dispatch::SubmittedEvent;
use app::port_types::TraceContext;
use domain::EventId;
use sha2::{Digest, Sha256};

use super::{attribute_header, event_values};
use crate::error::Problem;
use crate::request::json::{JsonMember, JsonValue};
use crate::request::media_types::is_encoded;
use crate::request::trace_context;

/// Prefix of the headers in which a record keeps the attributes of its CloudEvent that the relay does not write itself.
const KEPT_PREFIX: &str = "x-ce-";
/// How the media types of structured mode and of batches begin.
const STRUCTURED: &str = "application/cloudevents";
/// Attributes that have a field of their own in the event.
const MAPPED_ATTRIBUTES: [&str; 6] =
    ["specversion", "type", "datacontenttype", "partitionkey", "traceparent", "tracestate"];

/// The attributes of an event by their names.
type Attributes = BTreeMap<String, String>;

/// An event in structured mode.
pub(super) fn structured(
    path: &str,
    member: JsonMember<'_>,
    topic: &Arc<str>,
    trace: Option<TraceContext>,
) -> Result<SubmittedEvent, Problem> {
    let element = if path.is_empty() { "the event" } else { path.trim_end_matches('.') };
    let mut members: BTreeMap<String, JsonMember<'_>> =
        member.object().ok_or_else(|| Problem::field(element, "must be a CloudEvent, which is a JSON object"))?;
    let (data, base64) = (members.remove("data"), members.remove("data_base64"));
    let mut attributes = Attributes::new();
    for (name, member) in members {
        let value = match member.value() {
            Some(JsonValue::Text(text)) => text.into_owned(),
            Some(JsonValue::Number(number)) => number.to_owned(),
            Some(JsonValue::Bool(value)) => value.to_string(),
            // An attribute that is null is absent.
            Some(JsonValue::Null) | None => continue,
            Some(JsonValue::Array(_) | JsonValue::Object) => {
                return Err(Problem::field(&format!("{path}{name}"), "must be a string, a number or a boolean"));
            }
        };
        attributes.insert(name, value);
    }
    let is_json = attributes.get("datacontenttype").is_none_or(|media_type| is_json(media_type));
    let payload = match (data, base64.map(JsonMember::value)) {
        (None, None) => Cow::Borrowed(&b""[..]),
        (Some(data), None) => match data.value() {
            // Data of another type than JSON is a string that is the content itself.
            Some(JsonValue::Text(text)) if !is_json => Cow::Owned(text.into_owned().into_bytes()),
            _ => Cow::Borrowed(data.raw().unwrap_or_default().as_bytes()),
        },
        (None, Some(Some(JsonValue::Text(text)))) => {
            Cow::Owned(event_values::base64(&format!("{path}data_base64"), &text)?.to_vec())
        }
        _ => {
            return Err(Problem::field(
                &format!("{path}data"),
                "at most one of data and data_base64, which is a string",
            ));
        }
    };
    event(path, attributes, &payload, topic, trace)
}

/// Whether the request is an event in binary mode. A body of a structured media type is none, also of one that the service does not read.
pub(super) fn is_binary(headers: &HeaderMap) -> bool {
    let is_structured = |value: &HeaderValue| {
        let start = value.as_bytes().trim_ascii_start().get(..STRUCTURED.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(STRUCTURED.as_bytes()))
    };
    let structured = headers.get_all(CONTENT_TYPE).any(is_structured);
    headers.contains_key("ce-specversion") && !structured && !is_encoded(headers)
}

/// An event in binary mode: attributes in `ce-` headers, the body is the data.
pub(super) fn binary(
    headers: &HeaderMap,
    content_type: Option<&str>,
    body: &[u8],
    topic: &Arc<str>,
    trace: Option<TraceContext>,
) -> Result<SubmittedEvent, Problem> {
    let mut attributes = Attributes::new();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix("ce-") else { continue };
        let field = format!("ce-{name}");
        let value = value.to_str().ok().and_then(attribute_header::decoded);
        let value =
            value.ok_or_else(|| Problem::field(&field, "must be printable ASCII, percent-encoded where it is not"))?;
        if attributes.insert(name.to_owned(), value).is_some() {
            return Err(Problem::field(&field, "must be given only once"));
        }
    }
    attributes.extend(content_type.map(|content_type| ("datacontenttype".to_owned(), content_type.to_owned())));
    event("ce-", attributes, body, topic, trace)
}

fn event(
    path: &str,
    attributes: Attributes,
    payload: &[u8],
    topic: &Arc<str>,
    trace: Option<TraceContext>,
) -> Result<SubmittedEvent, Problem> {
    let field = |name: &str| format!("{path}{name}");
    let given = |name: &str| attributes.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let required = |name: &str| given(name).ok_or_else(|| Problem::field(&field(name), "is required"));
    if required("specversion")? != "1.0" {
        return Err(Problem::field(&field("specversion"), "must be 1.0"));
    }
    let (id, source, event_type) = (required("id")?, required("source")?, required("type")?);
    let key = given("partitionkey").or_else(|| given("subject"));
    let key = key.ok_or_else(|| {
        Problem::field(&field("partitionkey"), "or subject is required: events of one key keep their order")
    })?;
    let own_trace = given("traceparent").and_then(|parent| trace_context::from_texts(parent, given("tracestate")));
    let kept = attributes.iter().filter(|(name, _)| !MAPPED_ATTRIBUTES.contains(&name.as_str()));
    let kept: Vec<(String, String)> =
        kept.map(|(name, value)| (format!("{KEPT_PREFIX}{name}"), value.clone())).collect();
    Ok(SubmittedEvent {
        event_id: Some(EventId::parse(id).unwrap_or_else(|| derived_id(source, id))),
        topic: Arc::clone(topic),
        key: event_values::key(&field("partitionkey"), key)?,
        event_type: event_values::event_type(&field("type"), event_type)?,
        payload: event_values::payload(&field("data"), payload)?,
        headers: event_values::headers(&field("attributes"), &kept)?,
        content_type: match given("datacontenttype") {
            Some(text) => event_values::content_type(&field("datacontenttype"), text)?,
            None => None,
        },
        trace: own_trace.or(trace),
    })
}

/// Source and id identify a CloudEvent. If the id is not a UUID, the event id is derived from both, so that a repetition is recognised.
fn derived_id(source: &str, id: &str) -> EventId {
    let mut hash = Sha256::new();
    hash.update((source.len() as u64).to_be_bytes());
    hash.update(source);
    hash.update(id);
    uuid_of_digest(&hash.finalize().into())
}

fn is_json(media_type: &str) -> bool {
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media_type.ends_with("/json") || media_type.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_different_sources_with_one_id_are_different() {
        assert_ne!(derived_id("/a", "b1"), derived_id("/ab", "1"));
        assert_eq!(derived_id("/a", "1"), derived_id("/a", "1"));
    }
}
