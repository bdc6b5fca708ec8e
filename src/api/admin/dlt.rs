//! `/admin/dlt`: the dead letters, and the way back.
use std::time::Duration;

use app::operators::dead_letters::{
    DEAD_LETTERS_MAX, DeadLetter, DeadLetterCursor, DeadLetterFilter, DeadLetterPosition, DeadLetters,
};
use app::port_types::{Audit, FailureType};
use app::units::duration;
use serde::Serialize;
use utoipa::ToSchema;

use super::asked::{Asked, BAD_AGE, BAD_FAILURE, NOT_PLAIN, body, chosen, dry_run, plain};
use super::letter::LetterBody;
use super::outbox::{kind, reason_of};
use crate::call::{Call, ok};
use crate::error::{Envelope, Problem};
use crate::query::Query;
use crate::route::Answer;

/// Letters of a page unless asked otherwise.
const LETTERS_DEFAULT: i64 = 100;

/// A page of dead letters.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeadLetterPage {
    letters: Vec<LetterBody>,
    /// `after` of the next page; null at the end. A page may be short, or empty, and yet have a next one.
    #[schema(example = "3/17@1763808278501")]
    next: Option<String>,
}

/// What a redrive of dead letters did, or would do.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RedrivenLetters {
    #[schema(example = false)]
    dry_run: bool,
    /// Letters that the filter lets through and that did not go back before.
    #[schema(example = 3)]
    matched: u64,
    /// Letters that went back to their topic.
    #[schema(example = 3)]
    redriven: u64,
    /// `after` for going on, where there may be more; null at the end.
    #[schema(example = "3/17@1763808278501")]
    next: Option<String>,
}

/// Which dead letters to send back.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[allow(dead_code, reason = "only its schema is used; redrive() reads the body")]
pub(crate) struct RedriveLetters {
    #[schema(required = false, example = "ORDER_CREATED")]
    r#type: String,
    /// Letters of this key.
    #[schema(required = false)]
    key: String,
    /// NETWORK, TIMEOUT, VALIDATION or SYSTEM
    #[schema(required = false, example = "SYSTEM")]
    failure_type: String,
    /// Set aside at least so long ago: `250ms`, `5s`, `1h`.
    #[schema(required = false, example = "1h")]
    older_than: String,
    /// `next` of the answer before: letters that died again meanwhile are left out. Or a place.
    #[schema(required = false, example = "3/17")]
    after: String,
    /// Most letters; 1000 when left out.
    #[schema(required = false, minimum = 1, maximum = 10000, example = 1000)]
    limit: u32,
    /// Only count; true when left out.
    #[schema(required = false, default = true, example = false)]
    dry_run: bool,
    /// Kept with what was done.
    #[schema(required = false, max_length = 1000, example = "the handler is mended")]
    reason: String,
}

/// Whether to send one dead letter back, and why.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[allow(dead_code, reason = "only its schema is used; redrive_one() reads the body")]
pub(crate) struct RedriveLetter {
    /// Change nothing; true when left out.
    #[schema(required = false, default = true, example = false)]
    dry_run: bool,
    /// Kept with what was done.
    #[schema(required = false, max_length = 1000, example = "the handler is mended")]
    reason: String,
}

