//! The way out: what every answer carries, and the one line and the counts that each request leaves behind.
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::http::Method;
use actix_web::http::header::{CACHE_CONTROL, HeaderName, HeaderValue, VARY, X_CONTENT_TYPE_OPTIONS};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use app::admission::rate_limit::AdmissionDecision;
use domain::Timestamp;

use crate::console::page;
use crate::context;
use crate::error::{Kind, Problem};
use crate::line::Line;
use crate::rate;
use crate::route::{Answer, Manner};
use crate::state::State;
use app::contract::rfc3339;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REGION_ID: HeaderName = HeaderName::from_static("x-region-id");

/// What is known of a request from its first moment, and what its answer must tell.
pub(crate) struct Departure {
    began: Instant,
    pub(crate) now: Timestamp,
    request_id: String,
    template: &'static str,
    manner: Manner,
    /// What the rate limit said, once it was asked.
    pub(crate) admitted: Option<AdmissionDecision>,
    flight: Flight,
}

impl Departure {
    pub(crate) fn begin(state: &State, request: &HttpRequest, template: &'static str, manner: Manner) -> Self {
        Self {
            began: Instant::now(),
            now: state.operations.now(),
            request_id: context::request_id(request.headers()),
            template,
            manner,
            admitted: None,
            flight: Flight::begin(&state.in_flight, request),
        }
    }

    /// Makes the answer complete, counts and logs it.
    pub(crate) fn send(self, state: &State, request: &HttpRequest, answer: Answer) -> HttpResponse {
        let mut answer = answer.unwrap_or_else(|problem| self.refusal(state, request, &problem));
        self.dress(state, &mut answer);
        self.record(state, request.method(), &answer);
        let flight = self.flight;
        answer.map_body(|_, body| BoxBody::new(Tracked { body, _flight: flight }))
    }

    fn refusal(&self, state: &State, request: &HttpRequest, problem: &Problem) -> HttpResponse {
        let (request_id, route) = (self.request_id.as_str(), self.template);
        let cause = problem.cause.as_deref().unwrap_or_default();
        if problem.kind == Kind::Unexpected {
            state.metrics.api_errors_unexpected.inc();
            tracing::error!(event = "request_failed", route, request_id, error = cause, "request_failed");
        } else if !cause.is_empty() {
            tracing::warn!(event = "request_refused", route, request_id, error = cause, "request_refused");
        }
        let answer = problem.answer(request.uri().path(), request_id, rfc3339(self.now));
        if self.manner == Manner::Console { page::refusal(request, problem, answer) } else { answer }
    }

    fn dress(&self, state: &State, answer: &mut HttpResponse) {
        let headers = answer.headers_mut();
        if let Ok(id) = HeaderValue::from_str(&self.request_id) {
            headers.insert(REQUEST_ID, id);
        }
        headers.insert(REGION_ID, state.region.clone());
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        match self.manner {
            Manner::Plain => {}
            Manner::Private => {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
                headers.insert(VARY, HeaderValue::from_static("Authorization"));
            }
            Manner::Console => page::dress(headers),
        }
        if let Some(admitted) = &self.admitted {
            rate::tell(admitted, headers);
        }
    }

    fn record(&self, state: &State, method: &Method, answer: &HttpResponse) {
        let took = self.began.elapsed();
        let (method, status) = (method_label(method), answer.status());
        state.metrics.http_server_requests.with([method, self.template, status.as_str()]).record(took);
        state.answered.inc();
        tracing::info!(
            event = "request",
            method,
            route = self.template,
            status = status.as_u16(),
            duration_ms = (took.as_secs_f64() * 1e6).round() / 1e3,
            request_id = self.request_id.as_str(),
            "request"
        );
    }
}

/// Methods are a small, closed set; what a client makes up is not.
fn method_label(method: &Method) -> &'static str {
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

/// One answer that is being made or sent; whoever stops the service waits for these.
pub(crate) struct Flight {
    count: Arc<AtomicU64>,
    /// Absent where no connection is: in tests of routes.
    line: Option<Rc<Line>>,
}

impl Flight {
    fn begin(count: &Arc<AtomicU64>, request: &HttpRequest) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        let line = request.conn_data::<Rc<Line>>().cloned();
        if let Some(line) = &line {
            line.asked();
        }
        Self { count: Arc::clone(count), line }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
        if let Some(line) = &self.line {
            line.answered();
        }
    }
}

/// A body that ends the flight when the server is done with it.
struct Tracked {
    body: BoxBody,
    _flight: Flight,
}

impl MessageBody for Tracked {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_next(cx)
    }
}
