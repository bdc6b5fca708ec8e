//! `/admin/outbox`: rows, one row, and what can be done about one.
use app::port_types::{RowFilter, RowId, RowStatus};
use domain::OrderId;
use serde::Serialize;
use utoipa::ToSchema;

use super::asked::{NOT_PLAIN, body, plain};
use super::row::RowBody;
use crate::call::{Call, ok};
use crate::error::{Envelope, Problem};
use crate::json::Json;
use crate::query::Query;
use crate::route::Answer;

/// Rows of a page unless asked otherwise.
const ROWS_DEFAULT: i64 = 100;
/// Longest reason that is kept with what was done.
pub(crate) const REASON_MAX: usize = 1_000;

/// A page of rows.
#[derive(Serialize, ToSchema)]
pub(crate) struct OutboxRows {
    rows: Vec<RowBody>,
    /// `after` of the next page; null at the end.
    next: Option<i64>,
}

/// List rows
#[utoipa::path(get, path = "/admin/outbox", tag = "admin", operation_id = "listOutbox", security(("bearer" = [])),
    params(
        ("status" = Option<String>, Query, description = "PENDING, IN_FLIGHT, FAILED, PARKED or SENT"),
        ("key" = Option<String>, Query, description = "Rows of this order"),
        ("type" = Option<String>, Query, description = "Rows of this event type"),
        ("after" = Option<i64>, Query, description = "`next` of the page before"),
        ("limit" = Option<i64>, Query, description = "Clamped to 1…500; 100 when left out")),
    responses(
        (status = 200, description = "Rows in id order", body = OutboxRows),
        (status = 400, description = "A parameter is not valid", body = Envelope<'_>, content_type = "application/problem+json")))]
pub(crate) async fn rows(call: Call) -> Answer {
    let query = call.query();
    query.known(&["status", "key", "type", "after", "limit"])?;
    let filter = filter(&query)?;
    let limit =
        query.integer("limit")?.unwrap_or(ROWS_DEFAULT).clamp(1, i64::from(app::operators::outbox::ROWS_MAX)) as u32;
    let page = call.state.operations.rows(&filter, limit).await?;
    Ok(ok(&OutboxRows { rows: page.rows.iter().map(RowBody::from).collect(), next: page.next }))
}

/// Which rows are asked for.
pub(crate) fn filter(query: &Query<'_>) -> Result<RowFilter, Problem> {
    Ok(RowFilter {
        status: status(query)?,
        key: key(query)?,
        kind: kind(query)?,
        after: query.filled("after")?.map_or(Ok(None), |_| query.integer("after"))?,
        ..RowFilter::default()
    })
}

/// Events of which type are asked for.
pub(super) fn kind(query: &Query<'_>) -> Result<Option<String>, Problem> {
    let Some(kind) = query.filled("type")? else { return Ok(None) };
    plain(kind).map(Some).ok_or_else(|| Problem::field("type", NOT_PLAIN))
}

fn status(query: &Query<'_>) -> Result<Option<RowStatus>, Problem> {
    let Some(name) = query.filled("status")? else { return Ok(None) };
    let unknown = || Problem::field("status", "must be one of PENDING, IN_FLIGHT, FAILED, PARKED, SENT");
    RowStatus::parse(name).map(Some).ok_or_else(unknown)
}

pub(super) fn key(query: &Query<'_>) -> Result<Option<OrderId>, Problem> {
    let Some(id) = query.filled("key")? else { return Ok(None) };
    OrderId::parse(id).map(Some).ok_or_else(|| Problem::field("key", "must be a hyphenated UUID"))
}

/// Read one row
#[utoipa::path(get, path = "/admin/outbox/{id}", tag = "admin", operation_id = "findOutboxRow", security(("bearer" = [])),
    params(("id" = i64, Path, description = "The row")),
    responses(
        (status = 200, description = "The row", body = RowBody),
        (status = 400, description = "A parameter or the body is not valid", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such row", body = Envelope<'_>, content_type = "application/problem+json")))]
pub(crate) async fn row(call: Call) -> Answer {
    show(&call, row_id(&call)?).await
}

async fn show(call: &Call, id: RowId) -> Answer {
    let row = call.state.operations.row(id).await?;
    Ok(ok(&RowBody::from(&row)))
}

pub(crate) fn row_id(call: &Call) -> Result<RowId, Problem> {
    let id = call.part("id");
    let digits = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    id.parse().ok().filter(|_| digits).ok_or_else(|| Problem::field("id", "must be the number of a row"))
}

/// Why an operator acts.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used; reason() reads the body")]
pub(crate) struct Reason {
    /// Kept with what was done.
    #[schema(required = false, max_length = 1000, example = "the broker is back")]
    reason: String,
}

/// Make a waiting or parked row due now
#[utoipa::path(post, path = "/admin/outbox/{id}/retry", tag = "admin", operation_id = "retryOutboxRow",
    security(("bearer" = [])),
    params(("id" = i64, Path, description = "The row")),
    request_body(content = Option<Reason>, content_type = "application/json"),
    responses(
        (status = 200, description = "The row as it is now", body = RowBody),
        (status = 400, description = "A parameter or the body is not valid", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such row", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 409, description = "In flight, or sent", body = Envelope<'_>, content_type = "application/problem+json")))]
pub(crate) async fn retry(call: Call) -> Answer {
    let (id, why) = (row_id(&call)?, reason(&call)?);
    call.state.operations.retry(id, call.identity()?.subject.as_str(), &why).await?;
    show(&call, id).await
}

/// Park a row
#[utoipa::path(post, path = "/admin/outbox/{id}/park", tag = "admin", operation_id = "parkOutboxRow",
    security(("bearer" = [])),
    params(("id" = i64, Path, description = "The row")),
    request_body(content = Option<Reason>, content_type = "application/json"),
    responses(
        (status = 200, description = "The row as it is now", body = RowBody),
        (status = 400, description = "A parameter or the body is not valid", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such row", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 409, description = "In flight, or sent", body = Envelope<'_>, content_type = "application/problem+json")))]
pub(crate) async fn park(call: Call) -> Answer {
    let (id, why) = (row_id(&call)?, reason(&call)?);
    call.state.operations.park(id, call.identity()?.subject.as_str(), &why).await?;
    show(&call, id).await
}

fn reason(call: &Call) -> Result<String, Problem> {
    reason_of(&body(call, &["reason"])?)
}

/// Lines are welcome, but no store holds a zero byte in a text.
pub(crate) fn is_reason(text: &str) -> bool {
    text.chars().count() <= REASON_MAX && !text.contains('\0')
}

/// The member `reason` of a body; none is an empty one.
pub(super) fn reason_of(body: &Json<'_>) -> Result<String, Problem> {
    match body.member("reason") {
        None | Some(Json::Null) => Ok(String::new()),
        Some(Json::Text(text)) if is_reason(text) => Ok(text.to_string()),
        Some(_) => {
            Err(Problem::field("reason", "must be a string of at most 1000 characters, none of them a zero byte"))
        }
    }
}
