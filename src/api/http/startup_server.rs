//! Answers requests while the store is not available yet: live, not started, and 503 for everything else.
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use actix_server::{Server, ServerHandle};
use actix_web::body::BoxBody;
use actix_web::http::header::{HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use actix_web::http::{ConnectionType, StatusCode};
use actix_web::web::{self, Payload};
use actix_web::{HttpRequest, HttpResponse};
use app::contract::rfc3339;
use domain::Timestamp;
use serde_json::json;
use telemetry::Metrics;
use tokio::task::JoinHandle;

use crate::error::{ErrorCode, Problem};
use crate::health::status::with_retry_after;
use crate::http::connection::{head_timeout_response, timed_connection, timeouts};
use crate::http::exchange::{add_private_headers, is_about_orders, is_unnamed_probe, log_request, method_label};
use crate::http::listeners::Listeners;
use crate::http::tracked_body::{InFlightGuard, TrackedBody};
use crate::request::body::{IncomingBody, discard_received};
use crate::request::headers::request_id;
use crate::request::response::{json_response, with_type};

/// The route that the line of a request names: the routes of the service do not exist yet.
const STARTUP_ROUTE: &str = "STARTUP";

/// A server that answers 503 until the real one takes its listeners over.
pub struct StartupServer {
    running: Vec<(ServerHandle, JoinHandle<io::Result<()>>)>,
}

/// Parts of the process that exist before the store is available.
#[derive(Clone)]
pub struct StartupContext {
    /// `region.id`, for the response header.
    pub region: String,
    /// The metrics, which are rendered from the start.
    pub metrics: Arc<Metrics>,
    /// The clock of the process.
    pub now: fn() -> Timestamp,
    /// `http.header_timeout`: a request head that takes longer gets 408 and its connection is closed.
    pub header_timeout: Duration,
    /// `http.body_timeout`: a client that reads nothing of a response for this long is disconnected.
    pub body_timeout: Duration,
    /// `http.max_connections`, of each listener.
    pub max_connections: usize,
}

/// Serves the startup responses on duplicates of these listeners. Needs an actix `System`.
///
/// # Errors
/// A listener cannot be duplicated or served.
pub fn serve_startup(listeners: &Listeners, context: &StartupContext) -> io::Result<StartupServer> {
    let duplicates = listeners.duplicate()?;
    let servers = [Some(duplicates.public), duplicates.admin].into_iter().flatten();
    let running = servers.map(|listener| listen(listener, context)).collect::<io::Result<_>>()?;
    Ok(StartupServer { running })
}

/// Serves a listener as the real server does: one response to each request, also when the rest of an unread body follows.
fn listen(listener: TcpListener, context: &StartupContext) -> io::Result<(ServerHandle, JoinHandle<io::Result<()>>)> {
    let builder = Server::build().workers(1).max_concurrent_connections(context.max_connections).disable_signals();
    let stopping = builder.graceful_shutdown_signal();
    let (context, count) = (context.clone(), Arc::<AtomicU64>::default());
    let connection = move || {
        let (context, count) = (context.clone(), Arc::clone(&count));
        let timeouts = timeouts(context.header_timeout, context.body_timeout);
        let timeout_response = {
            let context = context.clone();
            Arc::new(move || head_timeout_response((context.now)(), &context.region))
        };
        let handler = move |request: HttpRequest, payload: Payload| {
            let (context, in_flight) = (context.clone(), InFlightGuard::begin(&count, &request));
            let (started, request_id) = (Instant::now(), request_id(request.headers()));
            async move {
                let response = complete(respond(&context, &request, &request_id), payload, in_flight).await;
                let is_routine = is_unnamed_probe(request.path(), request.headers());
                let (method, status) = (method_label(request.method()), response.status());
                log_request(is_routine, method, STARTUP_ROUTE, status, started.elapsed(), &request_id);
                response
            }
        };
        let routes = move |config: &mut web::ServiceConfig| {
            config.default_service(web::to(handler));
        };
        timed_connection(routes, timeouts, &stopping, timeout_response)
    };
    let server = builder.listen("startup", listener, connection)?.run();
    Ok((server.handle(), tokio::spawn(server)))
}

/// With an unread request body the response is the last one of its connection.
async fn complete(mut response: HttpResponse, payload: Payload, in_flight: InFlightGuard) -> HttpResponse {
    let unread = discard_received(IncomingBody::new(payload)).await;
    if unread.is_some() {
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
    response.map_body(|_, body| BoxBody::new(TrackedBody::new(body, in_flight, unread)))
}

fn respond(context: &StartupContext, request: &HttpRequest, request_id: &str) -> HttpResponse {
    let unavailable = ErrorCode::Infrastructure.status();
    let text = |status, text: &'static str| with_type(status, "text/plain; charset=utf-8", text);
    let mut response = match request.path() {
        "/livez" => text(StatusCode::OK, "ok\n"),
        "/readyz" | "/startupz" => text(unavailable, "not ok\n"),
        "/actuator/health/liveness" => json_response(StatusCode::OK, &json!({"status": "UP"})),
        "/actuator/health" | "/actuator/health/readiness" => json_response(unavailable, &json!({"status": "DOWN"})),
        "/metrics" | "/actuator/prometheus" => {
            with_type(StatusCode::OK, telemetry::CONTENT_TYPE, context.metrics.render())
        }
        path => Problem::dependency_unavailable("the store is not available yet").response(
            path,
            request_id,
            rfc3339((context.now)()),
        ),
    };
    let headers = response.headers_mut();
    for (name, value) in [("x-request-id", request_id), ("x-region-id", context.region.as_str())] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_about_orders(request.path()) {
        add_private_headers(headers);
    }
    with_retry_after(response)
}

impl StartupServer {
    /// Stops at once. Connections in the accept queue are served by the next server on the listeners.
    pub async fn stop(self) {
        for (handle, task) in self.running {
            handle.stop(false).await;
            // The result of a stopped server changes nothing.
            let _ = task.await;
        }
    }
}
