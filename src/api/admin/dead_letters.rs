//! `/admin/dlt`: lists and reads dead letters, and sends them back to their topic.
use app::operators::dead_letters::{
    DEAD_LETTERS_MAX, DeadLetter, DeadLetterCursor, DeadLetterFilter, DeadLetterPosition, DeadLetters,
};
use app::operators::dead_letters_by_topic::DeadLettersByTopic;
use app::port_types::{Audit, RedriveMode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::admin::dead_letter_body::{DeadLetterBody, RefusalsBody};
use crate::admin::filters::{CURSOR_MESSAGE, TEXT_MESSAGE, dead_letter_filter, printable};
use crate::admin::live_events::log_if_changed;
use crate::admin::operator_body::{self, RedriveMembers, RedriveSettings, paced_redrive, text};
use crate::admin::paced_redrive::Pace;
use crate::error::{Problem, ProblemBody};
use crate::openapi::schemas::{
    AgeFilter, AgeText, AnyInteger, BooleanFilter, CursorFilter, CursorText, FailureTypeFilter, FailureTypeName,
    PrintableText, ReasonText,
};
use crate::request::context::RequestContext;
use crate::request::json::JsonMember;
use crate::request::query::Query;
use crate::request::response::{RouteResult, ok};

/// Dead letters of a page unless `limit` is given.
const DEAD_LETTERS_DEFAULT: i64 = 100;

/// A page of dead letters.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadLetterPage)]
pub(crate) struct DeadLetterPageBody {
    #[serde(rename = "letters")]
    dead_letters: Vec<DeadLetterBody>,
    /// `after` of the next page; null at the end. A page may be short or empty although it has a next one.
    #[schema(example = "3/17@1763808278501")]
    next: Option<String>,
}

/// The result of a redrive of dead letters.
#[derive(Serialize, ToSchema)]
#[schema(as = RedrivenDeadLetters)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeadLettersRedriven {
    #[schema(example = false)]
    dry_run: bool,
    /// The dead letters that match the filter and were not redriven before.
    #[schema(example = 3)]
    matched: u64,
    /// The dead letters that were sent back to their topic.
    #[schema(example = 3)]
    redriven: u64,
    /// The dead letters that were held back, because another redrive of one, or of an earlier one of its key, runs or was interrupted.
    /// Repeat the request after two minutes. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = 2)]
    held: Option<u64>,
    /// The dead letters that the broker refused. They stay dead letters and stopped no other. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<RefusalsBody>,
    /// `after` of a further redrive, when there may be more; null at the end, and when dead letters were held back.
    #[schema(example = "3/17@1763808278501")]
    next: Option<String>,
}

/// The dead letters to send back.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = RedriveDeadLetters)]
#[serde(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RedriveDeadLettersBody<'a> {
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<PrintableText>, example = "ORDER_CREATED")]
    r#type: JsonMember<'a>,
    /// Only dead letters with this key.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<PrintableText>)]
    key: JsonMember<'a>,
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<FailureTypeName>, example = "SYSTEM")]
    failure_type: JsonMember<'a>,
    /// Only records that were dead-lettered at least this long ago: `250ms`, `5s`, `1h`.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<AgeText>, example = "1h")]
    older_than: JsonMember<'a>,
    /// `next` of the previous response, which skips records that were dead-lettered again since, or a partition and an offset.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<CursorText>, example = "3/17")]
    after: JsonMember<'a>,
    /// The maximum number of dead letters, 1000 by default.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<u32>, minimum = 1, maximum = 10000, example = 1000)]
    limit: JsonMember<'a>,
    /// Most per second; as fast as possible without it. The request then ends within four fifths of `http.request_timeout`: repeat it
    /// with `next` as `after` while `next` is not null.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<u32>, minimum = 1, maximum = 10000, example = 100)]
    rate: JsonMember<'a>,
    /// Only count the dead letters; true by default.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<bool>, default = true, example = false)]
    dry_run: JsonMember<'a>,
    /// Stored in the audit record.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<ReasonText>, example = "the handler is fixed")]
    reason: JsonMember<'a>,
}

/// Whether to send one dead letter back, and the reason.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = RedriveDeadLetter)]
#[serde(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RedriveDeadLetterBody<'a> {
    /// Change nothing; true by default.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<bool>, default = true, example = false)]
    pub(crate) dry_run: JsonMember<'a>,
    /// Stored in the audit record.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Option<ReasonText>, example = "the handler is fixed")]
    pub(crate) reason: JsonMember<'a>,
}

