//! A request that passed every check of its route, as its handler receives it.
use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header::HeaderMap;
use actix_web::web::Bytes;
use app::dispatch::{RequestSpan, Viewer};
use app::port_types::TraceContext;
use telemetry::traces::SpanContext;
use tokio::time::Instant;

use crate::auth::identity::Identity;
use crate::console::session::ConsoleSession;
use crate::error::Problem;
use crate::request::query::Query;
use crate::request::{server_span, trace_context};
use crate::state::HttpState;

/// A request that passed every check of its route.
pub(crate) struct RequestContext {
    pub(crate) state: Arc<HttpState>,
    pub(crate) request: HttpRequest,
    /// The id that the response names: the client's, or a new one.
    pub(crate) request_id: Arc<str>,
    /// The span of the request, if its trace is sampled.
    pub(crate) span: Option<SpanContext>,
    /// Always set on routes that require a role.
    pub(crate) caller: Option<Arc<Identity>>,
    /// The console session, when the request was authenticated by its cookie.
    pub(crate) session: Option<ConsoleSession>,
    /// Empty on routes that take no body.
    pub(crate) body: Bytes,
    /// The rest of `http.request_timeout` after the checks: the longest time of the handler.
    pub(crate) time_limit: Duration,
    /// When that time is over.
    pub(crate) deadline: Instant,
}

impl RequestContext {
    /// The remaining time of the handler. A command that takes longer is answered by the pipeline, which has less information about its outcome.
    pub(crate) fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.request.headers()
    }

    /// The trace context that the events of this request carry: the client's, unchanged, or else that of the request's span.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        let own = || self.span.map(|span| TraceContext { parent: span.to_traceparent().into(), state: None });
        trace_context::trace_context(self.headers()).or_else(own)
    }

    /// The parent of the spans that the commands of this request cause.
    pub(crate) fn parent_span(&self) -> Option<RequestSpan> {
        self.span.map(server_span::parent)
    }

    /// A path parameter by its name in the template.
    pub(crate) fn path_parameter(&self, name: &str) -> &str {
        self.request.match_info().query(name)
    }

    pub(crate) fn query(&self) -> Query<'_> {
        Query::parse(self.request.query_string())
    }

    /// The caller on a route that requires a role.
    ///
    /// # Errors
    /// 500 when the route table requires no role: a programming error.
    pub(crate) fn identity(&self) -> Result<&Arc<Identity>, Problem> {
        self.caller
            .as_ref()
            .ok_or_else(|| Problem::unexpected("the handler needs a caller but its route requires no role"))
    }

    /// Which orders the caller may see: all for an ADMIN, else the caller's own.
    pub(crate) fn viewer(&self) -> Result<Viewer, Problem> {
        let identity = self.identity()?;
        Ok(if identity.admin { Viewer::Admin } else { Viewer::Owner(identity.subject.clone()) })
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.caller.as_ref().is_some_and(|identity| identity.admin)
    }
}
