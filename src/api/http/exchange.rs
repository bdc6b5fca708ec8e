//! One request and its response: the headers that every response carries, its log line and its metrics.
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::body::BoxBody;
use actix_web::http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, VARY, X_CONTENT_TYPE_OPTIONS};
use actix_web::http::{ConnectionType, Method, StatusCode};
use actix_web::{HttpRequest, HttpResponse};
use app::admission::rate_limit::AdmissionDecision;
use app::contract::rfc3339;
use domain::{OrderId, Timestamp};
use telemetry::traces::ActiveSpan;
use tracing::{Span, field};

use crate::console::layout;
use crate::error::{ErrorCode, Problem};
use crate::http::rate_limit;
use crate::http::tracked_body::{InFlightGuard, TrackedBody};
use crate::request::body::UnreadBody;
use crate::request::headers::{has_request_id, request_id};
use crate::request::response::RouteResult;
use crate::request::route::HeaderPolicy;
use crate::request::server_span;
use crate::state::HttpState;

/// The status in log and metrics of a request without a response; the code that nginx uses for it.
const CLIENT_DISCONNECTED: u16 = 499;
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REGION_ID: HeaderName = HeaderName::from_static("x-region-id");

/// A request from its arrival until its response is complete.
pub(crate) struct HttpExchange {
    state: Arc<HttpState>,
    started: Instant,
    pub(crate) now: Timestamp,
    request_id: Arc<str>,
    /// Every log line that the request causes is written in it, also those of actors and adapters.
    span: Span,
    /// The span of the request's trace; it ends with the exchange.
    pub(crate) trace_span: ActiveSpan,
    method: &'static str,
    template: &'static str,
    header_policy: HeaderPolicy,
    /// A probe or scrape without a request id of its client, or the refresh of an open console page: it repeats every few seconds, so its
    /// line is logged at DEBUG.
    pub(crate) is_routine: bool,
    /// The decision of the rate limit, once there is one.
    pub(crate) admitted: Option<AdmissionDecision>,
    /// `None` once there is a response.
    in_flight: Option<InFlightGuard>,
}

impl HttpExchange {
    pub(crate) fn begin(
        state: &Arc<HttpState>,
        request: &HttpRequest,
        template: &'static str,
        header_policy: HeaderPolicy,
    ) -> Self {
        let request_id: Arc<str> = request_id(request.headers()).into();
        let is_routine = is_unnamed_probe(template, request.headers());
        let (tracer, method) = (&state.tracer, method_label(request.method()));
        let repeats = is_probe(template) || (template.starts_with("/console") && is_refresh(request));
        let mut trace_span = server_span::begin(tracer, request.headers(), (method, template), repeats);
        trace_span.set("posthaste.request_id", &*request_id);
        Self {
            state: Arc::clone(state),
            started: Instant::now(),
            now: state.operations.now(),
            span: request_span(request, &request_id, template),
            trace_span,
            request_id,
            method,
            template,
            header_policy,
            is_routine,
            admitted: None,
            in_flight: Some(InFlightGuard::begin(&state.in_flight, request)),
        }
    }

    /// The span of the request, for the work that it causes.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// The id of the request, which its response and everything that it causes name.
    pub(crate) fn request_id(&self) -> Arc<str> {
        Arc::clone(&self.request_id)
    }

    /// Adds the common headers, counts and logs the response. With an unread request body it is the last one of its connection.
    pub(crate) fn finish(
        mut self,
        request: &HttpRequest,
        result: RouteResult,
        unread: Option<UnreadBody>,
    ) -> HttpResponse {
        let span = self.span();
        let _entered = span.enter();
        let mut response = result.unwrap_or_else(|problem| self.error_response(request, &problem));
        self.add_headers(&mut response);
        self.record(response.status());
        server_span::responded(&mut self.trace_span, response.status().as_u16());
        if unread.is_some() {
            response.head_mut().set_connection_type(ConnectionType::Close);
        }
        let in_flight = self.in_flight.take();
        response.map_body(|_, body| match in_flight {
            Some(in_flight) => BoxBody::new(TrackedBody::new(body, in_flight, unread)),
            None => body,
        })
    }

    fn error_response(&self, request: &HttpRequest, problem: &Problem) -> HttpResponse {
        let (state, request_id, route) = (&*self.state, &*self.request_id, self.template);
        let cause = problem.cause.as_deref().unwrap_or_default();
        if problem.code == ErrorCode::Unexpected {
            state.metrics.api_errors_unexpected.inc();
            tracing::error!(
                event = "request_failed",
                route,
                request_id,
                error = cause,
                "a request for {route} failed: {cause}"
            );
        } else if !cause.is_empty() {
            tracing::warn!(
                event = "request_refused",
                route,
                request_id,
                error = cause,
                "a request for {route} was refused: {cause}"
            );
        }
        let response = problem.response(request.uri().path(), request_id, rfc3339(self.now));
        match self.header_policy {
            HeaderPolicy::Console => layout::error_page(state, request, problem, response),
            HeaderPolicy::Plain | HeaderPolicy::Private => response,
        }
    }

