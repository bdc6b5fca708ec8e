//! `GET /webhooks` and `GET /webhooks/{id}`.
use std::sync::Arc;

use app::consume::webhooks::Webhooks;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{Problem, ProblemBody};
use crate::request::context::RequestContext;
use crate::request::response::{RouteResult, ok};
use crate::topics::webhooks::bodies::{WebhookBody, webhook_id};

/// All subscriptions in the order of their creation.
#[derive(Serialize, ToSchema)]
#[schema(as = Webhooks)]
struct WebhooksBody<'a> {
    webhooks: Vec<WebhookBody<'a>>,
}

/// List the webhooks
#[utoipa::path(get, path = "/webhooks", tag = "webhooks", operation_id = "listWebhooks", security(("bearer" = [])),
    responses(
        (status = 200, description = "Every webhook with its latest delivery, in the order of their creation", body = WebhooksBody<'_>),
        (status = 501, description = "Webhooks are switched off", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn list(context: RequestContext) -> RouteResult {
    let found = webhooks(&context)?.list().await?;
    let bodies = found.iter().map(|(webhook, last)| WebhookBody::with_last_delivery(webhook, last.as_ref()));
    Ok(ok(&WebhooksBody { webhooks: bodies.collect() }))
}

/// Read a webhook
#[utoipa::path(get, path = "/webhooks/{id}", tag = "webhooks", operation_id = "findWebhook", security(("bearer" = [])),
    params(("id" = String, Path, description = "The webhook")),
    responses(
        (status = 200, description = "The webhook", body = WebhookBody<'_>),
        (status = 404, description = "No such webhook", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 501, description = "Webhooks are switched off", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn find(context: RequestContext) -> RouteResult {
    let webhook = webhooks(&context)?.find(webhook_id(&context)?).await?;
    Ok(ok(&WebhookBody::new(&webhook)))
}

/// The use cases of webhooks, where they are enabled.
///
/// # Errors
/// 501 where webhooks are switched off, or without a broker.
pub(crate) fn webhooks(context: &RequestContext) -> Result<Arc<Webhooks>, Problem> {
    context.state.webhooks.clone().ok_or_else(Problem::no_webhooks)
}
