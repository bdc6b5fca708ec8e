//! `/admin/outbox`: lists and reads rows, retries and parks one.
use app::port_types::RowId;
use serde::Serialize;
use utoipa::ToSchema;

use crate::admin::dead_letters::audit;
use crate::admin::filters::{row_filter, row_id};
use crate::admin::live_events::log_if_changed;
use crate::admin::operator_body::{self, ReasonBody};
use crate::admin::outbox_row::OutboxRowBody;
use crate::error::{Problem, ProblemBody};
use crate::openapi::schemas::{
    AnyInteger, EventKeyFilter, FailureTypeFilter, PartitionNumber, PrintableText, RowNumber, RowStatusFilter,
};
use crate::request::context::RequestContext;
use crate::request::response::{RouteResult, ok};

/// Rows of a page unless `limit` is given.
const ROWS_DEFAULT: i64 = 100;

/// A page of outbox rows.
#[derive(Serialize, ToSchema)]
#[schema(as = OutboxRows)]
pub(crate) struct OutboxRowPage {
    rows: Vec<OutboxRowBody>,
    /// `after` of the next page; null at the end.
    next: Option<i64>,
}

/// List the outbox rows
#[utoipa::path(get, path = "/admin/outbox", tag = "admin", operation_id = "listOutbox", security(("bearer" = [])),
    params(
        ("status" = inline(Option<RowStatusFilter>), Query, description = "Only rows with this status"),
        ("key" = inline(Option<EventKeyFilter>), Query, description = "Only rows of this key, such as an order id"),
        ("partition" = inline(Option<PartitionNumber>), Query, description = "Only rows of this partition of the outbox"),
        ("type" = inline(Option<PrintableText>), Query, description = "Only rows of this event type"),
        ("failureType" = inline(Option<FailureTypeFilter>), Query, description = "Only rows whose last failure is of this class"),
        ("after" = inline(Option<AnyInteger>), Query, description = "`next` of the previous page"),
        ("limit" = inline(Option<AnyInteger>), Query, description = "Clamped to 1…500; 100 by default")),
    responses(
        (status = 200, description = "Rows in id order", body = OutboxRowPage),
        (status = 400, description = "A parameter is not valid", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn rows(context: RequestContext) -> RouteResult {
    let query = context.query();
    query.reject_unknown(&["status", "key", "partition", "type", "failureType", "after", "limit"])?;
    let filter = row_filter(&query)?;
    let limit =
        query.integer("limit")?.unwrap_or(ROWS_DEFAULT).clamp(1, i64::from(app::operators::outbox::ROWS_MAX)) as u32;
    let page = context.state.operations.rows(&filter, limit).await?;
    Ok(ok(&OutboxRowPage { rows: page.rows.iter().map(OutboxRowBody::from).collect(), next: page.next }))
}

/// Read an outbox row
#[utoipa::path(get, path = "/admin/outbox/{id}", tag = "admin", operation_id = "findOutboxRow", security(("bearer" = [])),
    params(("id" = inline(RowNumber), Path, description = "The id of the row")),
    responses(
        (status = 200, description = "The row", body = OutboxRowBody),
        (status = 400, description = "A parameter or the body is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such row", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn row(context: RequestContext) -> RouteResult {
    let row = context.state.operations.row(row_id(&context)?).await?;
    Ok(ok(&OutboxRowBody::from(&row)))
}

/// Make a waiting or parked row due now
#[utoipa::path(post, path = "/admin/outbox/{id}/retry", tag = "admin", operation_id = "retryOutboxRow",
    security(("bearer" = [])),
    params(("id" = inline(RowNumber), Path, description = "The id of the row")),
    request_body(content = Option<ReasonBody<'_>>, content_type = "application/json"),
    responses(
        (status = 200, description = "The changed row", body = OutboxRowBody),
        (status = 400, description = "A parameter or the body is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such row", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 409, description = "The row is in flight or sent", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn retry(context: RequestContext) -> RouteResult {
    let (id, audit) = (row_id(&context)?, audit(&context, reason(&context)?)?);
    let result = context.state.operations.retry(id, &audit.operator, &audit.reason).await;
    log_if_changed(&context.state, &result, &audit, "retry", &format!("row {id}"));
    result?;
    changed_row_response(&context, id, "made due").await
}

/// Park an outbox row
#[utoipa::path(post, path = "/admin/outbox/{id}/park", tag = "admin", operation_id = "parkOutboxRow",
    security(("bearer" = [])),
    params(("id" = inline(RowNumber), Path, description = "The id of the row")),
    request_body(content = Option<ReasonBody<'_>>, content_type = "application/json"),
    responses(
        (status = 200, description = "The changed row", body = OutboxRowBody),
        (status = 400, description = "A parameter or the body is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such row", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 409, description = "The row is in flight or sent", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn park(context: RequestContext) -> RouteResult {
    let (id, audit) = (row_id(&context)?, audit(&context, reason(&context)?)?);
    let result = context.state.operations.park(id, &audit.operator, &audit.reason).await;
    log_if_changed(&context.state, &result, &audit, "park", &format!("row {id}"));
    result?;
    changed_row_response(&context, id, "parked").await
}

async fn changed_row_response(context: &RequestContext, id: RowId, done: &str) -> RouteResult {
    let row = context.state.operations.row(id).await.map_err(|error| error.after(format!("row {id} was {done}")))?;
    Ok(ok(&OutboxRowBody::from(&row)))
}

fn reason(context: &RequestContext) -> Result<String, Problem> {
    let body: ReasonBody<'_> = operator_body::read(context)?;
    operator_body::reason(body.reason)
}
