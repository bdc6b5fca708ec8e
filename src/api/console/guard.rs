//! Who may come in: the cookie of a session, its mark on every form, and the way to the login.
use actix_web::http::Method;
use actix_web::http::header::{COOKIE, HeaderMap};
use actix_web::{HttpRequest, HttpResponse};
use domain::Timestamp;

use super::form;
use super::links::{is_within, link};
use super::page::see_other;
use super::session::Session;
use crate::error::Problem;
use crate::state::State;

/// The cookie's name.
pub(super) const COOKIE_NAME: &str = "posthaste_console";

/// The session that a request's cookie names, if it has not ended.
pub(crate) fn session(state: &State, request: &HttpRequest, now: Timestamp) -> Option<Session> {
    let id = cookie(request.headers())?;
    state.sessions.find(id, now, |identity| state.auth.still_holds(identity, now))
}

/// The way to the login, and back to where one wanted to go.
pub(crate) fn to_login(request: &HttpRequest) -> HttpResponse {
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    let may_return = matches!(*request.method(), Method::GET | Method::HEAD) && is_within(target);
    let next = if may_return { target } else { "" };
    see_other(&link("/console/login", &[("next", next)]))
}

/// Holds a form's mark against its session's.
///
/// # Errors
/// The form is from elsewhere: nothing may be done.
pub(crate) fn check_mark(session: &Session, body: &[u8]) -> Result<(), Problem> {
    let form = form::read(body)?;
    let mark = form.filled("mark").ok().flatten();
    if mark.is_some_and(|mark| session.is_marked(mark)) { Ok(()) } else { Err(Problem::forged()) }
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(COOKIE).filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == COOKIE_NAME).map(|(_, value)| value).next()
}
