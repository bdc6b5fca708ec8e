//! The deliveries of a webhook: its log, a test event, and the redrive of its dead letters.
use app::operators::dead_letters::DeadLetterCursor;
use app::port_types::RedriveMode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::admin::dead_letter_body::RefusalsBody;
use crate::admin::dead_letters;
use crate::admin::filters::CURSOR_MESSAGE;
use crate::admin::live_events::log_if_changed;
use crate::admin::operator_body::{self, LIMIT_DEFAULT, LIMIT_MAX};
use crate::error::{Problem, ProblemBody};
use crate::openapi::schemas::{CursorText, ReasonText};
use crate::request::context::RequestContext;
use crate::request::json::{JsonMember, JsonValue};
use crate::request::response::{RouteResult, ok};
use crate::topics::webhooks::bodies::{DeliveryBody, webhook_id};
use crate::topics::webhooks::lookups::webhooks;

/// At most 100 attempts, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = WebhookDeliveries)]
struct DeliveriesBody<'a> {
    deliveries: Vec<DeliveryBody<'a>>,
}

/// The endpoint's response to a test event.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WebhookTest)]
struct TestBody<'a> {
    /// The value of the header `webhook-id`.
    id: &'a str,
    accepted: bool,
    /// The status of the response; null without one.
    status: Option<u16>,
    error: Option<&'a str>,
    duration_ms: u64,
}

/// Which dead letters of a webhook are delivered again.
#[derive(Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = RedriveWebhook)]
pub(crate) struct RedriveWebhookBody<'a> {
    /// `next` of the previous response, which skips events that became dead letters again since, or a partition and an offset.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<CursorText>, example = "3/17")]
    after: JsonMember<'a>,
    /// Most dead letters; 1000 by default.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<u32>, minimum = 1, maximum = 10000)]
    limit: JsonMember<'a>,
    /// Only count them; true by default.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<bool>, default = true)]
    dry_run: JsonMember<'a>,
    /// Stored in the ledger of redrives.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<ReasonText>, example = "the endpoint is fixed")]
    reason: JsonMember<'a>,
}

/// The result of a redrive.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WebhookRedriven)]
struct RedrivenBody {
    dry_run: bool,
    /// Dead letters of the webhook that were not delivered again before.
    matched: u64,
    redriven: u64,
    /// Dead letters that were held back, because another redrive of one, or of an earlier one of its key, runs or was interrupted. Repeat the
    /// request after two minutes. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<u64>,
    /// The dead letters that the broker refused. They stay dead letters and stopped no other. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<RefusalsBody>,
    /// `after` of a further redrive, when there may be more; null at the end, and when dead letters were held back. A request examines
    /// what fits into a few seconds.
    #[schema(example = "3/17@1763808278501")]
    next: Option<String>,
}

/// List the latest deliveries of a webhook
#[utoipa::path(get, path = "/webhooks/{id}/deliveries", tag = "webhooks", operation_id = "listWebhookDeliveries", security(("bearer" = [])),
    params(("id" = String, Path, description = "The webhook")),
    responses(
        (status = 200, description = "At most 100 attempts, newest first", body = DeliveriesBody<'_>),
        (status = 404, description = "No such webhook", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 501, description = "Webhooks are switched off", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn list(context: RequestContext) -> RouteResult {
    let found = webhooks(&context)?.deliveries(webhook_id(&context)?).await?;
    Ok(ok(&DeliveriesBody { deliveries: found.iter().map(DeliveryBody::new).collect() }))
}

/// Send a test event
///
/// Sends an event of type `posthaste.test` now and waits for the response, also where the webhook is inactive.
#[utoipa::path(post, path = "/webhooks/{id}/test", tag = "webhooks", operation_id = "testWebhook", security(("bearer" = [])),
    params(("id" = String, Path, description = "The webhook")),
    responses(
        (status = 200, description = "What the endpoint answered", body = TestBody<'_>),
        (status = 404, description = "No such webhook", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 501, description = "Webhooks are switched off", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn test(context: RequestContext) -> RouteResult {
    let report = webhooks(&context)?.test(webhook_id(&context)?).await?;
    Ok(ok(&TestBody {
        id: &report.message_id,
        accepted: report.error.is_none(),
        status: report.status,
        error: report.error.as_deref(),
        duration_ms: u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
    }))
}

/// Deliver the dead letters of a webhook again
#[utoipa::path(post, path = "/webhooks/{id}/redrive", tag = "webhooks", operation_id = "redriveWebhook", security(("bearer" = [])),
    params(
        ("id" = String, Path, description = "The webhook"),
        ("dryRun" = Option<bool>, Query, description = "As in the body; both must be equal")),
    request_body(content = Option<RedriveWebhookBody<'_>>, content_type = "application/json",
        example = json!({"dryRun": false, "reason": "the endpoint is fixed"})),
    responses(
        (status = 200, description = "The number of dead letters", body = RedrivenBody),
        (status = 400, description = "A value is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such webhook", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 501, description = "Webhooks are switched off", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn redrive(context: RequestContext) -> RouteResult {
    let (webhooks, id, query) = (webhooks(&context)?, webhook_id(&context)?, context.query());
    query.reject_unknown(&["dryRun"])?;
    let body: RedriveWebhookBody<'_> = operator_body::read(&context)?;
    let after = operator_body::text(body.after, "after", DeadLetterCursor::parse, CURSOR_MESSAGE)?;
    let limit = limit(body.limit)?;
    let dry_run = operator_body::dry_run(body.dry_run, &query)?;
    let audit = dead_letters::audit(&context, operator_body::reason(body.reason)?)?;
    let result = webhooks.redrive(id, after, limit, RedriveMode::from_dry_run(dry_run), &audit).await;
    if !dry_run {
        let on = format!("dead letters of webhook {id}");
        log_if_changed(&context.state, &result, &audit, "send back", &on);
    }
    let report = result?;
    if report.redriven > 0 {
        dead_letters::log_redrive(&audit, webhooks.shared_topic(), report.redriven);
    }
    Ok(ok(&RedrivenBody {
        dry_run,
        matched: report.matched,
        redriven: report.redriven,
        held: report.held_back_if_any(),
        refused: RefusalsBody::from_refusals(&report.refusals),
        next: report.next.map(|next| next.to_string()),
    }))
}

/// JSON Schema counts `36.0` as an integer.
fn limit(member: JsonMember<'_>) -> Result<u32, Problem> {
    let whole = match member.non_null() {
        None => return Ok(LIMIT_DEFAULT),
        Some(JsonValue::Number(number)) => number.parse::<f64>().ok().filter(|number| number.fract() == 0.0),
        Some(_) => None,
    };
    let legal = whole.filter(|number| (1.0..=f64::from(LIMIT_MAX)).contains(number));
    legal.map(|number| number as u32).ok_or_else(|| Problem::field("limit", "must be an integer from 1 to 10000"))
}
