//! `PATCH /orders/{id}/status` and `PATCH /orders/{id}/cancel`.
use std::sync::Arc;

use actix_web::http::StatusCode;
use app::dispatch::{ChangeOrder, ChangePreconditions};
use domain::{OrderId, Status};

use crate::error::{FieldError, Problem, ProblemBody};
use crate::orders::bodies::{ChangeBody, OrderBody};
use crate::orders::operation::{measured, order_response};
use crate::orders::parameters::{STATUS_MESSAGE, order_id};
use crate::request::context::RequestContext;
use crate::request::json::{self, JsonMember, JsonValue};
use crate::request::preconditions;
use crate::request::response::RouteResult;

/// Change the status of an order
///
/// PENDING → PROCESSING, SHIPPED, DELIVERED or CANCELLED; PROCESSING → SHIPPED or DELIVERED; SHIPPED → DELIVERED.
#[utoipa::path(patch, path = "/orders/{id}/status", tag = "orders", operation_id = "changeOrderStatus",
    security(("bearer" = [])),
    params(
        ("id" = String, Path, format = "uuid", description = "The id of the order"),
        ("If-Match" = Option<String>, Header, description = "The tag that the client saw last, or `*`"),
    ),
    request_body(content = ChangeBody<'_>, content_type = "application/json",
        example = json!({"status": "PROCESSING", "version": 0})),
    responses(
        (status = 200, description = "Changed", body = OrderBody<'_>, headers(("ETag" = String, description = "The new version of the order"))),
        (status = 400, description = "Not a valid change", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such order", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 409, description = "The change is not allowed, or the version differs", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 412, description = "The tag differs", body = ProblemBody<'_>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn change_status(context: RequestContext) -> RouteResult {
    measured(&context, "change_status", change_order_status(&context)).await
}

async fn change_order_status(context: &RequestContext) -> RouteResult {
    let id = order_id(context)?;
    let if_match = preconditions::if_match(context.headers());
    let (status, version) = read_change(&context.body, if_match.is_some())?;
    send_change(context, id, status, ChangePreconditions { if_match, version }).await
}

/// Cancel a pending order
///
/// Only while it is PENDING, by its owner or an ADMIN. The body is ignored.
#[utoipa::path(patch, path = "/orders/{id}/cancel", tag = "orders", operation_id = "cancelOrder",
    security(("bearer" = [])),
    params(
        ("id" = String, Path, format = "uuid", description = "The id of the order"),
        ("If-Match" = Option<String>, Header, description = "The tag that the client saw last, or `*`"),
    ),
    responses(
        (status = 200, description = "Cancelled", body = OrderBody<'_>, headers(("ETag" = String, description = "The new version of the order"))),
        (status = 400, description = "The id is not a hyphenated UUID", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such order, or another caller's", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 409, description = "The order is no longer PENDING", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 412, description = "The tag differs", body = ProblemBody<'_>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn cancel(context: RequestContext) -> RouteResult {
    measured(&context, "cancel", cancel_order(&context)).await
}

async fn cancel_order(context: &RequestContext) -> RouteResult {
    let id = order_id(context)?;
    let if_match = preconditions::if_match(context.headers());
    send_change(context, id, Status::Cancelled, ChangePreconditions { if_match, version: None }).await
}

async fn send_change(
    context: &RequestContext,
    id: OrderId,
    to: Status,
    preconditions: ChangePreconditions,
) -> RouteResult {
    let (trace, span, request_id) = (context.trace(), context.parent_span(), Some(Arc::clone(&context.request_id)));
    let command = ChangeOrder { id, to, viewer: context.viewer()?, preconditions, trace, span, request_id };
    let permit = context.state.concurrency_limiters.changes.acquire().await?;
    let changed = context.state.dispatch.change(command, context.time_left()).await;
    permit.release(changed.is_ok());
    Ok(order_response(StatusCode::OK, &*changed.map_err(Problem::from)?))
}

/// The new status and the expected version, which `If-Match` makes optional.
fn read_change(body: &[u8], has_if_match: bool) -> Result<(Status, Option<u64>), Problem> {
    let body: ChangeBody<'_> = json::object(body)?;
    match (status(body.status), version(body.version, has_if_match)) {
        (Ok(status), Ok(version)) => Ok((status, version)),
        (status, version) => {
            let error =
                |field: &str, message: &'static str| FieldError { field: field.into(), message: message.into() };
            let errors = [status.err().map(|m| error("status", m)), version.err().map(|m| error("version", m))];
            Err(Problem::fields("the body is not a valid change", errors.into_iter().flatten().collect()))
        }
    }
}

fn status(member: JsonMember<'_>) -> Result<Status, &'static str> {
    match member.value() {
        Some(JsonValue::Text(name)) => Status::parse(&name).ok_or(STATUS_MESSAGE),
        Some(_) => Err(STATUS_MESSAGE),
        None => Err("is required"),
    }
}

fn version(member: JsonMember<'_>, optional: bool) -> Result<Option<u64>, &'static str> {
    let invalid = "must be an integer, zero or more";
    match member.value() {
        Some(JsonValue::Number(text)) => unsigned_integer(text).map(Some).ok_or(invalid),
        Some(_) => Err(invalid),
        None if optional => Ok(None),
        None => Err("is required without If-Match"),
    }
}

/// A JSON integer. A number beyond `u64` is well-formed; it just equals no version.
fn unsigned_integer(text: &str) -> Option<u64> {
    let digits = if text == "-0" { "0" } else { text };
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().unwrap_or(u64::MAX))
}
