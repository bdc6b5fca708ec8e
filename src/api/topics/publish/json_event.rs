//! An event as a JSON object, with the members that `posthaste.publish_all` takes in SQL.
use std::borrow::Cow;

use app::dispatch::SubmittedEvent;
use app::port_types::{EventHeaders, TraceContext};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::event_values;
use crate::error::Problem;
use crate::request::json::{JsonMember, JsonValue};

/// An event. Exactly one of `payload` and `payloadBase64` is its value.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NewEvent)]
pub(crate) struct EventBody<'a> {
    /// Full name of the topic.
    #[serde(borrow, default)]
    #[schema(required = true, value_type = String, min_length = 1, max_length = 249, pattern = "^[A-Za-z0-9._-]+$", example = "customers")]
    topic: JsonMember<'a>,
    /// Events of one key are sent in the order of their commits.
    #[serde(borrow, default)]
    #[schema(required = true, value_type = String, min_length = 1, max_length = 1024, example = "7")]
    key: JsonMember<'a>,
    /// Type of the event.
    #[serde(borrow, default)]
    #[schema(required = true, value_type = String, min_length = 1, max_length = 1024, example = "CustomerMoved")]
    r#type: JsonMember<'a>,
    /// The value as JSON; its text becomes the record's value unchanged.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Value)]
    payload: JsonMember<'a>,
    /// The value as bytes.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = String, content_encoding = "base64")]
    payload_base64: JsonMember<'a>,
    /// Headers of the record.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = std::collections::HashMap<String, String>)]
    headers: JsonMember<'a>,
    /// Media type of the value.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = String, min_length = 1, max_length = 256, pattern = "^[ -~]+$", example = "application/json")]
    content_type: JsonMember<'a>,
    /// The id of the event; without it the service gives one.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = String, format = "uuid", pattern = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")]
    event_id: JsonMember<'a>,
}

/// One event, or an array of them.
#[derive(ToSchema)]
#[schema(as = NewEvents)]
#[serde(untagged)]
#[expect(dead_code, reason = "the document's schema of the body; the elements are read one by one")]
pub(crate) enum EventsBody<'a> {
    One(EventBody<'a>),
    Many(Vec<EventBody<'a>>),
}

/// Reads an event. `path` is the prefix of field names in errors.
pub(super) fn read(path: &str, member: JsonMember<'_>, trace: Option<TraceContext>) -> Result<SubmittedEvent, Problem> {
    let element = path.trim_end_matches('.');
    let element = if element.is_empty() { "the event" } else { element };
    let body: EventBody<'_> = member.strict_object().map_err(|reason| Problem::field(element, reason))?;
    let field = |name: &str| format!("{path}{name}");
    let required = |name: &str, member: JsonMember<'_>| match text(&field(name), member)? {
        Some(text) => Ok(text.into_owned()),
        None => Err(Problem::field(&field(name), "is required")),
    };
    let event_id = text(&field("eventId"), body.event_id)?;
    let content_type = text(&field("contentType"), body.content_type)?;
    Ok(SubmittedEvent {
        topic: event_values::topic(&field("topic"), &required("topic", body.topic)?)?,
        key: event_values::key(&field("key"), &required("key", body.key)?)?,
        event_type: event_values::event_type(&field("type"), &required("type", body.r#type)?)?,
        payload: match (body.payload.raw(), text(&field("payloadBase64"), body.payload_base64)?) {
            (Some(json), None) => event_values::payload(&field("payload"), json.as_bytes())?,
            (None, Some(base64)) => event_values::base64(&field("payloadBase64"), &base64)?,
            _ => return Err(Problem::field(&field("payload"), "exactly one of payload and payloadBase64 is required")),
        },
        headers: headers(&field("headers"), body.headers)?,
        content_type: match content_type {
            Some(text) => event_values::content_type(&field("contentType"), &text)?,
            None => None,
        },
        event_id: event_id.map(|text| event_values::event_id(&field("eventId"), &text)).transpose()?,
        trace,
    })
}

fn text<'a>(field: &str, member: JsonMember<'a>) -> Result<Option<Cow<'a, str>>, Problem> {
    match member.value() {
        None => Ok(None),
        Some(JsonValue::Text(text)) => Ok(Some(text)),
        Some(_) => Err(Problem::field(field, "must be a string")),
    }
}

fn headers(field: &str, member: JsonMember<'_>) -> Result<EventHeaders, Problem> {
    let expected = || Problem::field(field, "must be an object of names and strings");
    let Some(raw) = member.raw() else { return Ok(EventHeaders::default()) };
    let object: Map<String, Value> = serde_json::from_str(raw).map_err(|_| expected())?;
    let pairs = object.into_iter().map(|(name, value)| match value {
        Value::String(text) => Ok((name, text)),
        _ => Err(expected()),
    });
    event_values::headers(field, &pairs.collect::<Result<Vec<_>, _>>()?)
}
