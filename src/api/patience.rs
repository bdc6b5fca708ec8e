//! How long a connection may take its time. actix has a timer for a connection's first head only, and looks at it before it looks at
//! the socket: a client that sends the first byte of a later head and nothing more, or that reads no answer, would keep its place among
//! `http.max_connections` for ever, and one whose request waited while this process was stopped would be told that it was slow.
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::rt::net::TcpStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::line::{Limits, Line};
use crate::names::Names;

/// Between a deadline and its consequence: whatever arrived in time is read before its sender is called late.
const LAST_LOOK: Duration = Duration::from_millis(100);

/// What a client is told whose header's name no library holds.
const TOO_LARGE: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// What a client is told that does not finish a head: the whole answer as it goes over the wire.
pub(crate) type Farewell = Arc<dyn Fn() -> Vec<u8> + Send + Sync>;

/// A stream that fails with `TimedOut` once its client has taken longer than it may.
pub(crate) struct Timed {
    stream: TcpStream,
    line: Rc<Line>,
    /// Fires no later than the deadline; often earlier, and is set again then: requests come and go without touching a timer.
    alarm: Pin<Box<Sleep>>,
    /// The deadline is over, and the alarm rings once more.
    last_look: bool,
    farewell: Farewell,
    /// What has come of the head that arrives.
    names: Names,
    /// It was told no.
    refused: bool,
    /// There while the client takes nothing of what is sent.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Timed {
    pub(crate) fn new(stream: TcpStream, limits: Limits, farewell: Farewell) -> Self {
        let alarm = Box::pin(sleep_until(Instant::now() + limits.head));
        Self {
            stream,
            line: Line::new(limits),
            alarm,
            last_look: false,
            farewell,
            names: Names::default(),
            refused: false,
            stalled: None,
        }
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
            let next = if over { now + LAST_LOOK } else { deadline.unwrap_or(now + self.line.limits().head) };
            self.alarm.as_mut().reset(next);
        }
    }

    /// False when what comes would break the parser.
    fn hears(&mut self, bytes: &[u8]) -> bool {
        if !bytes.is_empty() && self.line.heard() {
            self.names = Names::default();
        }
        !self.line.is_head() || self.names.hear(bytes)
    }

    /// Says no and nothing more.
    fn refuse(&mut self, cx: &mut Context<'_>) {
        self.refused = true;
        if self.stalled.is_none() {
            let _ = self.stream.try_write(TOO_LARGE);
        }
        // One that cannot be ended is gone.
        let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
    }

    /// Reads what a refused client still sends: to close on it would take the refusal out of its hands.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let mut scratch = [0; 4_096];
        loop {
            let mut unread = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(cx, &mut unread) {
                Poll::Ready(Ok(())) if !unread.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(io::ErrorKind::InvalidData.into()),
                Poll::Pending => return self.poll_patience(cx),
            }
        }
    }

    /// As much as goes at once: whoever is this slow is not waited for. Never into an answer that is not sent yet.
    fn bid_farewell(&self) {
        if self.line.is_head() && self.stalled.is_none() && !self.refused {
            let _ = self.stream.try_write(&(self.farewell)());
        }
    }

    /// Watches a write that does not go: whoever reads nothing for so long is gone.
    fn watch<T>(&mut self, cx: &mut Context<'_>, went: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if went.is_ready() {
            self.stalled = None;
            return went;
        }
        let limit = self.line.limits().stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Timed {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.refused {
            return this.poll_gone(cx).map(Err);
        }
        let before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buffer) {
            if this.hears(&buffer.filled()[before..]) {
                return Poll::Ready(read);
            }
            buffer.set_filled(before);
            this.refuse(cx);
            return this.poll_gone(cx).map(Err);
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