    fn add_headers(&self, response: &mut HttpResponse) {
        let headers = response.headers_mut();
        if let Ok(id) = HeaderValue::from_str(&self.request_id) {
            headers.insert(REQUEST_ID, id);
        }
        headers.insert(REGION_ID, self.state.region.clone());
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        match self.header_policy {
            HeaderPolicy::Plain => {}
            HeaderPolicy::Private => add_private_headers(headers),
            HeaderPolicy::Console => layout::add_headers(headers),
        }
        if let Some(admitted) = &self.admitted {
            rate_limit::write_headers(admitted, headers);
        }
    }

    fn record(&self, status: StatusCode) {
        let (elapsed, metrics) = (self.started.elapsed(), &self.state.metrics);
        metrics.http_server_requests.with([self.method, self.template, status.as_str()]).record(elapsed);
        self.state.requests_by_region.inc();
        log_request(self.is_routine, self.method, self.template, status, elapsed, &self.request_id);
    }
}

impl Drop for HttpExchange {
    /// Counts and logs a request without a response: its client has disconnected, or the stop of the service has closed its connection.
    fn drop(&mut self) {
        if self.in_flight.is_some()
            && let Ok(status) = StatusCode::from_u16(CLIENT_DISCONNECTED)
        {
            let span = self.span();
            let _entered = span.enter();
            server_span::responded(&mut self.trace_span, CLIENT_DISCONNECTED);
            self.record(status);
        }
    }
}

/// The end of a request's log line, by its status.
struct HttpOutcome(u16);

impl Display for HttpOutcome {
    fn fmt(&self, text: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            // The client has disconnected, or the service closed the connection when it stopped.
            CLIENT_DISCONNECTED => text.write_str("ended without a response"),
            status => write!(text, "was answered {status}"),
        }
    }
}

/// The line of one request. That of a routine request is at DEBUG.
pub(crate) fn log_request(
    is_routine: bool,
    method: &'static str,
    route: &'static str,
    status: StatusCode,
    elapsed: Duration,
    request_id: &str,
) {
    let (status, duration_ms) = (status.as_u16(), (elapsed.as_secs_f64() * 1e6).round() / 1e3);
    let outcome = HttpOutcome(status);
    if is_routine {
        tracing::debug!(
            event = "request",
            method,
            route,
            status,
            duration_ms,
            request_id,
            "{method} {route} {outcome} in {duration_ms} ms"
        );
    } else {
        tracing::info!(
            event = "request",
            method,
            route,
            status,
            duration_ms,
            request_id,
            "{method} {route} {outcome} in {duration_ms} ms"
        );
    }
}

/// Whether a response says something about orders, errors included: only the client's own cache may keep it.
pub(crate) fn is_about_orders(path: &str) -> bool {
    path == "/orders" || path.starts_with("/orders/")
}

/// The headers of responses about orders. A handler may have forbidden to store its response at all.
pub(crate) fn add_private_headers(headers: &mut HeaderMap) {
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    }
    headers.insert(VARY, HeaderValue::from_static("Authorization"));
}

/// Whether the request is a probe without an id of its client. One with an id is logged as other requests are, so that it is found by the id.
pub(crate) fn is_unnamed_probe(template: &str, headers: &HeaderMap) -> bool {
    is_probe(template) && !has_request_id(headers)
}

/// Whether platforms or Prometheus send the request again and again.
fn is_probe(template: &str) -> bool {
    let probes = ["/livez", "/readyz", "/startupz", "/metrics", "/actuator/prometheus"];
    probes.contains(&template) || template.starts_with("/actuator/health")
}

/// Whether the request is what the script of an open console page repeats. Anyone can send such a request: it counts as routine only where
/// its session was found.
pub(crate) fn is_refresh(request: &HttpRequest) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD) && request.headers().contains_key("x-refresh")
}

/// Level ERROR: no level of the log switches the context of its errors off. A new order's id is recorded where the order is placed.
fn request_span(request: &HttpRequest, request_id: &str, template: &str) -> Span {
    let span = tracing::error_span!("request", request_id, order_id = field::Empty);
    if template.starts_with("/orders/{id}")
        && let Some(id) = OrderId::parse(request.match_info().query("id"))
    {
        span.record("order_id", field::display(id));
    }
    span
}

/// Limits the label to a closed set: clients may send any method.
pub(crate) fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "OTHER",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_is_routine_unless_its_client_has_named_it() {
        let headers = |id: Option<&str>| {
            let value = id.map(|id| HeaderValue::from_str(id).expect("visible characters"));
            value.into_iter().map(|value| (REQUEST_ID, value)).collect::<HeaderMap>()
        };
        let cases = [
            ("/readyz", None, true),
            ("/readyz", Some("mine"), false),
            ("/metrics", Some("no id"), true),
            ("/orders", None, false),
        ];
        for (template, id, expected) in cases {
            assert_eq!(is_unnamed_probe(template, &headers(id)), expected, "{template} {id:?}");
        }
    }
}
