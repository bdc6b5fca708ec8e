//! Answers requests while the store is not available yet: live, not started, and 503 for everything else.
use std::io;
use std::sync::Arc;

use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use app::contract::rfc3339;
use domain::Timestamp;
use serde_json::json;
use telemetry::Metrics;
use tokio::task::JoinHandle;

use crate::error::{ErrorCode, Problem};
use crate::health::status::with_retry_after;
use crate::http::listeners::Listeners;
use crate::request::headers::request_id;
use crate::request::response::{json_response, with_type};

/// A server that answers 503 until the real one takes its listeners over.
pub struct StartupServer {
    handle: ServerHandle,
    task: JoinHandle<io::Result<()>>,
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
}

/// Serves the startup responses on duplicates of these listeners. Needs an actix `System`.
///
/// # Errors
/// A listener cannot be duplicated or served.
pub fn serve_startup(listeners: &Listeners, context: &StartupContext) -> io::Result<StartupServer> {
    let (duplicates, context) = (listeners.duplicate()?, context.clone());
    let mut server = HttpServer::new(move || {
        let context = context.clone();
        let handler = move |request: HttpRequest| {
            let response = respond(&context, &request);
            async move { response }
        };
        App::new().default_service(web::to(handler))
    })
    .workers(1)
    .disable_signals()
    .listen(duplicates.public)?;
    if let Some(admin) = duplicates.admin {
        server = server.listen(admin)?;
    }
    let server = server.run();
    Ok(StartupServer { handle: server.handle(), task: tokio::spawn(server) })
}

fn respond(context: &StartupContext, request: &HttpRequest) -> HttpResponse {
    let unavailable = ErrorCode::Infrastructure.status();
    let text = |status, text: &'static str| with_type(status, "text/plain; charset=utf-8", text);
    let request_id = request_id(request.headers());
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
            &request_id,
            rfc3339((context.now)()),
        ),
    };
    let headers = response.headers_mut();
    for (name, value) in [("x-request-id", request_id.as_str()), ("x-region-id", context.region.as_str())] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    with_retry_after(response)
}

impl StartupServer {
    /// Stops at once. Connections in the accept queue are served by the next server on the listeners.
    pub async fn stop(self) {
        self.handle.stop(false).await;
        // The result of a stopped server changes nothing.
        let _ = self.task.await;
    }
}
