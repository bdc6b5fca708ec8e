//! Values of an event as a client sends them, checked by the rules that the relay applies too.
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use app::port_types::{EventHeaders, EventKey, event_rules};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use domain::EventId;

use crate::error::Problem;

/// A broken rule as an error of a field.
fn broken(field: &str, rule: impl Display) -> Problem {
    Problem::field(field, format!("breaks a rule: {rule}"))
}

pub(super) fn topic(field: &str, text: &str) -> Result<Arc<str>, Problem> {
    event_rules::check_topic(text).map_err(|rule| broken(field, rule))?;
    Ok(text.into())
}

pub(super) fn key(field: &str, text: &str) -> Result<EventKey, Problem> {
    EventKey::parse(text).map_err(|rule| broken(field, rule))
}

pub(super) fn event_type(field: &str, text: &str) -> Result<Arc<str>, Problem> {
    event_rules::check_type(text).map_err(|rule| broken(field, rule))?;
    Ok(text.into())
}

/// A content type; the usual one is not stored.
pub(super) fn content_type(field: &str, text: &str) -> Result<Option<Arc<str>>, Problem> {
    event_rules::check_content_type(text).map_err(|rule| broken(field, rule))?;
    Ok((text != "application/json").then(|| text.into()))
}

pub(super) fn event_id(field: &str, text: &str) -> Result<EventId, Problem> {
    EventId::parse(text).ok_or_else(|| Problem::field(field, "must be a UUID with hyphens"))
}

pub(super) fn payload(field: &str, bytes: &[u8]) -> Result<Arc<[u8]>, Problem> {
    let limit = event_rules::PAYLOAD_BYTES_MAX;
    if bytes.len() > limit {
        return Err(Problem::field(
            field,
            format!("has {} bytes, the limit is {limit}: publish a reference", bytes.len()),
        ));
    }
    Ok(bytes.into())
}

pub(super) fn base64(field: &str, text: &str) -> Result<Arc<[u8]>, Problem> {
    let bytes = STANDARD.decode(text).map_err(|_| Problem::field(field, "must be Base64 with padding"))?;
    payload(field, &bytes)
}

/// Headers of the record. A zero byte is refused, because PostgreSQL's texts have none.
pub(super) fn headers(field: &str, headers: &[(String, String)]) -> Result<EventHeaders, Problem> {
    if let Some((name, _)) = headers.iter().find(|(_, value)| value.contains('\0')) {
        return Err(Problem::field(field, format!("must have no zero byte: see {name:?}")));
    }
    let names: BTreeSet<&String> = headers.iter().map(|(name, _)| name).collect();
    if names.len() < headers.len() {
        return Err(Problem::field(field, "must have each name only once"));
    }
    let headers = EventHeaders::from_pairs(headers.iter().map(|(name, value)| (name, value)));
    headers.check().map_err(|rule| broken(field, rule))?;
    Ok(headers)
}
