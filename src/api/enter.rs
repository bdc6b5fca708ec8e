//! The way in: every request is judged here in the contract's order, then handled, then sent off with what every answer carries.
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::Method;
use actix_web::http::header::{ALLOW, AUTHORIZATION, CONTENT_LENGTH, TRANSFER_ENCODING};
use actix_web::web::{Bytes, Payload};
use actix_web::{HttpRequest, HttpResponse};
use futures::FutureExt;
use tokio::time::timeout;

use crate::auth::{Identity, Verifier};
use crate::body;
use crate::call::Call;
use crate::console::guard;
use crate::depart::Departure;
use crate::error::{Kind, Problem};
use crate::media;
use crate::rate;
use crate::route::{Access, Answer, Endpoint, Gives, Manner, Resource, Takes};
use crate::state::State;

/// Longest target.
const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Most bytes of all headers.
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// What a command gets beyond the request timeout: its actor keeps the same time and answers better than we could.
const GRACE: Duration = Duration::from_millis(250);

/// Answers a request to a route that exists.
pub(crate) async fn enter(state: Arc<State>, to: Arc<Resource>, request: HttpRequest, body: Payload) -> HttpResponse {
    let mut leaving = Departure::begin(&state, &request, to.template, to.manner);
    let judged = judge(&state, &to, &request, body, &mut leaving);
    // A panic here would close the connection without a word, and take nothing down that a restart could mend.
    let answer = match AssertUnwindSafe(judged).catch_unwind().await {
        Ok(answer) => answer,
        Err(_) => Err(Problem::unexpected("a handler panicked")),
    };
    leaving.send(&state, &request, answer)
}

/// Answers a request to a route that does not exist.
pub(crate) async fn unknown(state: Arc<State>, request: HttpRequest) -> HttpResponse {
    let private = request.path() == "/orders" || request.path().starts_with("/orders/");
    let manner = if private { Manner::Private } else { Manner::Plain };
    let leaving = Departure::begin(&state, &request, "UNKNOWN", manner);
    let answer = match too_large(&request) {
        Err(problem) => Err(problem),
        Ok(()) => Err(Problem::not_found("no such route")),
    };
    leaving.send(&state, &request, answer)
}

async fn judge(
    state: &Arc<State>,
    to: &Resource,
    request: &HttpRequest,
    payload: Payload,
    leaving: &mut Departure,
) -> Answer {
    too_large(request)?;
    if request.method() == Method::OPTIONS {
        let allow = to.allow();
        return Ok(HttpResponse::NoContent().insert_header((ALLOW, allow)).finish());
    }
    let endpoint = to.endpoint(request.method()).ok_or_else(|| Problem::method_not_allowed(&to.allow()))?;
    let mut session = None;
    let caller = if endpoint.access == Access::Console && !request.headers().contains_key(AUTHORIZATION) {
        session = guard::session(state, request, leaving.now);
        let Some(session) = &session else { return Ok(guard::to_login(request)) };
        Some(Arc::clone(&session.identity))
    } else {
        caller(state, endpoint, request, leaving).await?
    };
    if endpoint.limited {
        leaving.admitted = rate::admit(state, to, request, caller.as_deref()).await;
        rate::judge(state, leaving.admitted.as_ref())?;
    }
    let body = read(state, endpoint, request, payload).await?;
    if let (Takes::Form, Some(session)) = (endpoint.takes, &session) {
        guard::check_mark(session, &body)?;
    }
    let call = Call { state: Arc::clone(state), request: request.clone(), caller, session, body };
    handle(state, endpoint, call).await
}

fn too_large(request: &HttpRequest) -> Result<(), Problem> {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if target > TARGET_BYTES_MAX {
        return Err(Problem::new(Kind::UriTooLong, "the target must have at most 8 KiB"));
    }
    // As on the wire: a colon, a space and a line end for each.
    let headers: usize = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if headers > HEADER_BYTES_MAX {
        return Err(Problem::new(Kind::HeadersTooLarge, "the headers must have at most 64 KiB"));
    }
    Ok(())
}

async fn caller(
    state: &State,
    endpoint: &Endpoint,
    request: &HttpRequest,
    leaving: &Departure,
) -> Result<Option<Arc<Identity>>, Problem> {
    if endpoint.access == Access::Open {
        return Ok(None);
    }
    let caller = state.auth.caller(request.headers(), leaving.now).await;
    if endpoint.access == Access::Either {
        // Whoever shows a token that does not hold sees as much as whoever shows none.
        return Ok(caller.ok().flatten());
    }
    let caller = caller?.ok_or_else(Verifier::missing)?;
    let allowed = match endpoint.access {
        Access::Open | Access::Either => true,
        Access::Member => caller.user || caller.admin,
        Access::Admin | Access::Console => caller.admin,
    };
    if allowed { Ok(Some(caller)) } else { Err(Problem::forbidden()) }
}

async fn read(state: &State, endpoint: &Endpoint, request: &HttpRequest, payload: Payload) -> Result<Bytes, Problem> {
    if endpoint.gives == Gives::Json && !media::accepts_json(request.headers()) {
        return Err(Problem::new(Kind::NotAcceptable, "the answer is application/json, which Accept excludes"));
    }
    let wanted = match endpoint.takes {
        Takes::Nothing => false,
        Takes::Json | Takes::Form => true,
        Takes::OptionalJson => announces_body(request),
    };
    if !wanted {
        return Ok(Bytes::new());
    }
    if endpoint.takes == Takes::Form {
        if !media::is_form(request.headers()) {
            return Err(Problem::new(Kind::UnsupportedMediaType, "the body must be a form, not encoded"));
        }
    } else if !media::is_json(request.headers()) {
        return Err(Problem::new(Kind::UnsupportedMediaType, "the body must be application/json, not encoded"));
    }
    body::read(payload, request, &state.options).await
}

fn announces_body(request: &HttpRequest) -> bool {
    let length = request.headers().get(CONTENT_LENGTH);
    length.is_some_and(|length| length != "0") || request.headers().contains_key(TRANSFER_ENCODING)
}

async fn handle(state: &State, endpoint: &Endpoint, call: Call) -> Answer {
    let limit = state.options.request_timeout;
    if endpoint.changes() {
        let unknown = |_| Err(Problem::unexpected("no answer within the request timeout"));
        return timeout(limit + GRACE, (endpoint.handle)(call)).await.unwrap_or_else(unknown);
    }
    let away = |_| Err(Problem::away("no answer within the request timeout"));
    timeout(limit, (endpoint.handle)(call)).await.unwrap_or_else(away)
}
