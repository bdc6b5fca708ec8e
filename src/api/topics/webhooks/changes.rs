//! Creates, changes and deletes webhooks, and replaces their secrets.
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderValue, LOCATION};
use actix_web::{HttpResponse, HttpResponseBuilder};
use app::consume::webhooks::{NAMES_MAX, WebhookStart, WebhookValues};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::admin::operator_body;
use crate::error::{Problem, ProblemBody};
use crate::request::context::RequestContext;
use crate::request::json::{self, JsonMember, JsonValue};
use crate::request::query::reject_unknown_names;
use crate::request::response::{RouteResult, json_response, ok};
use crate::topics::webhooks::bodies::{WebhookBody, webhook_id};
use crate::topics::webhooks::limits::{
    DESCRIPTION_MAX, URL_MAX, illegal_names, illegal_text, legal_names, legal_text, log_change,
};
use crate::topics::webhooks::lookups::webhooks;

const CHANGEABLE: [&str; 5] = ["url", "types", "ordered", "active", "description"];

/// The endpoint of a subscription, and the events to deliver.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewWebhook)]
pub(crate) struct NewWebhookBody<'a> {
    /// An https URL without user name and password. Addresses of the public internet only, unless the service permits others.
    #[serde(borrow, default)]
    #[schema(required = true, value_type = String, max_length = 2048, example = "https://example.org/hooks/orders")]
    url: JsonMember<'a>,
    /// Full names of existing topics.
    #[serde(borrow, default)]
    #[schema(required = true, value_type = Vec<String>, min_items = 1, max_items = 32, example = json!(["order.events"]))]
    topics: JsonMember<'a>,
    /// Types that are delivered; all by default.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = Vec<String>, max_items = 32, example = json!(["ORDER_CREATED"]))]
    types: JsonMember<'a>,
    /// Whether the events of a key are delivered in their order, also when one of them is retried; true by default.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = bool)]
    ordered: JsonMember<'a>,
    /// Whether events are delivered; true by default.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = bool)]
    active: JsonMember<'a>,
    #[serde(borrow, default)]
    #[schema(required = false, value_type = String, max_length = 1000)]
    description: JsonMember<'a>,
    /// The signing key; made by the service unless given: `whsec_` and 24 to 64 bytes in base64.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = String, pattern = "^whsec_[A-Za-z0-9+/]{32,88}={0,2}$")]
    secret: JsonMember<'a>,
    /// `end`: events that are published from now on, the default. `beginning`: all that the topics keep.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = String, pattern = "^(end|beginning)$", example = "end")]
    from: JsonMember<'a>,
}

/// The values that change; others stay as they are.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChangeWebhook)]
#[expect(dead_code, reason = "documents the members that are read")]
pub(crate) struct ChangeWebhookBody {
    #[schema(required = false, max_length = 2048)]
    url: String,
    #[schema(required = false, max_items = 32)]
    types: Vec<String>,
    #[schema(required = false)]
    ordered: bool,
    #[schema(required = false)]
    active: bool,
    #[schema(required = false, max_length = 1000)]
    description: String,
}

/// A new signing key.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RotateSecret)]
pub(crate) struct RotateBody<'a> {
    /// Made by the service unless given: `whsec_` and 24 to 64 bytes in base64.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = String, pattern = "^whsec_[A-Za-z0-9+/]{32,88}={0,2}$")]
    secret: JsonMember<'a>,
}

