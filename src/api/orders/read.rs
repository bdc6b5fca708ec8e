//! `GET /orders/{id}` and the bare list.
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::ETAG;
use app::error::QueryError;

use super::shape::{OrderBody, OrderStatus};
use super::{measured, order_id, status_filter, tagged};
use crate::call::{Call, ok};
use crate::conditions;
use crate::error::{Envelope, Kind, Problem};
use crate::route::Answer;

/// Read an order
#[utoipa::path(get, path = "/orders/{id}", tag = "orders", operation_id = "findOrder", security(("bearer" = [])),
    params(
        ("id" = String, Path, format = "uuid", description = "The order"),
        ("If-None-Match" = Option<String>, Header, description = "The tag the client has"),
    ),
    responses(
        (status = 200, description = "The order", body = OrderBody<'_>, headers(("ETag" = String, description = "Its version"))),
        (status = 304, description = "The client has it already"),
        (status = 400, description = "The id is no hyphenated UUID", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such order, or somebody else's", body = Envelope<'_>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn find(call: Call) -> Answer {
    measured(&call, "find", one(&call)).await
}

async fn one(call: &Call) -> Answer {
    let id = order_id(call)?;
    let viewer = call.viewer()?;
    let visit = call.state.entrances.reads.enter().await?;
    let found = call.state.queries.find(id, &viewer).await;
    visit.end(matches!(found, Ok(_) | Err(QueryError::NotFound)));
    let order = found.map_err(|error| match error {
        QueryError::NotFound => Problem::no_order(),
        other => other.into(),
    })?;
    if !conditions::passes(conditions::if_match(call.headers()).as_ref(), order.version) {
        return Err(Problem::new(Kind::PreconditionFailed, format!("the order is at version {}", order.version)));
    }
    if conditions::not_modified(call.headers(), order.version) {
        return Ok(HttpResponse::NotModified().insert_header((ETAG, conditions::etag(order.version))).finish());
    }
    Ok(tagged(StatusCode::OK, &order))
}

/// List the newest orders
///
/// At most 1,000 (`orders.list_max_rows`), newest first; page for more.
#[utoipa::path(get, path = "/orders", tag = "orders", operation_id = "listOrders", security(("bearer" = [])),
    params(("status" = Option<OrderStatus>, Query, description = "Only these; empty is no filter")),
    responses(
        (status = 200, description = "Newest first", body = Vec<OrderBody<'_>>),
        (status = 400, description = "No such status", body = Envelope<'_>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn list(call: Call) -> Answer {
    measured(&call, "list", newest(&call)).await
}

async fn newest(call: &Call) -> Answer {
    let status = status_filter(&call.query())?;
    let viewer = call.viewer()?;
    // Until the answer is written down: a thousand orders are a third of a megabyte.
    let visit = call.state.entrances.lists.enter().await?;
    let answer = ok(&OrderBody::all(&call.state.queries.list(&viewer, status).await?));
    visit.end(true);
    Ok(answer)
}
