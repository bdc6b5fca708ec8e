//! The dead letters of a webhook: the events that its endpoint refused in all attempts, and the redrive of one of them.
use app::consume::webhooks::delivery;
use app::contract::rfc3339;
use app::operators::dead_letters::{DEAD_LETTERS_MAX, DeadLetter, DeadLetterCursor};
use app::port_types::{RedriveMode, Webhook};
use serde::Serialize;
use utoipa::ToSchema;

use crate::admin::dead_letters::{RedriveDeadLetterBody, audit, log_redrive, position};
use crate::admin::filters::CURSOR_MESSAGE;
use crate::admin::live_events::log_if_changed;
use crate::admin::operator_body;
use crate::error::{Problem, ProblemBody};
use crate::openapi::schemas::{AnyInteger, CursorFilter};
use crate::request::context::RequestContext;
use crate::request::query::Query;
use crate::request::response::{RouteResult, ok};
use crate::topics::webhooks::bodies::webhook_id;
use crate::topics::webhooks::lookups::webhooks;

/// Dead letters of a page unless `limit` is given.
const DEAD_LETTERS_DEFAULT: i64 = 100;

/// A page of a webhook's dead letters.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WebhookDeadLetters)]
struct DeadLettersBody<'a> {
    dead_letters: Vec<DeadLetterSummary<'a>>,
    /// `after` of the next page; null at the end. A page may be short or empty although it has a next one.
    #[schema(example = "3/17@1763808278501")]
    next: Option<String>,
}

/// An event that the endpoint did not accept.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WebhookDeadLetter)]
struct DeadLetterSummary<'a> {
    /// Partition and offset in the dead-letter topic of the webhooks.
    #[schema(example = "3/17")]
    position: String,
    /// The topic that the event was published to.
    topic: Option<String>,
    key: &'a str,
    r#type: Option<&'a str>,
    event_id: Option<&'a str>,
    /// The endpoint as it is now.
    url: &'a str,
    /// The status of the last response; null without one.
    #[schema(example = 503)]
    status: Option<u16>,
    /// Why the last attempt failed.
    reason: Option<&'a str>,
    attempts: Option<u32>,
    /// When the event became a dead letter.
    #[schema(format = "date-time")]
    at: String,
    /// Whether it was delivered again.
    redriven: bool,
}

impl<'a> DeadLetterSummary<'a> {
    fn new(dead_letter: &'a DeadLetter, webhook: &'a Webhook) -> Self {
        let record = &dead_letter.message.record;
        Self {
            position: dead_letter.position().to_string(),
            topic: dead_letter.origin().map(|origin| origin.topic),
            key: &record.key,
            r#type: dead_letter.event_type(),
            event_id: dead_letter.event_id(),
            url: &webhook.url,
            status: last_status(dead_letter),
            reason: dead_letter.reason(),
            attempts: dead_letter.attempts(),
            at: rfc3339(record.timestamp),
            redriven: dead_letter.is_redriven(),
        }
    }
}

/// The status of the last response to a dead letter.
pub(crate) fn last_status(dead_letter: &DeadLetter) -> Option<u16> {
    dead_letter.reason().and_then(delivery::status_of_failure)
}

/// List the dead letters of a webhook
#[utoipa::path(get, path = "/webhooks/{id}/dead-letters", tag = "webhooks", operation_id = "listWebhookDeadLetters", security(("bearer" = [])),
    params(
        ("id" = String, Path, description = "The webhook"),
        ("after" = inline(Option<CursorFilter>), Query, description = "`next` of the previous page"),
        ("limit" = inline(Option<AnyInteger>), Query, description = "Clamped to 1…500; 100 by default")),
    responses(
        (status = 200, description = "Dead letters by partition and offset", body = DeadLettersBody<'_>),
        (status = 400, description = "A parameter is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such webhook", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 501, description = "Webhooks are switched off", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn list(context: RequestContext) -> RouteResult {
    let (actions, id, query) = (webhooks(&context)?, webhook_id(&context)?, context.query());
    query.reject_unknown(&["after", "limit"])?;
    let limit = query.integer("limit")?.unwrap_or(DEAD_LETTERS_DEFAULT).clamp(1, i64::from(DEAD_LETTERS_MAX)) as u32;
    let webhook = actions.find(id).await?;
    let page = actions.dead_letters(id, cursor(&query)?, limit).await?;
    let found = page.dead_letters.iter().map(|dead_letter| DeadLetterSummary::new(dead_letter, &webhook));
    Ok(ok(&DeadLettersBody { dead_letters: found.collect(), next: page.next.map(|next| next.to_string()) }))
}

/// The position after which a page begins.
pub(crate) fn cursor(query: &Query<'_>) -> Result<Option<DeadLetterCursor>, Problem> {
    let Some(text) = query.non_empty("after")? else { return Ok(None) };
    DeadLetterCursor::parse(text).map(Some).ok_or_else(|| Problem::field("after", CURSOR_MESSAGE))
}

/// Deliver one dead letter of a webhook again
#[utoipa::path(post, path = "/webhooks/{id}/dead-letters/{partition}/{offset}/redrive", tag = "webhooks", operation_id = "redriveWebhookDeadLetter",
    security(("bearer" = [])),
    params(
        ("id" = String, Path, description = "The webhook"),
        ("partition" = u32, Path, description = "The partition of the dead-letter topic"), ("offset" = u64, Path, description = "The offset in that partition"),
        ("dryRun" = Option<bool>, Query, description = "As in the body; both must be equal")),
    request_body(content = Option<RedriveDeadLetterBody<'_>>, content_type = "application/json"),
    responses(
        (status = 200, description = "The dead letter", body = DeadLetterSummary<'_>),
        (status = 400, description = "A parameter or the body is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such webhook, or no such dead letter of it", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 409, description = "Redriven before, being redriven by another operator, or refused by the broker", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 501, description = "Webhooks are switched off", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn redrive(context: RequestContext) -> RouteResult {
    let (actions, id, position) = (webhooks(&context)?, webhook_id(&context)?, position(&context)?);
    let query = context.query();
    query.reject_unknown(&["dryRun"])?;
    let body: RedriveDeadLetterBody<'_> = operator_body::read(&context)?;
    let dry_run = operator_body::dry_run(body.dry_run, &query)?;
    let audit = audit(&context, operator_body::reason(body.reason)?)?;
    let webhook = actions.find(id).await?;
    let result = actions.redrive_one(id, position, RedriveMode::from_dry_run(dry_run), &audit).await;
    if !dry_run {
        let on = format!("dead letter {position} of webhook {id}");
        log_if_changed(&context.state, &result, &audit, "send back", &on);
    }
    let dead_letter = result?;
    if !dry_run {
        log_redrive(&audit, actions.shared_topic(), 1);
    }
    Ok(ok(&DeadLetterSummary::new(&dead_letter, &webhook)))
}
