//! In and out: a token comes in by a form and is forgotten; what stays is a session.
use actix_web::HttpRequest;
use actix_web::http::header::{HeaderValue, SET_COOKIE};
use maud::{Markup, html};

use super::guard::COOKIE_NAME;
use super::links::{is_within, link};
use super::{form as fields, page};
use crate::call::Call;
use crate::error::Problem;
use crate::query::Query;
use crate::route::Answer;

pub(super) async fn show(call: Call) -> Answer {
    let main = html! {
        p { "Paste the token of an administrator. It is checked and forgotten; a session lasts as long as the token, \
             and no longer than 15 minutes without a request." }
        (form(&call.request))
        p { "A service that signs its tokens with a secret mints one: " code { "posthaste token mint --sub you --role ADMIN" } }
    };
    Ok(page::show_bare("Log in", &main))
}

/// The form, which leads to where one wanted to go.
pub(super) fn form(request: &HttpRequest) -> Markup {
    html! {
        form method="post" action=(link("/console/login", &[("next", &next(request))])) class="stack" {
            label { "Token" input type="password" name="token" required autocomplete="off" spellcheck="false"; }
            button { "Log in" }
        }
    }
}

pub(super) async fn begin(call: Call) -> Answer {
    let form = fields::read(&call.body)?;
    let token = form.filled("token")?.ok_or_else(|| Problem::field("token", "must be given"))?;
    let now = call.state.operations.now();
    let identity = call.state.auth.holder(token.trim(), now).await?;
    if !identity.admin {
        return Err(Problem::forbidden());
    }
    fields::tell(identity.subject.as_str(), "log in", "console", "");
    let id = call.state.sessions.begin(identity, now);
    let mut answer = page::see_other(&next(&call.request));
    let secure = if call.state.options.trusted_proxies.is_https(&call.request) { "; Secure" } else { "" };
    answer
        .headers_mut()
        .insert(SET_COOKIE, cookie(&format!("{id}; HttpOnly; SameSite=Strict; Path=/console{secure}"))?);
    Ok(answer)
}

pub(super) async fn end(call: Call) -> Answer {
    if let Some(session) = &call.session {
        call.state.sessions.end(session);
    }
    let mut answer = page::see_other("/console/login");
    answer.headers_mut().insert(SET_COOKIE, cookie("; HttpOnly; SameSite=Strict; Path=/console; Max-Age=0")?);
    Ok(answer)
}

fn cookie(rest: &str) -> Result<HeaderValue, Problem> {
    HeaderValue::from_str(&format!("{COOKIE_NAME}={rest}")).map_err(|error| Problem::unexpected(error.to_string()))
}

/// Where to go after the login: a page of the console, whatever is asked.
fn next(request: &HttpRequest) -> String {
    let query = Query::parse(request.query_string());
    let asked = query.filled("next").ok().flatten().filter(|next| is_within(next));
    asked.unwrap_or("/console").to_owned()
}
