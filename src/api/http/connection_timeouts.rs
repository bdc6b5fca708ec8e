//! The phase of a connection (reading a head, handling a request, idle, closing) with its deadline, and whether its client has closed its side.
use std::cell::Cell;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use actix_web::HttpRequest;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The time limits of one connection.
#[derive(Clone, Copy)]
pub(crate) struct ConnectionTimeouts {
    /// For a request head: the first from the start of the connection, later ones from their first byte.
    pub(crate) head: Duration,
    /// Between a response and the next request head.
    pub(crate) idle: Duration,
    /// For a client that accepts no byte of a pending response.
    pub(crate) stall: Duration,
    /// For a client to close after the last response of a connection.
    pub(crate) close: Duration,
}

/// The phase of a connection; its requests share it with its stream.
pub(crate) struct ConnectionPhase {
    timeouts: ConnectionTimeouts,
    phase: Cell<Phase>,
    /// Whether the current request is the last one of the connection.
    is_last: Cell<bool>,
    /// Wakes the connection when the response is finished.
    response_waker: Cell<Option<Waker>>,
    /// Whether the client has closed its side: it sends nothing more.
    client_closed: Cell<bool>,
    client_close: Notify,
}

#[derive(Clone, Copy)]
enum Phase {
    /// A request is being handled; the pipeline has its own timeout.
    Handling,
    /// As `Handling`, but what arrives is the rest of a request body that is not read.
    Refusing,
    /// Nothing has arrived since the last response.
    Idle { until: Instant },
    /// A request head is arriving.
    Head { until: Instant },
    /// The last response is complete; what arrives is discarded.
    Closing { until: Instant },
}

impl ConnectionPhase {
    pub(crate) fn new(timeouts: ConnectionTimeouts) -> Rc<Self> {
        let until = Instant::now() + timeouts.head;
        let phase = Cell::new(Phase::Head { until });
        Rc::new(Self {
            timeouts,
            phase,
            is_last: Cell::default(),
            response_waker: Cell::default(),
            client_closed: Cell::default(),
            client_close: Notify::new(),
        })
    }

    /// The phase of the connection of a request; `None` in tests that call routes without a connection.
    pub(crate) fn of(request: &HttpRequest) -> Option<Rc<Self>> {
        request.conn_data::<Rc<Self>>().cloned()
    }

    /// A request head is complete. What the client sends behind its last request is no request (RFC 9112, 9.6).
    pub(crate) fn request_started(&self, is_last: bool) {
        self.phase.set(Phase::Handling);
        self.is_last.set(is_last);
    }

    /// The request's body has not ended, or its transfer coding is broken: no further request can be read.
    pub(crate) fn refuse_body(&self) {
        self.phase.set(Phase::Refusing);
    }

    /// The response has been encoded, so the next request may reach the parser. The deadline of an idle connection is later than actix's own,
    /// which closes it without an error.
    pub(crate) fn response_finished(&self) {
        let now = Instant::now();
        self.phase.set(match self.phase.get() {
            phase if self.is_last.get() || matches!(phase, Phase::Refusing) => {
                Phase::Closing { until: now + self.timeouts.close }
            }
            _ => Phase::Idle { until: now + self.timeouts.idle + self.timeouts.head },
        });
        if let Some(waker) = self.response_waker.take() {
            waker.wake();
        }
    }

    /// Polls the connection again when the response is finished.
    pub(crate) fn wake_after_response(&self, waker: &Waker) {
        self.response_waker.set(Some(waker.clone()));
    }

    /// The socket was read to its end.
    pub(crate) fn set_client_closed(&self) {
        self.client_closed.set(true);
        self.client_close.notify_waiters();
    }

    /// Waits until the client has closed its side. Cancel-safe.
    pub(crate) async fn client_closed(&self) {
        let closed = self.client_close.notified();
        if !self.client_closed.get() {
            closed.await;
        }
    }

    /// Whether the next request has not begun.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase.get(), Phase::Idle { .. })
    }

    /// The first byte of a request head has arrived.
    pub(crate) fn head_started(&self) {
        self.phase.set(Phase::Head { until: Instant::now() + self.timeouts.head });
    }

    pub(crate) fn is_reading_head(&self) -> bool {
        matches!(self.phase.get(), Phase::Head { .. })
    }

    /// Whether further input must not reach the parser: the rest of a refused body, or bytes after the last request.
    pub(crate) fn blocks_input(&self) -> bool {
        matches!(self.phase.get(), Phase::Refusing | Phase::Closing { .. })
    }

    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.phase.get(), Phase::Closing { .. })
    }

    pub(crate) fn timeouts(&self) -> ConnectionTimeouts {
        self.timeouts
    }

    /// When the connection is closed unless its phase changes; `None` while a request is handled.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.phase.get() {
            Phase::Handling | Phase::Refusing => None,
            Phase::Idle { until } | Phase::Head { until } | Phase::Closing { until } => Some(until),
        }
    }
}

/// Resolves when the client of a request has closed its side of the connection. actix itself continues the response then: one that waits for
/// records would end only when a write fails.
///
/// The close is not seen while unread bytes of pipelined requests are before it in the socket.
pub(crate) struct ClientClose {
    /// `None` in tests that call routes without a connection.
    phase: Option<Rc<ConnectionPhase>>,
}

impl ClientClose {
    pub(crate) fn of(request: &HttpRequest) -> Self {
        Self { phase: ConnectionPhase::of(request) }
    }

    /// Waits until the client has closed its side; at once if it has. Cancel-safe.
    pub(crate) async fn closed(&self) {
        match &self.phase {
            Some(phase) => phase.client_closed().await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_behind_the_last_request_of_a_connection() {
        let second = Duration::from_secs(1);
        let phase =
            ConnectionPhase::new(ConnectionTimeouts { head: second, idle: second, stall: second, close: second });
        phase.request_started(false);
        phase.response_finished();
        assert!(phase.is_idle() && !phase.blocks_input());

        phase.request_started(true);
        assert!(!phase.blocks_input(), "its body may still arrive");
        phase.response_finished();

        assert!(phase.blocks_input() && phase.is_closing(), "also while the response waits for the client");
    }
}
