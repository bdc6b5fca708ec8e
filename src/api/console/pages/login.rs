//! Log-in and log-out. The token is verified and forgotten; the session remains.
use actix_web::http::header::{HeaderValue, SET_COOKIE};
use maud::html;
use secrecy::ExposeSecret;

use crate::admin::live_events::log_operator_action;
use crate::console::access::{COOKIE_NAME, TICKET_NAME, cookie_attributes};
use crate::console::login_form::{login_form, next_page};
use crate::console::{form, layout};
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::headers::single_value;
use crate::request::response::{RouteResult, see_other};

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let main = html! {
        p { "Paste an administrator's token. It is verified and not stored. The session ends when the token expires, \
             or after 15 minutes without a request." }
        (login_form(&context.request))
        p { "If the service uses a shared secret, create a token with " code { "posthaste token mint --sub you --role ADMIN" } }
    };
    Ok(layout::show_bare("Log in", &main))
}

/// A form of another site is refused: it could log an operator in as another user, and the actions would be recorded under that name.
pub(crate) async fn log_in(context: RequestContext) -> RouteResult {
    if single_value(context.headers(), "sec-fetch-site") == Some("cross-site") {
        return Err(Problem::forbidden());
    }
    let form = form::read(&context.body)?;
    let token = form.non_empty("token")?.ok_or_else(|| Problem::field("token", "must be given"))?;
    let now = context.state.operations.now();
    let identity = context.state.auth.authenticate(token.trim(), now).await?;
    if !identity.admin {
        return Err(Problem::forbidden());
    }
    log_operator_action(&context.state, identity.subject.as_str(), "log in", "console", "");
    let id = context.state.sessions.begin(&identity, now);
    let mut response = see_other(&next_page(&context.request));
    let value = format!("{}; {}", id.expose_secret(), cookie_attributes(&context));
    response.headers_mut().insert(SET_COOKIE, cookie(COOKIE_NAME, &value)?);
    Ok(response)
}

pub(crate) async fn log_out(context: RequestContext) -> RouteResult {
    if let Some(session) = &context.session {
        context.state.sessions.end(session);
    }
    let mut response = see_other("/console/login");
    for name in [COOKIE_NAME, TICKET_NAME] {
        let expired = cookie(name, "; HttpOnly; SameSite=Strict; Path=/console; Max-Age=0")?;
        response.headers_mut().append(SET_COOKIE, expired);
    }
    Ok(response)
}

fn cookie(name: &str, value: &str) -> Result<HeaderValue, Problem> {
    HeaderValue::from_str(&format!("{name}={value}")).map_err(|error| Problem::unexpected(error.to_string()))
}
