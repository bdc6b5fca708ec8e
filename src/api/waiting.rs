//! Answers while the store is not there yet: alive, not started, and everything else later, in the shapes that clients know.
use std::io;
use std::sync::Arc;

use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use domain::Timestamp;
use serde_json::json;
use telemetry::Metrics;
use tokio::task::JoinHandle;

use crate::call::{json as answer_json, typed};
use crate::context;
use crate::error::{Kind, Problem};
use crate::health::retry_later;
use crate::listeners::Listeners;
use app::contract::rfc3339;

/// Listeners that answer 503 until the service takes them over.
pub struct Waiting {
    handle: ServerHandle,
    task: JoinHandle<io::Result<()>>,
}

/// What is known before the store is there.
#[derive(Clone)]
pub struct Early {
    /// `region.id`.
    pub region: String,
    /// Every metric: they stand from the start.
    pub metrics: Arc<Metrics>,
    /// The clock of the service.
    pub now: fn() -> Timestamp,
}

/// Answers on these listeners. Needs an actix `System`.
///
/// # Errors
/// A listener cannot be used.
pub fn wait_on(listeners: &Listeners, early: &Early) -> io::Result<Waiting> {
    let (shared, early) = (listeners.share()?, early.clone());
    let mut server = HttpServer::new(move || {
        let early = early.clone();
        let entrance = move |request: HttpRequest| {
            let answer = answer(&early, &request);
            async move { answer }
        };
        App::new().default_service(web::to(entrance))
    })
    .workers(1)
    .disable_signals()
    .listen(shared.public)?;
    if let Some(admin) = shared.admin {
        server = server.listen(admin)?;
    }
    let server = server.run();
    Ok(Waiting { handle: server.handle(), task: tokio::spawn(server) })
}

fn answer(early: &Early, request: &HttpRequest) -> HttpResponse {
    let away = Kind::Infrastructure.status();
    let text = |status, text: &'static str| typed(status, "text/plain; charset=utf-8", text);
    let request_id = context::request_id(request.headers());
    let mut answer = match request.path() {
        "/livez" => text(StatusCode::OK, "ok\n"),
        "/readyz" | "/startupz" => text(away, "not ok\n"),
        "/actuator/health/liveness" => answer_json(StatusCode::OK, &json!({"status": "UP"})),
        "/actuator/health" | "/actuator/health/readiness" => answer_json(away, &json!({"status": "DOWN"})),
        "/metrics" | "/actuator/prometheus" => typed(StatusCode::OK, telemetry::CONTENT_TYPE, early.metrics.render()),
        path => Problem::away("the store is not there yet").answer(path, &request_id, rfc3339((early.now)())),
    };
    let headers = answer.headers_mut();
    let told = [("x-request-id", request_id.as_str()), ("x-region-id", early.region.as_str())];
    for (name, value) in told {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    retry_later(answer)
}

impl Waiting {
    /// Ends at once; who waits to be accepted is served by whoever listens next.
    pub async fn stop(self) {
        self.handle.stop(false).await;
        // Nothing hangs on how the task ended: it answered nobody any more.
        let _ = self.task.await;
    }
}
