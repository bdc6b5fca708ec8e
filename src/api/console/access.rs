//! Access to the console: the session cookie, the CSRF token of forms, and the redirect to the log-in page.
use actix_web::http::Method;
use actix_web::http::header::{COOKIE, HeaderMap, HeaderValue};
use actix_web::{HttpRequest, HttpResponse};
use domain::Timestamp;

use crate::auth::identity::Identity;
use crate::console::form;
use crate::console::links::{is_console_page, link};
use crate::console::session::ConsoleSession;
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::response::see_other;
use crate::state::HttpState;

/// The name of the session cookie.
pub(crate) const COOKIE_NAME: &str = "posthaste_console";

/// The name of the cookie with the session's ticket.
pub(crate) const TICKET_NAME: &str = "posthaste_console_ticket";

/// The session named by the request's cookie, if it has not ended; one of an earlier process continues from its ticket.
pub(crate) fn session(state: &HttpState, request: &HttpRequest, now: Timestamp) -> Option<ConsoleSession> {
    let id = cookie(request.headers(), COOKIE_NAME)?;
    let is_valid = |identity: &Identity| state.auth.is_within_validity(identity, now);
    state.sessions.find(id, now, is_valid).or_else(|| {
        let ticket = cookie(request.headers(), TICKET_NAME)?;
        state.sessions.resume(id, ticket, now, is_valid)
    })
}

/// Redirects to the log-in page, which leads back to the requested page.
pub(crate) fn redirect_to_login(request: &HttpRequest) -> HttpResponse {
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    let may_return = matches!(*request.method(), Method::GET | Method::HEAD) && is_console_page(target);
    let next = if may_return { target } else { "" };
    see_other(&link("/console/login", &[("next", next)]))
}

/// Checks the CSRF token of a form.
///
/// # Errors
/// 403 when the token is missing or belongs to another session.
pub(crate) fn check_csrf_token(session: &ConsoleSession, body: &[u8]) -> Result<(), Problem> {
    let form = form::read(body)?;
    let token = form.non_empty(form::CSRF_FIELD).ok().flatten();
    if token.is_some_and(|token| session.has_csrf_token(token)) { Ok(()) } else { Err(Problem::csrf_mismatch()) }
}

/// The `Set-Cookie` value with a new ticket, when the session needs one.
pub(crate) fn due_ticket_cookie(context: &RequestContext, session: &ConsoleSession) -> Option<HeaderValue> {
    let state = &context.state;
    let ticket = state.sessions.due_ticket(session, state.operations.now())?;
    HeaderValue::from_str(&format!("{TICKET_NAME}={ticket}; {}", cookie_attributes(context))).ok()
}

/// The attributes of the console's cookies; `Secure` only where the browser uses https.
pub(crate) fn cookie_attributes(context: &RequestContext) -> String {
    let is_https = context.state.options.trusted_proxies.is_https(&context.request);
    format!("HttpOnly; SameSite=Strict; Path=/console{}", if is_https { "; Secure" } else { "" })
}

fn cookie<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let values = headers.get_all(COOKIE).filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == wanted).map(|(_, value)| value).next()
}