/// List dead letters
#[utoipa::path(get, path = "/admin/dlt", tag = "admin", operation_id = "listDeadLetters", security(("bearer" = [])),
    params(
        ("key" = Option<String>, Query, description = "Letters of this key"),
        ("type" = Option<String>, Query, description = "Letters of this event type"),
        ("failureType" = Option<String>, Query, description = "NETWORK, TIMEOUT, VALIDATION or SYSTEM"),
        ("olderThan" = Option<String>, Query, description = "Set aside at least so long ago: `250ms`, `5s`, `1h`"),
        ("redriven" = Option<bool>, Query, description = "Only those that went back, or only the others"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<i64>, Query, description = "Clamped to 1…500; 100 when left out")),
    responses(
        (status = 200, description = "Letters by partition and offset", body = DeadLetterPage),
        (status = 400, description = "A parameter is not valid", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No broker is configured", body = Envelope<'_>, content_type = "application/problem+json")))]
pub(crate) async fn list(call: Call) -> Answer {
    let query = call.query();
    query.known(&["key", "type", "failureType", "olderThan", "redriven", "after", "limit"])?;
    let filter = filter(&query)?;
    let limit = query.integer("limit")?.unwrap_or(LETTERS_DEFAULT).clamp(1, i64::from(DEAD_LETTERS_MAX)) as u32;
    let page = letters(&call)?.list(&filter, limit).await?;
    let next = page.next.map(|next| next.to_string());
    Ok(ok(&DeadLetterPage { letters: page.dead_letters.iter().map(LetterBody::from).collect(), next }))
}

/// Read one dead letter
#[utoipa::path(get, path = "/admin/dlt/{partition}/{offset}", tag = "admin", operation_id = "findDeadLetter",
    security(("bearer" = [])),
    params(("partition" = u32, Path, description = "Of the dead letters' topic"), ("offset" = u64, Path, description = "Its place there")),
    responses(
        (status = 200, description = "The letter", body = LetterBody),
        (status = 400, description = "A parameter or the body is not valid", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such letter", body = Envelope<'_>, content_type = "application/problem+json")))]
pub(crate) async fn find(call: Call) -> Answer {
    let place = place(&call)?;
    show(&letters(&call)?.find(place).await?)
}

/// Send dead letters back to their topic
#[utoipa::path(post, path = "/admin/dlt/redrive", tag = "admin", operation_id = "redriveDeadLetters", security(("bearer" = [])),
    params(("dryRun" = Option<bool>, Query, description = "As in the body, which counts where both are given")),
    request_body(content = Option<RedriveLetters>, content_type = "application/json",
        example = json!({"failureType": "SYSTEM", "dryRun": false, "reason": "the handler is mended"})),
    responses(
        (status = 200, description = "How many", body = RedrivenLetters),
        (status = 400, description = "Not a valid filter", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No broker is configured", body = Envelope<'_>, content_type = "application/problem+json")))]
pub(crate) async fn redrive(call: Call) -> Answer {
    let (query, body) = (call.query(), body(&call, &[&["key", "type", "after"], &Asked::MEMBERS[..]].concat())?);
    query.known(&["dryRun"])?;
    let text = |name| chosen(&body, name, plain, NOT_PLAIN);
    let (key, kind) = (text("key")?, text("type")?);
    let after = chosen(&body, "after", DeadLetterCursor::parse, BAD_PLACE)?;
    let Asked { failure_type, older_than, limit, dry_run, reason } = Asked::read(&body, &query)?;
    let filter = DeadLetterFilter { key, kind, failure_type, older_than, redriven: None, after };
    let audit = audit(&call, reason)?;
    let sent = letters(&call)?.redrive(&filter, limit, !dry_run, &audit).await?;
    if sent.redriven > 0 {
        tell(&audit, sent.redriven);
    }
    let next = sent.next.map(|next| next.to_string());
    Ok(ok(&RedrivenLetters { dry_run, matched: sent.matched, redriven: sent.redriven, next }))
}

/// Send one dead letter back to its topic
#[utoipa::path(post, path = "/admin/dlt/{partition}/{offset}/redrive", tag = "admin", operation_id = "redriveDeadLetter",
    security(("bearer" = [])),
    params(
        ("partition" = u32, Path, description = "Of the dead letters' topic"), ("offset" = u64, Path, description = "Its place there"),
        ("dryRun" = Option<bool>, Query, description = "As in the body, which counts where both are given")),
    request_body(content = Option<RedriveLetter>, content_type = "application/json"),
    responses(
        (status = 200, description = "The letter as it is now", body = LetterBody),
        (status = 400, description = "A parameter or the body is not valid", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such letter", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 409, description = "Sent back before, or in another's hand", body = Envelope<'_>, content_type = "application/problem+json")))]
pub(crate) async fn redrive_one(call: Call) -> Answer {
    let (place, query, body) = (place(&call)?, call.query(), body(&call, &["dryRun", "reason"])?);
    query.known(&["dryRun"])?;
    let (dry_run, reason) = (dry_run(&body, &query)?, reason_of(&body)?);
    let audit = audit(&call, reason)?;
    let letter = letters(&call)?.redrive_one(place, !dry_run, &audit).await?;
    if !dry_run {
        tell(&audit, 1);
    }
    show(&letter)
}

/// Which letters are asked for.
pub(crate) fn filter(query: &Query<'_>) -> Result<DeadLetterFilter, Problem> {
    Ok(DeadLetterFilter {
        key: query.filled("key")?.map(str::to_owned),
        kind: kind(query)?,
        failure_type: failure_type(query)?,
        older_than: older_than(query)?,
        redriven: asked(query, "redriven", |text| text.parse().ok(), "must be true or false")?,
        after: asked(query, "after", DeadLetterCursor::parse, BAD_PLACE)?,
    })
}

/// How what is asked for failed.
pub(crate) fn failure_type(query: &Query<'_>) -> Result<Option<FailureType>, Problem> {
    asked(query, "failureType", FailureType::parse, BAD_FAILURE)
}

/// How long ago it happened at least.
pub(crate) fn older_than(query: &Query<'_>) -> Result<Option<Duration>, Problem> {
    asked(query, "olderThan", |text| duration(text).ok(), BAD_AGE)
}

const BAD_PLACE: &str = "must be `next` of an answer, or a partition and an offset such as 3/17";

fn show(letter: &DeadLetter) -> Answer {
    Ok(ok(&LetterBody::from(letter)))
}

pub(crate) fn letters(call: &Call) -> Result<&DeadLetters, Problem> {
    let none = || Problem::not_found("no broker is configured, so there are no dead letters");
    call.state.dead_letters.as_deref().ok_or_else(none)
}

/// Who acts, and why.
pub(crate) fn audit(call: &Call, why: String) -> Result<Audit, Problem> {
    Ok(Audit { operator: call.identity()?.subject.as_str().to_owned(), reason: why })
}

pub(crate) fn tell(audit: &Audit, redriven: u64) {
    let Audit { operator, reason } = audit;
    tracing::info!(event = "dead_letters_redriven", by = %operator, %reason, redriven, "dead letters were sent back");
}

pub(crate) fn place(call: &Call) -> Result<DeadLetterPosition, Problem> {
    let text = format!("{}/{}", call.part("partition"), call.part("offset"));
    DeadLetterPosition::parse(&text).ok_or_else(|| Problem::field("offset", "partition and offset must be numbers"))
}

fn asked<T>(
    query: &Query<'_>,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
    message: &'static str,
) -> Result<Option<T>, Problem> {
    let Some(text) = query.filled(name)? else { return Ok(None) };
    parse(text).map(Some).ok_or_else(|| Problem::field(name, message))
}
