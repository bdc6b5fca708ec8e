//! The common part of all order operations: their metrics, and the response that carries an order.
use std::time::Instant;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::ETAG;
use domain::Order;

use crate::orders::bodies::OrderBody;
use crate::request::context::RequestContext;
use crate::request::preconditions::etag;
use crate::request::response::{RouteResult, json_response};

/// Records the duration of an operation and counts its failures.
pub(crate) async fn measured(
    context: &RequestContext,
    operation: &'static str,
    work: impl Future<Output = RouteResult>,
) -> RouteResult {
    let started = Instant::now();
    let result = work.await;
    let metrics = &context.state.metrics;
    metrics.orders_operation_duration.with([operation]).record(started.elapsed());
    if result.is_err() {
        metrics.orders_operation_failure_count.with([operation]).inc();
    }
    result
}

/// The order as JSON with its `ETag`.
pub(crate) fn order_response(status: StatusCode, order: &Order) -> HttpResponse {
    let mut response = json_response(status, &OrderBody::new(order));
    response.headers_mut().insert(ETAG, etag(order.version));
    response
}
