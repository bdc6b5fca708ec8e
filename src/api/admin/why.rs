//! `GET /admin/outbox/why`: why an event stands where it stands, in one word and with the facts behind it.
use app::port_types::{RowDiagnosis, RowSelector, RowStatus};
use domain::{EventId, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use super::outbox::key;
use super::row::RowBody;
use crate::call::{Call, ok};
use crate::error::{Envelope, Problem};
use crate::route::Answer;
use app::contract::rfc3339;

/// Why an event stands where it stands.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Why {
    /// SENT, PENDING, IN_FLIGHT, WAITING_FOR_RETRY, BLOCKED_BY_HEAD or PARKED
    #[schema(example = "SENT")]
    verdict: &'static str,
    /// The row asked about.
    row: RowBody,
    /// The row it waits behind, when that is another one of its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = RowBody)]
    head: Option<RowBody>,
    /// Attempts made.
    #[schema(example = 1)]
    attempt: u32,
    /// When the next is due, if it waits for one.
    #[schema(format = DateTime)]
    next_attempt_at: Option<String>,
    last_error: Option<String>,
    /// Who owns its partition.
    owner: Option<String>,
    /// Since which acquisition.
    #[schema(example = 3)]
    epoch: u64,
    /// Times its claimer died with it in hand.
    #[schema(example = 0)]
    deaths: u32,
    /// When it left; the four that follow say where to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, format = DateTime)]
    sent_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, example = "order.events")]
    topic: Option<String>,
    /// The topic's, not the outbox's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = u32, example = 3)]
    partition: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = u64, example = 17)]
    offset: Option<u64>,
    /// Whether it left by its type's fallback.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = bool, example = false)]
    by_fallback: Option<bool>,
}

/// Ask why an event stands where it stands
///
/// By key: the first event of the order that has not left, else its latest.
#[utoipa::path(get, path = "/admin/outbox/why", tag = "admin", operation_id = "whyOutbox", security(("bearer" = [])),
    params(
        ("key" = Option<String>, Query, description = "An order id; this or `event`"),
        ("event" = Option<String>, Query, description = "An event id; this or `key`")),
    responses(
        (status = 200, description = "The verdict", body = Why),
        (status = 400, description = "Neither or both were given", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such event", body = Envelope<'_>, content_type = "application/problem+json")))]
pub(crate) async fn why(call: Call) -> Answer {
    let query = call.query();
    let event = match query.filled("event")? {
        None => None,
        Some(id) => Some(EventId::parse(id).ok_or_else(|| Problem::field("event", "must be a hyphenated UUID"))?),
    };
    let whose = match (key(&query)?, event) {
        (Some(key), None) => RowSelector::Key(key),
        (None, Some(event)) => RowSelector::Event(event),
        _ => return Err(Problem::bad_request("exactly one of key and event must be given")),
    };
    let standing = call.state.operations.diagnose(whose).await?;
    Ok(ok(&Why::of(&standing, call.state.operations.now())))
}

impl Why {
    pub(crate) fn of(standing: &RowDiagnosis, now: Timestamp) -> Self {
        let RowDiagnosis { row, head, owner, epoch, deaths, sent_to, by_fallback } = standing;
        let position = sent_to.as_ref();
        Self {
            verdict: standing.verdict(now),
            row: row.into(),
            head: head.as_ref().map(RowBody::from),
            attempt: row.retry_count,
            next_attempt_at: row.next_attempt_at.map(rfc3339),
            last_error: row.last_failure_reason.clone(),
            owner: owner.as_ref().map(ToString::to_string),
            epoch: *epoch,
            deaths: *deaths,
            sent_at: row.sent_at.map(rfc3339),
            topic: position.map(|position| position.topic.to_string()),
            partition: position.map(|position| position.partition),
            offset: position.map(|position| position.offset),
            by_fallback: (row.status == RowStatus::Sent).then_some(*by_fallback),
        }
    }
}
