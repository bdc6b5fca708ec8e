//! The phase of a connection between its requests, and the deadline of that phase.
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

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
}

/// The phase of a connection; its requests share it with its stream.
pub(crate) struct ConnectionPhase {
    timeouts: ConnectionTimeouts,
    phase: Cell<Phase>,
}

#[derive(Clone, Copy)]
enum Phase {
    /// A request is being handled; the pipeline has its own timeout.
    Handling,
    /// Nothing has arrived since the last response.
    Idle { until: Instant },
    /// A request head is arriving.
    Head { until: Instant },
}

impl ConnectionPhase {
    pub(crate) fn new(timeouts: ConnectionTimeouts) -> Rc<Self> {
        let until = Instant::now() + timeouts.head;
        Rc::new(Self { timeouts, phase: Cell::new(Phase::Head { until }) })
    }

    /// A request head is complete.
    pub(crate) fn request_started(&self) {
        self.phase.set(Phase::Handling);
    }

    /// The response has been written. A pipelined head may have arrived already, so the deadline includes the time for a head.
    pub(crate) fn response_finished(&self) {
        self.phase.set(Phase::Idle { until: Instant::now() + self.timeouts.idle + self.timeouts.head });
    }

    /// Bytes arrived; true when they start a request head.
    pub(crate) fn bytes_received(&self) -> bool {
        let starts_head = matches!(self.phase.get(), Phase::Idle { .. });
        if starts_head {
            self.phase.set(Phase::Head { until: Instant::now() + self.timeouts.head });
        }
        starts_head
    }

    pub(crate) fn is_reading_head(&self) -> bool {
        matches!(self.phase.get(), Phase::Head { .. })
    }

    pub(crate) fn timeouts(&self) -> ConnectionTimeouts {
        self.timeouts
    }

    /// When the connection is closed unless its phase changes; `None` while a request is handled.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.phase.get() {
            Phase::Handling => None,
            Phase::Idle { until } | Phase::Head { until } => Some(until),
        }
    }
}
