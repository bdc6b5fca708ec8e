//! Where a connection stands between its requests, and until when what it waits for must come.
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

/// What a connection may take.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// For a head: the first from the connection's begin, a later one from its first byte.
    pub(crate) head: Duration,
    /// Between an answer and the next head.
    pub(crate) idle: Duration,
    /// Without taking a byte of an answer that waits.
    pub(crate) stall: Duration,
}

/// Where a connection stands; shared with the requests that come over it.
pub(crate) struct Line {
    limits: Limits,
    phase: Cell<Phase>,
}

#[derive(Clone, Copy)]
enum Phase {
    /// A request is answered.
    Busy,
    /// Nothing has come since the last answer.
    Idle(Instant),
    /// A head arrives.
    Head(Instant),
}

impl Line {
    pub(crate) fn new(limits: Limits) -> Rc<Self> {
        Rc::new(Self { limits, phase: Cell::new(Phase::Head(Instant::now() + limits.head)) })
    }

    /// A request's head is complete.
    pub(crate) fn asked(&self) {
        self.phase.set(Phase::Busy);
    }

    /// The server is done with the answer. Bytes of a further head may have come already, so idling has an end of ours, too.
    pub(crate) fn answered(&self) {
        self.phase.set(Phase::Idle(Instant::now() + self.limits.idle + self.limits.head));
    }

    /// Whether a head begins with it.
    pub(crate) fn heard(&self) -> bool {
        let begins = matches!(self.phase.get(), Phase::Idle(_));
        if begins {
            self.phase.set(Phase::Head(Instant::now() + self.limits.head));
        }
        begins
    }

    /// Whether a head arrives.
    pub(crate) fn is_head(&self) -> bool {
        matches!(self.phase.get(), Phase::Head(_))
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Until when what it waits for must come.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.phase.get() {
            Phase::Busy => None,
            Phase::Idle(until) | Phase::Head(until) => Some(until),
        }
    }
}
