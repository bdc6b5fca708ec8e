//! `GET /orders/{id}` and `GET /orders`.
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::ETAG;
use app::error::QueryError;

use crate::error::{ErrorCode, Problem, ProblemBody};
use crate::openapi::schemas::OrderStatusFilter;
use crate::orders::bodies::OrderBody;
use crate::orders::list_body::ListBody;
use crate::orders::list_response::list_response;
use crate::orders::operation::{measured, order_response};
use crate::orders::parameters::{order_id, status_filter};
use crate::request::context::RequestContext;
use crate::request::preconditions;
use crate::request::response::RouteResult;

/// Read one order by id
#[utoipa::path(get, path = "/orders/{id}", tag = "orders", operation_id = "findOrder", security(("bearer" = [])),
    params(
        ("id" = String, Path, format = "uuid", description = "The id of the order"),
        ("If-None-Match" = Option<String>, Header, description = "The tag that the client has cached"),
    ),
    responses(
        (status = 200, description = "The order", body = OrderBody<'_>, headers(("ETag" = String, description = "The version of the order"))),
        (status = 304, description = "The client's copy is current"),
        (status = 400, description = "The id is not a hyphenated UUID", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such order, or another caller's", body = ProblemBody<'_>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn find(context: RequestContext) -> RouteResult {
    measured(&context, "find", find_order(&context)).await
}

async fn find_order(context: &RequestContext) -> RouteResult {
    let id = order_id(context)?;
    let viewer = context.viewer()?;
    let permit = context.state.concurrency_limiters.reads.acquire().await?;
    let found = context.state.queries.find(id, &viewer).await;
    permit.release(matches!(found, Ok(_) | Err(QueryError::NotFound)));
    let order = found.map_err(|error| match error {
        QueryError::NotFound => Problem::order_not_found(),
        other => other.into(),
    })?;
    if !preconditions::if_match_allows(preconditions::if_match(context.headers()).as_ref(), order.version) {
        let message = format!("the order is at version {}", order.version);
        return Err(Problem::new(ErrorCode::PreconditionFailed, message));
    }
    if preconditions::not_modified(context.headers(), order.version) {
        return Ok(HttpResponse::NotModified().insert_header((ETAG, preconditions::etag(order.version))).finish());
    }
    Ok(order_response(StatusCode::OK, &order))
}

/// List the newest orders
///
/// At most 1,000 (`orders.list_max_rows`), newest first; use `/orders/page` for more. A long list arrives in chunks, without a length.
#[utoipa::path(get, path = "/orders", tag = "orders", operation_id = "listOrders", security(("bearer" = [])),
    params(("status" = inline(Option<OrderStatusFilter>), Query, description = "Only orders with this status; empty means no filter")),
    responses(
        (status = 200, description = "Newest first", body = Vec<OrderBody<'_>>),
        (status = 400, description = "No such status", body = ProblemBody<'_>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn list(context: RequestContext) -> RouteResult {
    measured(&context, "list", list_orders(&context)).await
}

async fn list_orders(context: &RequestContext) -> RouteResult {
    let status = status_filter(&context.query())?;
    let viewer = context.viewer()?;
    // Held until the first orders are read. The pace of a long list is its reader's, which says nothing about the store.
    let permit = context.state.concurrency_limiters.lists.acquire().await?;
    let list = ListBody::array(context.state.queries.list(&viewer, status));
    let response = list_response(context, "list", list).await?;
    permit.release(true);
    Ok(response)
}
