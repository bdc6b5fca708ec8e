//! `POST /orders`.
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue, LOCATION};
use app::commands::create_order::fingerprint;
use app::dispatch::{CreateOrder, KeyedIntent};

use super::shape::{CreateBody, OrderBody};
use super::{draft, measured, tagged};
use crate::call::Call;
use crate::error::{Envelope, Problem};
use crate::route::Answer;
use crate::{context, idempotency};

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Place an order
///
/// With an idempotency key, once: a repetition answers with the order as it is now.
#[utoipa::path(post, path = "/orders", tag = "orders", operation_id = "createOrder", security(("bearer" = [])),
    params(
        ("Idempotency-Key" = Option<String>, Header, max_length = 128,
         description = "The client's name for this intent, quoted or bare; `X-Idempotency-Key` is the same"),
        ("X-Idempotency-Key" = Option<String>, Header, max_length = 128, description = "As `Idempotency-Key`; both must agree"),
        ("X-Request-Id" = Option<String>, Header, pattern = "^[A-Za-z0-9._-]{1,128}$", description = "Echoed and logged"),
        ("traceparent" = Option<String>, Header, description = "W3C trace context, passed on with the event"),
        ("tracestate" = Option<String>, Header, description = "Passed on with `traceparent`"),
    ),
    request_body(content = CreateBody, content_type = "application/json",
        example = json!({"items": [{"productName": "keyboard", "quantity": 2, "price": "12.99"}]})),
    responses(
        (status = 201, description = "Placed, or placed before under this key", body = OrderBody<'_>, headers(
            ("Location" = String, description = "Where the order stands"),
            ("ETag" = String, description = "Its version"),
            ("Idempotent-Replayed" = bool, description = "There when it had been placed before"))),
        (status = 400, description = "Not a valid order or key", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 409, description = "A request with this key still runs", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 422, description = "The key was used with another body", body = Envelope<'_>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn create(call: Call) -> Answer {
    measured(&call, "create", place(&call)).await
}

async fn place(call: &Call) -> Answer {
    let items = draft::items(&call.body)?;
    let key = idempotency::key(call.headers())?;
    let intent = key.map(|key| KeyedIntent { key, fingerprint: fingerprint(&items) });
    let subject = call.identity()?.subject.clone();
    let command = CreateOrder { subject, items, intent, trace: context::trace(call.headers()) };
    let visit = call.state.entrances.changes.enter().await?;
    let created = call.state.dispatch.create(command).await;
    // A repeated create is answered from what is known: it says nothing about the store's queue.
    visit.end(matches!(&created, Ok(created) if !created.replayed));
    let created = created.map_err(Problem::from)?;
    let mut answer = tagged(StatusCode::CREATED, &created.order);
    let headers = answer.headers_mut();
    if let Ok(location) = HeaderValue::from_str(&format!("/orders/{}", created.order.id)) {
        headers.insert(LOCATION, location);
    }
    if created.replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
        call.state.metrics.orders_idempotency_hit_count.inc();
    } else {
        call.state.metrics.orders_created_count.inc();
    }
    Ok(answer)
}
