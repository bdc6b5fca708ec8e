//! One judged request in a handler's hands.
use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use actix_web::web::Bytes;
use app::dispatch::Viewer;
use serde::Serialize;

use crate::auth::Identity;
use crate::console::session::Session;
use crate::error::Problem;
use crate::query::Query;
use crate::state::State;

/// A request that passed every judgement its route asks for.
pub(crate) struct Call {
    pub(crate) state: Arc<State>,
    pub(crate) request: HttpRequest,
    /// Who asks; always there where the route asks for a role.
    pub(crate) caller: Option<Arc<Identity>>,
    /// The session of the console in which it is asked.
    pub(crate) session: Option<Session>,
    /// The body, where the route takes one.
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn headers(&self) -> &HeaderMap {
        self.request.headers()
    }

    /// A part of the path, by its name in the template.
    pub(crate) fn part(&self, name: &str) -> &str {
        self.request.match_info().query(name)
    }

    pub(crate) fn query(&self) -> Query<'_> {
        Query::parse(self.request.query_string())
    }

    /// The caller of a route that asks for a role.
    ///
    /// # Errors
    /// The table gave the route no role: our mistake, told as one.
    pub(crate) fn identity(&self) -> Result<&Arc<Identity>, Problem> {
        self.caller.as_ref().ok_or_else(|| Problem::unexpected("a route without a role asks who calls"))
    }

    /// Whose orders the caller sees.
    pub(crate) fn viewer(&self) -> Result<Viewer, Problem> {
        let identity = self.identity()?;
        Ok(if identity.admin { Viewer::Admin } else { Viewer::Owner(identity.subject.clone()) })
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.caller.as_ref().is_some_and(|identity| identity.admin)
    }
}

/// An answer in JSON.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> HttpResponse {
    let body = serde_json::to_vec(body).expect("answers hold only texts, numbers, lists and objects");
    typed(status, "application/json", body)
}

/// 200 in JSON.
pub(crate) fn ok(body: &impl Serialize) -> HttpResponse {
    json(StatusCode::OK, body)
}

/// An answer of some content type.
pub(crate) fn typed(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> HttpResponse {
    let mut answer = HttpResponse::with_body(status, BoxBody::new(body.into()));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
