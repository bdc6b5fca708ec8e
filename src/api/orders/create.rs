//! `POST /orders`.
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue, LOCATION};
use app::commands::create_order::fingerprint;
use app::dispatch::{CreateOrder, IdempotencyKey};

use crate::error::{Problem, ProblemBody};
use crate::orders::bodies::{CreateBody, OrderBody};
use crate::orders::new_items::new_items;
use crate::orders::operation::{measured, order_response};
use crate::request::context::RequestContext;
use crate::request::idempotency_key::idempotency_key;
use crate::request::response::RouteResult;

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Create a new order
///
/// A request that repeats its idempotency key creates nothing; the response contains the order's current state.
#[utoipa::path(post, path = "/orders", tag = "orders", operation_id = "createOrder", security(("bearer" = [])),
    params(
        ("Idempotency-Key" = Option<String>, Header, max_length = 128,
         description = "Identifies this order across retries, quoted or bare; `X-Idempotency-Key` is the same"),
        ("X-Idempotency-Key" = Option<String>, Header, max_length = 128, description = "As `Idempotency-Key`; both must be equal"),
        ("X-Request-Id" = Option<String>, Header, description = "Echoed and logged when it matches `[A-Za-z0-9._-]{1,128}`, else replaced"),
        ("traceparent" = Option<String>, Header, description = "W3C trace context, passed on with the event"),
        ("tracestate" = Option<String>, Header, description = "Passed on with `traceparent`"),
    ),
    request_body(content = CreateBody<'_>, content_type = "application/json",
        example = json!({"items": [{"productName": "keyboard", "quantity": 2, "price": "12.99"}]})),
    responses(
        (status = 201, description = "Created, now or earlier with this key", body = OrderBody<'_>, headers(
            ("Location" = String, description = "The path of the order"),
            ("ETag" = String, description = "The version of the order"),
            ("Idempotent-Replayed" = bool, description = "Present when the order was created earlier"))),
        (status = 400, description = "Not a valid order or key", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 409, description = "A request with this key is still running", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 422, description = "The key was used with another body", body = ProblemBody<'_>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn create(context: RequestContext) -> RouteResult {
    measured(&context, "create", create_order(&context)).await
}

async fn create_order(context: &RequestContext) -> RouteResult {
    let items = new_items(&context.body)?;
    let key = idempotency_key(context.headers())?;
    let idempotency_key = key.map(|key| IdempotencyKey { key, fingerprint: fingerprint(&items) });
    let subject = context.identity()?.subject.clone();
    let (trace, span, request_id) = (context.trace(), context.parent_span(), Some(Arc::clone(&context.request_id)));
    let command = CreateOrder { subject, items, idempotency_key, trace, span, request_id };
    let permit = context.state.concurrency_limiters.changes.acquire().await?;
    let created = context.state.dispatch.create(command, context.time_left()).await;
    // A replay does not wait for the store, so its duration must not be measured.
    permit.release(matches!(&created, Ok(created) if !created.replayed));
    let created = created.map_err(Problem::from)?;
    let mut response = order_response(StatusCode::CREATED, &created.order);
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::from_str(&format!("/orders/{}", created.order.id)) {
        headers.insert(LOCATION, location);
    }
    if created.replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
        context.state.metrics.orders_idempotency_hit_count.inc();
    } else {
        context.state.metrics.orders_created_count.inc();
    }
    Ok(response)
}