/// List the dead letters
#[utoipa::path(get, path = "/admin/dlt", tag = "admin", operation_id = "listDeadLetters", security(("bearer" = [])),
    params(
        ("topic" = Option<String>, Query, description = "The topic whose dead letters are meant, such as `invoices`; that of the orders by default"),
        ("key" = Option<String>, Query, description = "Only dead letters with this key"),
        ("type" = inline(Option<PrintableText>), Query, description = "Only dead letters of this event type"),
        ("failureType" = inline(Option<FailureTypeFilter>), Query, description = "Only dead letters of this class of failure"),
        ("olderThan" = inline(Option<AgeFilter>), Query, description = "Dead-lettered at least this long ago: `250ms`, `5s`, `1h`"),
        ("redriven" = inline(Option<BooleanFilter>), Query, description = "Only those that were sent back, or only the others"),
        ("after" = inline(Option<CursorFilter>), Query, description = "`next` of the previous page"),
        ("limit" = inline(Option<AnyInteger>), Query, description = "Clamped to 1…500; 100 by default")),
    responses(
        (status = 200, description = "Dead letters by partition and offset", body = DeadLetterPageBody),
        (status = 400, description = "A parameter is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No broker is configured, or no such topic", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn list(context: RequestContext) -> RouteResult {
    let query = context.query();
    query.reject_unknown(&["topic", "key", "type", "failureType", "olderThan", "redriven", "after", "limit"])?;
    let filter = dead_letter_filter(&query)?;
    let limit = query.integer("limit")?.unwrap_or(DEAD_LETTERS_DEFAULT).clamp(1, i64::from(DEAD_LETTERS_MAX)) as u32;
    let page = dead_letters(&context, &query)?.list(&filter, limit).await?;
    let body = |dead_letter| DeadLetterBody::new(dead_letter, &context.state.options.order_topic);
    let next = page.next.map(|next| next.to_string());
    Ok(ok(&DeadLetterPageBody { dead_letters: page.dead_letters.iter().map(body).collect(), next }))
}

/// Read a dead letter
#[utoipa::path(get, path = "/admin/dlt/{partition}/{offset}", tag = "admin", operation_id = "findDeadLetter",
    security(("bearer" = [])),
    params(
        ("partition" = u32, Path, description = "The partition of the dead-letter topic"), ("offset" = u64, Path, description = "The offset in that partition"),
        ("topic" = Option<String>, Query, description = "The topic whose dead letters are meant, such as `invoices`; that of the orders by default")),
    responses(
        (status = 200, description = "The dead letter", body = DeadLetterBody),
        (status = 400, description = "A parameter or the body is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such dead letter, or no such topic", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn find(context: RequestContext) -> RouteResult {
    let position = position(&context)?;
    Ok(dead_letter_response(&context, &dead_letters(&context, &context.query())?.find(position).await?))
}

/// Send dead letters back to their topic
#[utoipa::path(post, path = "/admin/dlt/redrive", tag = "admin", operation_id = "redriveDeadLetters", security(("bearer" = [])),
    params(
        ("topic" = Option<String>, Query, description = "The topic whose dead letters are meant, such as `invoices`; that of the orders by default"),
        ("dryRun" = Option<bool>, Query, description = "As in the body; both must be equal")),
    request_body(content = Option<RedriveDeadLettersBody<'_>>, content_type = "application/json",
        example = json!({"failureType": "SYSTEM", "dryRun": false, "reason": "the handler is fixed"})),
    responses(
        (status = 200, description = "The number of dead letters", body = DeadLettersRedriven),
        (status = 400, description = "Not a valid filter", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No broker is configured, or no such topic", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn redrive(context: RequestContext) -> RouteResult {
    let (query, body): (_, RedriveDeadLettersBody<'_>) = (context.query(), operator_body::read(&context)?);
    query.reject_unknown(&["topic", "dryRun"])?;
    let RedriveDeadLettersBody { r#type, key, failure_type, older_than, after, limit, rate, dry_run, reason } = body;
    let key = text(key, "key", printable, TEXT_MESSAGE)?;
    let event_type = text(r#type, "type", printable, TEXT_MESSAGE)?;
    let after = text(after, "after", DeadLetterCursor::parse, CURSOR_MESSAGE)?;
    let members = RedriveMembers { failure_type, older_than, limit, rate, dry_run, reason };
    let RedriveSettings { failure_type, older_than, limit, rate, dry_run, reason } =
        RedriveSettings::read(&members, &query)?;
    let filter = DeadLetterFilter {
        key,
        event_type,
        failure_type,
        older_than,
        redriven: None,
        after,
        ..DeadLetterFilter::default()
    };
    let audit = audit(&context, reason)?;
    let dead_letters = dead_letters(&context, &query)?;
    let result = match rate.filter(|_| !dry_run) {
        Some(rate) => {
            let redrive = paced_redrive(&context, limit.into(), Pace::from_rate(Some(rate)));
            redrive.dead_letters(dead_letters, &filter, &audit).await
        }
        None => dead_letters.redrive(&filter, limit, RedriveMode::from_dry_run(dry_run), &audit).await,
    };
    if !dry_run {
        let on = format!("dead letters of {}", dead_letters.topic());
        log_if_changed(&context.state, &result, &audit, "send back", &on);
    }
    let sent = result?;
    if sent.redriven > 0 {
        log_redrive(&audit, dead_letters.topic(), sent.redriven);
    }
    Ok(ok(&DeadLettersRedriven {
        dry_run,
        matched: sent.matched,
        redriven: sent.redriven,
        held: sent.held_back_if_any(),
        refused: RefusalsBody::from_refusals(&sent.refusals),
        next: sent.next.map(|next| next.to_string()),
    }))
}

/// Send one dead letter back to its topic
#[utoipa::path(post, path = "/admin/dlt/{partition}/{offset}/redrive", tag = "admin", operation_id = "redriveDeadLetter",
    security(("bearer" = [])),
    params(
        ("partition" = u32, Path, description = "The partition of the dead-letter topic"), ("offset" = u64, Path, description = "The offset in that partition"),
        ("topic" = Option<String>, Query, description = "The topic whose dead letters are meant, such as `invoices`; that of the orders by default"),
        ("dryRun" = Option<bool>, Query, description = "As in the body; both must be equal")),
    request_body(content = Option<RedriveDeadLetterBody<'_>>, content_type = "application/json"),
    responses(
        (status = 200, description = "The changed dead letter", body = DeadLetterBody),
        (status = 400, description = "A parameter or the body is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such dead letter, or no such topic", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 409, description = "Redriven before, being redriven by another operator, or refused by the broker", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn redrive_one(context: RequestContext) -> RouteResult {
    let (position, query) = (position(&context)?, context.query());
    let body: RedriveDeadLetterBody<'_> = operator_body::read(&context)?;
    query.reject_unknown(&["topic", "dryRun"])?;
    let dry_run = operator_body::dry_run(body.dry_run, &query)?;
    let audit = audit(&context, operator_body::reason(body.reason)?)?;
    let dead_letters = dead_letters(&context, &query)?;
    let result = dead_letters.redrive_one(position, RedriveMode::from_dry_run(dry_run), &audit).await;
    if !dry_run {
        let on = format!("dead letter {position} of {}", dead_letters.topic());
        log_if_changed(&context.state, &result, &audit, "send back", &on);
    }
    let dead_letter = result?;
    if !dry_run {
        log_redrive(&audit, dead_letters.topic(), 1);
    }
    Ok(dead_letter_response(&context, &dead_letter))
}

fn dead_letter_response(context: &RequestContext, dead_letter: &DeadLetter) -> actix_web::HttpResponse {
    ok(&DeadLetterBody::new(dead_letter, &context.state.options.order_topic))
}

/// The dead letters of the topic that a query or a form names; those of the orders by default.
///
/// # Errors
/// 404 when the service publishes to no such topic, or no broker is configured.
pub(crate) fn dead_letters<'a>(context: &'a RequestContext, query: &Query<'_>) -> Result<&'a DeadLetters, Problem> {
    by_topic(context)?.for_topic(query.non_empty("topic")?).map_err(Problem::from)
}

/// # Errors
/// 404 when no broker is configured.
pub(crate) fn by_topic(context: &RequestContext) -> Result<&DeadLettersByTopic, Problem> {
    let none = || Problem::not_found("no broker is configured, so there are no dead letters");
    context.state.dead_letters.as_deref().ok_or_else(none)
}

pub(crate) fn audit(context: &RequestContext, reason: String) -> Result<Audit, Problem> {
    Ok(Audit { operator: context.identity()?.subject.as_str().to_owned(), reason })
}

pub(crate) fn log_redrive(audit: &Audit, topic: &str, redriven: u64) {
    let Audit { operator, reason } = audit;
    tracing::info!(event = "dead_letters_redriven", by = %operator, topic, %reason, redriven, "{operator} sent {redriven} dead letters of {topic} back: {reason}");
}

/// The partition and offset in the path.
pub(crate) fn position(context: &RequestContext) -> Result<DeadLetterPosition, Problem> {
    let text = format!("{}/{}", context.path_parameter("partition"), context.path_parameter("offset"));
    DeadLetterPosition::parse(&text).ok_or_else(|| Problem::field("offset", "partition and offset must be numbers"))
}
