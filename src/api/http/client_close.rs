//! The end of what a client sends, for responses that would otherwise last.
use std::rc::Rc;

use actix_web::HttpRequest;

use crate::http::connection_timeouts::ConnectionPhase;

/// The client's side of the connection of a request. actix finishes the response when it closes, and reads no more: a response that waits
/// would not end before a write fails.
///
/// Not noticed while a further request waits for the response: the socket is not read then.
pub(crate) struct ClientClose {
    /// `None` in tests that call routes without a connection.
    phase: Option<Rc<ConnectionPhase>>,
}

impl ClientClose {
    pub(crate) fn of(request: &HttpRequest) -> Self {
        Self { phase: request.conn_data::<Rc<ConnectionPhase>>().cloned() }
    }

    /// Waits until the client has closed its side; at once if it has. Cancel-safe.
    pub(crate) async fn closed(&self) {
        match &self.phase {
            Some(phase) => phase.client_closed().await,
            None => std::future::pending().await,
        }
    }
}