/// Create a webhook
///
/// Events of the topics are sent to the URL by POST and signed as Standard Webhooks defines. The secret is returned only in this response.
#[utoipa::path(post, path = "/webhooks", tag = "webhooks", operation_id = "createWebhook", security(("bearer" = [])),
    request_body(content = NewWebhookBody<'_>, content_type = "application/json",
        example = json!({"url": "https://example.org/hooks/orders", "topics": ["order.events"]})),
    responses(
        (status = 201, description = "The webhook with its secret", body = WebhookBody<'_>, headers(("Location" = String, description = "The webhook's path"))),
        (status = 400, description = "A value is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 409, description = "There are as many webhooks as permitted", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 501, description = "Webhooks are switched off", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn create(context: RequestContext) -> RouteResult {
    let webhooks = webhooks(&context)?;
    let names = json::member_names(&context.body)?;
    let known = [&CHANGEABLE[..], &["topics", "secret", "from"]].concat();
    reject_unknown_names(names.iter().map(String::as_str), &known)?;
    let body: NewWebhookBody<'_> = json::object(&context.body)?;
    let start = match text(body.from, "from", 16)?.as_deref() {
        None | Some("end") => WebhookStart::End,
        Some("beginning") => WebhookStart::Beginning,
        Some(_) => return Err(Problem::field("from", "must be end or beginning")),
    };
    let secret = text(body.secret, "secret", 128)?;
    let topics = texts(body.topics, "topics")?.ok_or_else(|| Problem::field("topics", "is required"))?;
    let webhook = webhooks.create(topics, values(&body)?, start, secret, rand::random()).await?;
    log_change(&context, "create", webhook.id)?;
    let mut response = json_response(StatusCode::CREATED, &WebhookBody::with_secret(&webhook));
    if let Ok(location) = HeaderValue::from_str(&format!("/webhooks/{}", webhook.id)) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// Change a webhook
///
/// The topics stay: create another webhook for others. Activating a webhook again delivers the events that have waited.
#[utoipa::path(patch, path = "/webhooks/{id}", tag = "webhooks", operation_id = "changeWebhook", security(("bearer" = [])),
    params(("id" = String, Path, description = "The webhook")),
    request_body(content = ChangeWebhookBody, content_type = "application/json", example = json!({"active": true})),
    responses(
        (status = 200, description = "The changed webhook", body = WebhookBody<'_>),
        (status = 400, description = "A value is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such webhook", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 409, description = "The webhook was changed concurrently", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 501, description = "Webhooks are switched off", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn change(context: RequestContext) -> RouteResult {
    let (webhooks, id) = (webhooks(&context)?, webhook_id(&context)?);
    let names = json::member_names(&context.body)?;
    reject_unknown_names(names.iter().map(String::as_str), &CHANGEABLE)?;
    let webhook = webhooks.change(id, values(&json::object(&context.body)?)?).await?;
    log_change(&context, "change", id)?;
    Ok(ok(&WebhookBody::new(&webhook)))
}

/// Delete a webhook
///
/// Its delivery log is deleted too; its dead letters stay in their topic.
#[utoipa::path(delete, path = "/webhooks/{id}", tag = "webhooks", operation_id = "deleteWebhook", security(("bearer" = [])),
    params(("id" = String, Path, description = "The webhook")),
    responses(
        (status = 204, description = "The webhook is deleted"),
        (status = 404, description = "No such webhook", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 501, description = "Webhooks are switched off", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn delete(context: RequestContext) -> RouteResult {
    let (webhooks, id) = (webhooks(&context)?, webhook_id(&context)?);
    webhooks.delete(id).await?;
    log_change(&context, "delete", id)?;
    Ok(no_content())
}

/// Replace a webhook's secret
///
/// Requests are signed with both until `webhooks.secret_overlap` has passed. The secret is returned only in this response.
#[utoipa::path(post, path = "/webhooks/{id}/secret", tag = "webhooks", operation_id = "rotateWebhookSecret", security(("bearer" = [])),
    params(("id" = String, Path, description = "The webhook")),
    request_body(content = Option<RotateBody<'_>>, content_type = "application/json"),
    responses(
        (status = 200, description = "The webhook with its new secret", body = WebhookBody<'_>),
        (status = 400, description = "The secret is not valid", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such webhook", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 409, description = "The webhook was changed concurrently", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 501, description = "Webhooks are switched off", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn rotate(context: RequestContext) -> RouteResult {
    let (webhooks, id) = (webhooks(&context)?, webhook_id(&context)?);
    let body: RotateBody<'_> = operator_body::read(&context)?;
    let secret = text(body.secret, "secret", 128)?;
    let webhook = webhooks.rotate(id, secret, rand::random()).await?;
    log_change(&context, "rotate", id)?;
    Ok(ok(&WebhookBody::with_secret(&webhook)))
}

fn values(body: &NewWebhookBody<'_>) -> Result<WebhookValues, Problem> {
    Ok(WebhookValues {
        version: None,
        url: text(body.url, "url", URL_MAX)?,
        types: texts(body.types, "types")?,
        ordered: boolean(body.ordered, "ordered")?,
        active: boolean(body.active, "active")?,
        description: text(body.description, "description", DESCRIPTION_MAX)?,
    })
}

fn text(member: JsonMember<'_>, field: &'static str, max: usize) -> Result<Option<String>, Problem> {
    match member.value() {
        None => Ok(None),
        Some(JsonValue::Text(text)) => legal_text(field, &text, max).map(Some),
        Some(_) => Err(illegal_text(field, max)),
    }
}

fn texts(member: JsonMember<'_>, field: &'static str) -> Result<Option<Vec<String>>, Problem> {
    let elements = match member.value() {
        None => return Ok(None),
        Some(JsonValue::Array(elements)) if elements.len() <= NAMES_MAX => elements,
        Some(_) => return Err(illegal_names(field)),
    };
    let name = |element: JsonMember<'_>| match element.value() {
        Some(JsonValue::Text(text)) => Some(text.into_owned()),
        _ => None,
    };
    let names = elements.into_iter().map(name).collect::<Option<Vec<String>>>();
    names.ok_or_else(|| illegal_names(field)).and_then(|names| legal_names(field, names)).map(Some)
}

fn boolean(member: JsonMember<'_>, field: &'static str) -> Result<Option<bool>, Problem> {
    match member.value() {
        None => Ok(None),
        Some(JsonValue::Bool(value)) => Ok(Some(value)),
        Some(_) => Err(Problem::field(field, "must be true or false")),
    }
}

fn no_content() -> HttpResponse {
    HttpResponseBuilder::new(StatusCode::NO_CONTENT).finish()
}
