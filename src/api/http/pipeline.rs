//! The request pipeline: checks each request in the contract's order, calls its handler, and completes the response.
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::{BodySize, MessageBody};
use actix_web::http::Method;
use actix_web::http::header::{ALLOW, AUTHORIZATION, CONTENT_LENGTH, TRANSFER_ENCODING};
use actix_web::web::{Bytes, Payload};
use actix_web::{HttpRequest, HttpResponse};
use futures::FutureExt;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument;

use crate::auth::identity::Identity;
use crate::auth::verifier::Verifier;
use crate::console::access;
use crate::error::{ErrorCode, Problem};
use crate::http::exchange::{HttpExchange, is_about_orders, is_refresh};
use crate::http::rate_limit;
use crate::request::body::{IncomingBody, UnreadBody, broken, discard_received, read_body};
use crate::request::context::RequestContext;
use crate::request::media_types;
use crate::request::response::{RouteResult, see_other};
use crate::request::route::{Access, BodyKind, Endpoint, HeaderPolicy, Resource, ResponseFormat};
use crate::state::HttpState;

/// Bytes of the request target.
const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Bytes of all request headers together.
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Added to the request timeout of commands: the actor applies the same limit and reports the outcome more precisely.
const COMMAND_GRACE: Duration = Duration::from_millis(250);

/// Handles a request to a known route.
pub(crate) async fn handle_request(
    state: Arc<HttpState>,
    resource: Arc<Resource>,
    request: HttpRequest,
    payload: Payload,
) -> HttpResponse {
    let mut body = IncomingBody::new(payload);
    let mut exchange = HttpExchange::begin(&state, &request, resource.template, resource.header_policy);
    let span = exchange.span();
    let processing = process(&state, &resource, &request, &mut body, &mut exchange);
    // actix would close the connection on a panic, and no supervisor restarts a handler.
    let result = match AssertUnwindSafe(processing).catch_unwind().instrument(span).await {
        Ok(result) => result,
        Err(_) => Err(Problem::unexpected("a handler panicked")),
    };
    complete(exchange, &request, result, body).await
}

/// Handles a request that matches no route. A browser at `/` is led to the console where there is one; other clients get 404.
pub(crate) async fn handle_unknown_route(
    state: Arc<HttpState>,
    has_console: bool,
    request: HttpRequest,
    payload: Payload,
) -> HttpResponse {
    let header_policy = if is_about_orders(request.path()) { HeaderPolicy::Private } else { HeaderPolicy::Plain };
    let exchange = HttpExchange::begin(&state, &request, "UNKNOWN", header_policy);
    let to_console = has_console && request.path() == "/" && media_types::prefers_html(request.headers());
    let result = match check_size(&request) {
        Err(problem) => Err(problem),
        Ok(()) if to_console && *request.method() == Method::GET => Ok(see_other("/console")),
        Ok(()) => Err(Problem::not_found("no such route")),
    };
    complete(exchange, &request, result, IncomingBody::new(payload)).await
}

/// Completes the response, and decides whether its connection can serve another request.
async fn complete(
    exchange: HttpExchange,
    request: &HttpRequest,
    result: RouteResult,
    body: IncomingBody,
) -> HttpResponse {
    let unread = discard_received(body).await;
    let has_length = |response: &HttpResponse| matches!(response.body().size(), BodySize::Sized(1..));
    let result = match (&unread, result) {
        // The client sees the end of a response before that of the connection only if the response has a length and content.
        (Some(UnreadBody::Broken), Ok(response)) if !has_length(&response) => Err(broken()),
        (_, result) => result,
    };
    exchange.finish(request, result, unread)
}

async fn process(
    state: &Arc<HttpState>,
    resource: &Resource,
    request: &HttpRequest,
    incoming: &mut IncomingBody,
    exchange: &mut HttpExchange,
) -> RouteResult {
    check_size(request)?;
    if request.method() == Method::OPTIONS {
        return Ok(HttpResponse::NoContent().insert_header((ALLOW, resource.allow())).finish());
    }
    let endpoint = resource.endpoint(request.method()).ok_or_else(|| Problem::method_not_allowed(&resource.allow()))?;
    let deadline = Instant::now() + state.options.request_timeout;
    let mut session = None;
    let caller = if endpoint.access == Access::Console && !request.headers().contains_key(AUTHORIZATION) {
        session = access::session(state, request, exchange.now);
        let Some(session) = &session else { return Ok(access::redirect_to_login(request)) };
        exchange.is_routine |= is_refresh(request);
        Some(Arc::clone(&session.identity))
    } else {
        let late =
            |_| Err(Problem::dependency_unavailable("the token could not be verified within the request timeout"));
        timeout_at(deadline, authorize(state, endpoint, request, exchange)).await.unwrap_or_else(late)?
    };
    if endpoint.rate_limited {
        exchange.admitted = rate_limit::admit(state, resource, request, caller.as_deref()).await;
        rate_limit::enforce(state, exchange.admitted.as_ref())?;
    }
    // The body has a time limit of its own.
    let time_limit = deadline.saturating_duration_since(Instant::now());
    let body = read_request_body(state, endpoint, request, incoming).await?;
    if let (BodyKind::Form, Some(session)) = (endpoint.body_kind, &session) {
        access::check_csrf_token(session, &body)?;
    }
    let (request_id, span) = (exchange.request_id(), exchange.trace_span.context());
    let (handler_state, request) = (Arc::clone(state), request.clone());
    let context = RequestContext {
        state: handler_state,
        request,
        request_id,
        span,
        caller,
        session,
        body,
        time_limit,
        deadline: Instant::now() + time_limit,
    };
    call_handler(endpoint, context).await
}

