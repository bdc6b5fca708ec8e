//! `GET /admin/outbox/why`: the diagnosis of an event's outbox row.
use app::contract::rfc3339;
use app::port_types::{RowDiagnosis, RowSelector, RowStatus};
use domain::{EventId, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use crate::admin::filters::{event_key, parameter};
use crate::admin::outbox_row::OutboxRowBody;
use crate::error::{Problem, ProblemBody};
use crate::openapi::schemas::{EventKeyFilter, UuidFilter};
use crate::request::context::RequestContext;
use crate::request::response::{RouteResult, ok};

/// The diagnosis of an event's outbox row.
#[derive(Serialize, ToSchema)]
#[schema(as = Why)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DiagnosisBody {
    /// SENT, PENDING, IN_FLIGHT, WAITING_FOR_RETRY, BLOCKED_BY_HEAD or PARKED
    #[schema(example = "SENT")]
    verdict: &'static str,
    /// The row of the event.
    row: OutboxRowBody,
    /// The earlier row of the same key that blocks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = OutboxRowBody)]
    head: Option<OutboxRowBody>,
    /// Attempts counted so far. Attempts that failed in an outage are counted only up to half of `attempts_max`.
    #[schema(example = 1)]
    attempt: u32,
    /// When the next attempt is due; null if none is planned.
    #[schema(format = DateTime)]
    next_attempt_at: Option<String>,
    last_error: Option<String>,
    /// The instance that owns the partition.
    owner: Option<String>,
    /// The number of the owner's lease acquisition.
    #[schema(example = 3)]
    epoch: u64,
    /// How often an instance died while it was publishing the row.
    #[schema(example = 0)]
    deaths: u32,
    /// When the event was sent; the next members are its position in the broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, format = DateTime)]
    sent_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, example = "order.events")]
    topic: Option<String>,
    /// The partition of the topic, not of the outbox. With `offset` it is null where only the topic is known: after a crash, the events that
    /// were found to be published have no recorded position.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<u32>, example = 3)]
    partition: Option<Option<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<u64>, example = 17)]
    offset: Option<Option<u64>>,
    /// Whether the event was sent by the fallback of its type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = bool, example = false)]
    by_fallback: Option<bool>,
}

/// Diagnose an unsent event
///
/// By key: the first unsent event of the key, else its latest event.
#[utoipa::path(get, path = "/admin/outbox/why", tag = "admin", operation_id = "whyOutbox", security(("bearer" = [])),
    params(
        ("key" = inline(Option<EventKeyFilter>), Query, description = "The key of an event, such as an order id; this or `event`"),
        ("event" = inline(Option<UuidFilter>), Query, description = "An event id; this or `key`")),
    responses(
        (status = 200, description = "The diagnosis", body = DiagnosisBody),
        (status = 400, description = "Neither or both parameters were given", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such event", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn diagnose(context: RequestContext) -> RouteResult {
    let query = context.query();
    let event = parameter(&query, "event", EventId::parse, "must be a hyphenated UUID")?;
    let selector = match (event_key(&query)?, event) {
        (Some(key), None) => RowSelector::Key(key),
        (None, Some(event)) => RowSelector::Event(event),
        _ => return Err(Problem::bad_request("exactly one of key and event must be given")),
    };
    let diagnosis = context.state.operations.diagnose(selector).await?;
    Ok(ok(&DiagnosisBody::new(&diagnosis, context.state.operations.now())))
}

impl DiagnosisBody {
    pub(crate) fn new(diagnosis: &RowDiagnosis, now: Timestamp) -> Self {
        let RowDiagnosis { row, head, owner, epoch, deaths, sent_to, by_fallback } = diagnosis;
        let sent_to = sent_to.as_ref();
        Self {
            verdict: diagnosis.verdict(now),
            row: row.into(),
            head: head.as_ref().map(OutboxRowBody::from),
            attempt: row.retry_count,
            next_attempt_at: row.next_attempt_at.map(rfc3339),
            last_error: row.last_failure_reason.clone(),
            owner: owner.as_ref().map(ToString::to_string),
            epoch: *epoch,
            deaths: *deaths,
            sent_at: row.sent_at.map(rfc3339),
            topic: sent_to.map(|sent_to| sent_to.topic.to_string()),
            partition: sent_to.map(|sent_to| sent_to.partition_offset.map(|(partition, _)| partition)),
            offset: sent_to.map(|sent_to| sent_to.partition_offset.map(|(_, offset)| offset)),
            by_fallback: (row.status == RowStatus::Sent).then_some(*by_fallback),
        }
    }
}
