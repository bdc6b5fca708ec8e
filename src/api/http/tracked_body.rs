//! The body of a response. Detects the end of the response, and decides whether its connection serves another request.
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use actix_web::HttpRequest;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::http::ConnectionType;
use actix_web::web::Bytes;

use crate::http::connection_timeouts::ConnectionPhase;
use crate::request::body::UnreadBody;

/// Counts a request as in flight until its response is written; a graceful stop waits for these.
pub(crate) struct InFlightGuard {
    count: Arc<AtomicU64>,
    /// `None` in tests that call routes without a connection.
    phase: Option<Rc<ConnectionPhase>>,
}

impl InFlightGuard {
    pub(crate) fn begin(count: &Arc<AtomicU64>, request: &HttpRequest) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        let phase = ConnectionPhase::of(request);
        if let Some(phase) = &phase {
            phase.request_started(request.head().connection_type() == ConnectionType::Close);
        }
        Self { count: Arc::clone(count), phase }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
        if let Some(phase) = &self.phase {
            phase.response_finished();
        }
    }
}

/// A response body that holds the request's [`InFlightGuard`] until the server drops the body.
pub(crate) struct TrackedBody {
    body: BoxBody,
    /// `None` once the response is complete.
    in_flight: Option<InFlightGuard>,
    /// actix closes the connection after the response when the request body is still held; it would drain a dropped one.
    unread: Option<UnreadBody>,
}

impl TrackedBody {
    pub(crate) fn new(body: BoxBody, in_flight: InFlightGuard, unread: Option<UnreadBody>) -> Self {
        if let (Some(_), Some(phase)) = (&unread, &in_flight.phase) {
            phase.refuse_body();
        }
        Self { body, in_flight: Some(in_flight), unread }
    }
}

impl MessageBody for TrackedBody {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        if this.in_flight.is_none() {
            return Poll::Pending;
        }
        let next = ready!(Pin::new(&mut this.body).poll_next(cx));
        if next.is_none() && matches!(this.unread, Some(UnreadBody::Broken)) {
            // actix has queued a 400 of its own behind this response. The response is complete; a body that does not end
            // keeps the 400 back until the connection is closed.
            this.in_flight = None;
            return Poll::Pending;
        }
        Poll::Ready(next)
    }
}
