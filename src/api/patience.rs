//! How long a connection may take its time. actix has a timer for a connection's first head only, and looks at it before it looks at
//! the socket: a client that sends the first byte of a later head and nothing more, or that reads no answer, would keep its place among
//! `http.max_connections` for ever, and one whose request waited while this process was stopped would be told that it was slow.
use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::rt::net::TcpStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Between a deadline and its consequence: whatever arrived in time is read before its sender is called late.
const LAST_LOOK: Duration = Duration::from_millis(100);

/// What a client is told that does not finish a head: the whole answer as it goes over the wire.
pub(crate) type Farewell = Arc<dyn Fn() -> Vec<u8> + Send + Sync>;

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
    fn new(limits: Limits) -> Rc<Self> {
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

    fn heard(&self) {
        if let Phase::Idle(_) = self.phase.get() {
            self.phase.set(Phase::Head(Instant::now() + self.limits.head));
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.phase.get() {
            Phase::Busy => None,
            Phase::Idle(until) | Phase::Head(until) => Some(until),
        }
    }
}

/// A stream that fails with `TimedOut` once its client has taken longer than it may.
pub(crate) struct Timed {
    stream: TcpStream,
    line: Rc<Line>,
    /// Fires no later than the deadline; often earlier, and is set again then: requests come and go without touching a timer.
    alarm: Pin<Box<Sleep>>,
    /// The deadline is over, and the alarm rings once more.
    last_look: bool,
    farewell: Farewell,
    /// There while the client takes nothing of what is sent.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Timed {
    pub(crate) fn new(stream: TcpStream, limits: Limits, farewell: Farewell) -> Self {
        let alarm = Box::pin(sleep_until(Instant::now() + limits.head));
        Self { stream, line: Line::new(limits), alarm, last_look: false, farewell, stalled: None }
    }

    pub(crate) fn line(&self) -> Rc<Line> {
        Rc::clone(&self.line)
    }

    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let sooner = self.line.deadline().filter(|until| !self.last_look && *until < self.alarm.deadline());
        if let Some(until) = sooner {
            self.alarm.as_mut().reset(until);
        }
        loop {
            ready!(self.alarm.as_mut().poll(cx));
            let now = Instant::now();
            let deadline = self.line.deadline();
            let over = deadline.is_some_and(|until| until <= now);
            if over && self.last_look {
                self.bid_farewell();
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            self.last_look = over;
            let next = if over { now + LAST_LOOK } else { deadline.unwrap_or(now + self.line.limits.head) };
            self.alarm.as_mut().reset(next);
        }
    }

    /// As much as goes at once: whoever is this slow is not waited for. Never into an answer that is not sent yet.
    fn bid_farewell(&self) {
        if matches!(self.line.phase.get(), Phase::Head(_)) && self.stalled.is_none() {
            let _ = self.stream.try_write(&(self.farewell)());
        }
    }

    /// Watches a write that does not go: whoever reads nothing for so long is gone.
    fn watch<T>(&mut self, cx: &mut Context<'_>, went: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if went.is_ready() {
            self.stalled = None;
            return went;
        }
        let limit = self.line.limits.stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Timed {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buffer) {
            if buffer.filled().len() > before {
                this.line.heard();
            }
            return Poll::Ready(read);
        }
        this.poll_patience(cx).map(Err)
    }
}

impl AsyncWrite for Timed {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let went = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.watch(cx, went)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let went = Pin::new(&mut this.stream).poll_write_vectored(cx, pieces);
        this.watch(cx, went)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
