//! `PATCH /orders/{id}/status` and `/cancel`.
use actix_web::http::StatusCode;
use app::dispatch::{ChangeOrder, ChangePreconditions};
use domain::{OrderId, Status};

use super::shape::{ChangeBody, OrderBody, STATUS_MESSAGE};
use super::{measured, order_id, tagged};
use crate::body::object;
use crate::call::Call;
use crate::error::{Envelope, FieldError, Problem};
use crate::json::Json;
use crate::route::Answer;
use crate::{conditions, context};

/// Move an order on
///
/// PENDING → PROCESSING, SHIPPED, DELIVERED or CANCELLED; PROCESSING → SHIPPED or DELIVERED; SHIPPED → DELIVERED.
#[utoipa::path(patch, path = "/orders/{id}/status", tag = "orders", operation_id = "changeOrderStatus",
    security(("bearer" = [])),
    params(
        ("id" = String, Path, format = "uuid", description = "The order"),
        ("If-Match" = Option<String>, Header, description = "The tag the client last saw, or `*`"),
    ),
    request_body(content = ChangeBody, content_type = "application/json",
        example = json!({"status": "PROCESSING", "version": 0})),
    responses(
        (status = 200, description = "Moved on", body = OrderBody<'_>, headers(("ETag" = String, description = "Its new version"))),
        (status = 400, description = "Not a valid change", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such order", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 409, description = "No legal move, or another version", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 412, description = "Another tag", body = Envelope<'_>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn change_status(call: Call) -> Answer {
    measured(&call, "change_status", move_on(&call)).await
}

async fn move_on(call: &Call) -> Answer {
    let id = order_id(call)?;
    let if_match = conditions::if_match(call.headers());
    let (to, version) = read(&call.body, if_match.is_some())?;
    send(call, id, to, ChangePreconditions { if_match, version }).await
}

/// Withdraw an order
///
/// Only while it is PENDING, by its owner or an ADMIN. A body is ignored.
#[utoipa::path(patch, path = "/orders/{id}/cancel", tag = "orders", operation_id = "cancelOrder",
    security(("bearer" = [])),
    params(
        ("id" = String, Path, format = "uuid", description = "The order"),
        ("If-Match" = Option<String>, Header, description = "The tag the client last saw, or `*`"),
    ),
    responses(
        (status = 200, description = "Withdrawn", body = OrderBody<'_>, headers(("ETag" = String, description = "Its new version"))),
        (status = 400, description = "The id is no hyphenated UUID", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such order, or somebody else's", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 409, description = "Not PENDING any more", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 412, description = "Another tag", body = Envelope<'_>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn cancel(call: Call) -> Answer {
    measured(&call, "cancel", withdraw(&call)).await
}

async fn withdraw(call: &Call) -> Answer {
    let id = order_id(call)?;
    let if_match = conditions::if_match(call.headers());
    send(call, id, Status::Cancelled, ChangePreconditions { if_match, version: None }).await
}

async fn send(call: &Call, id: OrderId, to: Status, preconditions: ChangePreconditions) -> Answer {
    let command = ChangeOrder { id, to, viewer: call.viewer()?, preconditions, trace: context::trace(call.headers()) };
    let visit = call.state.entrances.changes.enter().await?;
    let changed = call.state.dispatch.change(command).await;
    visit.end(changed.is_ok());
    Ok(tagged(StatusCode::OK, &*changed.map_err(Problem::from)?))
}

/// Where to, and from which version; the version may be missing when a tag stands in for it.
fn read(body: &[u8], tagged: bool) -> Result<(Status, Option<u64>), Problem> {
    let body = object(body)?;
    let status = match body.member("status") {
        Some(Json::Text(name)) => Status::parse(name).ok_or(STATUS_MESSAGE),
        Some(_) => Err(STATUS_MESSAGE),
        None => Err("is required"),
    };
    let version = match body.member("version") {
        Some(Json::Number(text)) => integer(text).map(Some).ok_or("must be an integer, zero or more"),
        Some(_) => Err("must be an integer, zero or more"),
        None if tagged => Ok(None),
        None => Err("is required without If-Match"),
    };
    match (status, version) {
        (Ok(status), Ok(version)) => Ok((status, version)),
        (status, version) => {
            let mistake =
                |field: &str, message: &'static str| FieldError { field: field.into(), message: message.into() };
            let mistakes = [status.err().map(|m| mistake("status", m)), version.err().map(|m| mistake("version", m))];
            Err(Problem::fields("the body is not a valid change", mistakes.into_iter().flatten().collect()))
        }
    }
}

/// A JSON integer. One beyond any version is no mistake of form: it is simply not the order's.
fn integer(text: &str) -> Option<u64> {
    let digits = if text == "-0" { "0" } else { text };
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().unwrap_or(u64::MAX))
}
