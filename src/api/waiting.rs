//! Answers while the store is not there yet: alive, not started, and everything else later.
use std::io;

use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, RETRY_AFTER};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use tokio::task::JoinHandle;

use crate::listeners::Listeners;

/// Listeners that answer 503 until the service takes them over.
pub struct Waiting {
    handle: ServerHandle,
    task: JoinHandle<io::Result<()>>,
}

/// Answers on these listeners. Needs an actix `System`.
///
/// # Errors
/// A listener cannot be used.
pub fn wait_on(listeners: &Listeners) -> io::Result<Waiting> {
    let shared = listeners.share()?;
    let mut server = HttpServer::new(|| App::new().default_service(web::to(answer)))
        .workers(1)
        .disable_signals()
        .listen(shared.public)?;
    if let Some(admin) = shared.admin {
        server = server.listen(admin)?;
    }
    let server = server.run();
    Ok(Waiting { handle: server.handle(), task: tokio::spawn(server) })
}

async fn answer(request: HttpRequest) -> HttpResponse {
    let alive = matches!(request.path(), "/livez" | "/actuator/health/liveness");
    let (status, word) = if alive { (StatusCode::OK, "UP") } else { (StatusCode::SERVICE_UNAVAILABLE, "DOWN") };
    let mut response = HttpResponse::build(status);
    response.insert_header((CONTENT_TYPE, "application/json"));
    if !alive {
        response.insert_header((RETRY_AFTER, "5"));
    }
    let detail = if alive { "" } else { r#","code":"INFRASTRUCTURE_ERROR","message":"the store is not there yet""# };
    response.body(format!(r#"{{"status":"{word}"{detail}}}"#))
}

impl Waiting {
    /// Ends at once; who waits to be accepted is served by whoever listens next.
    pub async fn stop(self) {
        self.handle.stop(false).await;
        // Nothing hangs on how the task ended: it answered nobody any more.
        let _ = self.task.await;
    }
}