fn check_size(request: &HttpRequest) -> Result<(), Problem> {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if target > TARGET_BYTES_MAX {
        return Err(Problem::new(ErrorCode::UriTooLong, "the target must have at most 8 KiB"));
    }
    // The size on the wire: each header has a colon, a space and a line end.
    let headers: usize = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if headers > HEADER_BYTES_MAX {
        return Err(Problem::new(ErrorCode::HeadersTooLarge, "the headers must have at most 64 KiB"));
    }
    Ok(())
}

async fn authorize(
    state: &HttpState,
    endpoint: &Endpoint,
    request: &HttpRequest,
    exchange: &HttpExchange,
) -> Result<Option<Arc<Identity>>, Problem> {
    if endpoint.access == Access::Open {
        return Ok(None);
    }
    let caller = state.auth.authenticate_headers(request.headers(), exchange.now).await;
    if endpoint.access == Access::OptionalToken {
        // An invalid token counts as no token.
        return Ok(caller.ok().flatten());
    }
    let caller = caller?.ok_or_else(Verifier::missing_token)?;
    let allowed = match endpoint.access {
        Access::Open | Access::OptionalToken => true,
        Access::UserOrAdmin => caller.user || caller.admin,
        Access::PublisherOrAdmin => caller.publisher || caller.admin,
        Access::ConsumerOrAdmin => caller.consumer || caller.admin,
        Access::Admin | Access::Console => caller.admin,
    };
    if allowed { Ok(Some(caller)) } else { Err(Problem::forbidden()) }
}

async fn read_request_body(
    state: &HttpState,
    endpoint: &Endpoint,
    request: &HttpRequest,
    incoming: &mut IncomingBody,
) -> Result<Bytes, Problem> {
    if endpoint.format == ResponseFormat::Json && !media_types::accepts_json(request.headers()) {
        let message = "the response is application/json, which Accept excludes";
        return Err(Problem::new(ErrorCode::NotAcceptable, message));
    }
    let expected = match endpoint.body_kind {
        BodyKind::Nothing => false,
        BodyKind::Json | BodyKind::Any | BodyKind::Form => true,
        BodyKind::OptionalJson => has_body(request),
    };
    if !expected {
        return Ok(Bytes::new());
    }
    if endpoint.body_kind == BodyKind::Form {
        if !media_types::is_form(request.headers()) {
            let message = "the body must be application/x-www-form-urlencoded without a content encoding";
            return Err(Problem::new(ErrorCode::UnsupportedMediaType, message));
        }
    } else if endpoint.body_kind != BodyKind::Any && !media_types::is_json(request.headers()) {
        let message = "the body must be application/json without a content encoding";
        return Err(Problem::new(ErrorCode::UnsupportedMediaType, message));
    }
    read_body(incoming, request, &state.options, || state.operations.health().draining).await
}

fn has_body(request: &HttpRequest) -> bool {
    let length = request.headers().get(CONTENT_LENGTH);
    length.is_some_and(|length| length != "0") || request.headers().contains_key(TRANSFER_ENCODING)
}

/// Calls the handler, unless the checks have left it no time: then the outcome of a command would be unknown.
async fn call_handler(endpoint: &Endpoint, context: RequestContext) -> RouteResult {
    let limit = context.time_limit;
    if limit.is_zero() {
        return Err(Problem::dependency_unavailable("the checks before the request took the whole request timeout"));
    }
    if endpoint.is_mutation() {
        // A task of its own: actix drops the future of a request when its client disconnects, while what the request changes goes on. Its permit, its
        // metrics and its log lines must last until the outcome is known.
        let handler = timeout(limit + COMMAND_GRACE, (endpoint.handle)(context));
        return match actix_web::rt::spawn(handler.in_current_span()).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Problem::unexpected("no result within the request timeout")),
            Err(_) => Err(Problem::unexpected("a handler panicked")),
        };
    }
    let unavailable = |_| Err(Problem::dependency_unavailable("no result within the request timeout"));
    timeout(limit, (endpoint.handle)(context)).await.unwrap_or_else(unavailable)
}
