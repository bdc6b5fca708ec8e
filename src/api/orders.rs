//! `/orders`: place, read, list, page, move on, withdraw.
pub(crate) mod change;
pub(crate) mod create;
pub(crate) mod draft;
pub(crate) mod pages;
pub(crate) mod read;
pub(crate) mod shape;

use std::time::Instant;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::ETAG;
use domain::{Order, OrderId, Status};

use crate::call::{Call, json};
use crate::conditions::etag;
use crate::error::Problem;
use crate::query::Query;
use crate::route::{Answer, Endpoint, Resource, Takes, handler};
use shape::OrderBody;

pub(crate) fn resources() -> Vec<Resource> {
    vec![
        Resource::at("/orders").private().on(Endpoint::get(handler!(read::list)).member()).on(Endpoint::post(
            handler!(create::create),
        )
        .member()
        .takes(Takes::Json)),
        Resource::at("/orders/page").private().on(Endpoint::get(handler!(pages::page)).member()),
        Resource::at("/orders/{id}").private().on(Endpoint::get(handler!(read::find)).member()),
        Resource::at("/orders/{id}/status")
            .private()
            .on(Endpoint::patch(handler!(change::change_status)).admin().takes(Takes::Json)),
        Resource::at("/orders/{id}/cancel").private().on(Endpoint::patch(handler!(change::cancel)).member()),
    ]
}

/// An order with its tag.
fn tagged(status: StatusCode, order: &Order) -> HttpResponse {
    let mut answer = json(status, &OrderBody::of(order));
    answer.headers_mut().insert(ETAG, etag(order.version));
    answer
}

fn order_id(call: &Call) -> Result<OrderId, Problem> {
    OrderId::parse(call.part("id")).ok_or_else(|| Problem::field("id", "must be a hyphenated UUID"))
}

fn status_filter(query: &Query<'_>) -> Result<Option<Status>, Problem> {
    let Some(name) = query.filled("status")? else { return Ok(None) };
    Status::parse(name).map(Some).ok_or_else(|| Problem::field("status", shape::STATUS_MESSAGE))
}

/// Times an operation and counts its failures.
async fn measured(call: &Call, operation: &'static str, work: impl Future<Output = Answer>) -> Answer {
    let began = Instant::now();
    let answer = work.await;
    let metrics = &call.state.metrics;
    metrics.orders_operation_duration.with([operation]).record(began.elapsed());
    if answer.is_err() {
        metrics.orders_operation_failure_count.with([operation]).inc();
    }
    answer
}
