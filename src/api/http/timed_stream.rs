//! A TCP stream that enforces the connection's timeouts, and gives the parser one request at a time.
//!
//! actix times only the first request head of a connection, and polls that timer before it polls the socket. A client that stalls in a
//! later head, or that reads no response, would occupy one of `http.max_connections` forever; a client whose request waited while this
//! process was suspended would get 408.
//!
//! actix encodes a response with the method, version and connection options of the request that it parsed last, and takes its body for that
//! of the response's request. A pipelined request that is parsed before the response is complete would change that response.
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_server::GracefulShutdownSignal;
use actix_web::rt::net::TcpStream;
use actix_web::web::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::http::connection_timeouts::{ConnectionPhase, ConnectionTimeouts};
use crate::http::request_scanner::{HeaderNameTooLong, RequestScanner};

/// After a deadline the socket is read once more for this long: bytes that arrived in time must be seen before the client gets 408.
const FINAL_READ: Duration = Duration::from_millis(100);
/// Longest time in which the socket accepts no byte of a response while the service stops: a client that has stopped reading would delay the
/// stop until its deadline.
const STOPPING_STALL_MAX: Duration = Duration::from_secs(1);

/// The whole response to a head with a header name that is too long.
const HEADERS_TOO_LARGE: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Builds the whole 408 response for a head that did not arrive in time.
pub(crate) type TimeoutResponse = Arc<dyn Fn() -> Vec<u8> + Send + Sync>;

/// A stream whose reads and writes fail with `TimedOut` when the client exceeds the connection's timeouts.
pub(crate) struct TimedStream {
    stream: TcpStream,
    phase: Rc<ConnectionPhase>,
    /// Fires no later than the deadline. It is re-armed when it fires early, so that requests need not touch the timer.
    timer: Pin<Box<Sleep>>,
    /// The deadline has passed and the timer runs once more for [`FINAL_READ`].
    in_final_read: bool,
    timeout_response: TimeoutResponse,
    request: RequestScanner,
    /// Bytes behind the current request, which wait for its response. The socket is not read meanwhile, so there are at most as many as the
    /// parser's buffer takes in one read.
    surplus: BytesMut,
    /// 431 was sent; the rest of the request is discarded.
    rejected: bool,
    /// Present while the client accepts no bytes.
    stalled_write: Option<StalledWrite>,
    stopping: GracefulShutdownSignal,
}

/// A write of which the client has accepted no byte yet.
struct StalledWrite {
    since: Instant,
    timer: Pin<Box<Sleep>>,
    /// Ends when the service begins to stop.
    stop: Pin<Box<dyn Future<Output = ()>>>,
    is_stopping: bool,
}

impl StalledWrite {
    fn begin(limit: Duration, stopping: &GracefulShutdownSignal) -> Self {
        let (since, stopping) = (Instant::now(), stopping.clone());
        let stop = Box::pin(async move { stopping.notified().await });
        Self { since, timer: Box::pin(sleep_until(since + limit)), stop, is_stopping: false }
    }

    /// Ready when the limit is exceeded: [`STOPPING_STALL_MAX`] while the service stops.
    fn poll_limit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_stopping && self.stop.as_mut().poll(cx).is_ready() {
            self.is_stopping = true;
            let until = self.timer.deadline().min(self.since + STOPPING_STALL_MAX);
            self.timer.as_mut().reset(until);
        }
        self.timer.as_mut().poll(cx)
    }
}

impl TimedStream {
    pub(crate) fn new(
        stream: TcpStream,
        timeouts: ConnectionTimeouts,
        timeout_response: TimeoutResponse,
        stopping: GracefulShutdownSignal,
    ) -> Self {
        let timer = Box::pin(sleep_until(Instant::now() + timeouts.head));
        Self {
            stream,
            phase: ConnectionPhase::new(timeouts),
            timer,
            in_final_read: false,
            timeout_response,
            request: RequestScanner::default(),
            surplus: BytesMut::new(),
            rejected: false,
            stalled_write: None,
            stopping,
        }
    }

    pub(crate) fn phase(&self) -> Rc<ConnectionPhase> {
        Rc::clone(&self.phase)
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let sooner = self.phase.deadline().filter(|until| !self.in_final_read && *until < self.timer.deadline());
        if let Some(until) = sooner {
            self.timer.as_mut().reset(until);
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            let deadline = self.phase.deadline();
            let expired = deadline.is_some_and(|until| until <= now);
            if expired && self.in_final_read {
                self.send_timeout_response();
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            self.in_final_read = expired;
            let next = if expired { now + FINAL_READ } else { deadline.unwrap_or(now + self.phase.timeouts().head) };
            self.timer.as_mut().reset(next);
        }
    }

    /// Gives the parser the next bytes of the current request: those of the surplus first. Ready without bytes at the end of the stream.
    fn poll_request(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let from_socket = self.surplus.is_empty();
        if from_socket {
            ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
            if buffer.filled().len() == before && buffer.remaining() > 0 {
                self.phase.set_client_closed();
            }
        } else {
            buffer.put_slice(&self.surplus[..self.surplus.len().min(buffer.remaining())]);
        }
        let Ok(accepted) = self.accept(&mut buffer.filled_mut()[before..]) else {
            buffer.set_filled(before);
            self.reject(cx);
            return self.poll_discard(cx).map(Err);
        };
        let arrived = &buffer.filled()[before..];
        let is_held = accepted == 0 && !arrived.is_empty();
        if from_socket {
            self.surplus.extend_from_slice(&arrived[accepted..]);
        } else {
            drop(self.surplus.split_to(accepted));
        }
        buffer.set_filled(before + accepted);
        if is_held { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Notices that the client has closed while pipelined requests wait, when the socket is not read. Bytes that are still in the socket hide the
    /// close.
    fn detect_close(&self, cx: &mut Context<'_>) {
        let mut byte = [0];
        let mut peeked = ReadBuf::new(&mut byte);
        if let Poll::Ready(Ok(0) | Err(_)) = self.stream.poll_peek(cx, &mut peeked) {
            self.phase.set_client_closed();
        }
    }

    /// Updates the phase; returns how many of the bytes belong to the current request.
    fn accept(&mut self, bytes: &mut [u8]) -> Result<usize, HeaderNameTooLong> {
        if !bytes.is_empty() && self.phase.is_idle() {
            self.request.start_request();
            // Empty lines before a request are no part of it (RFC 9112, 2.2): some clients send one behind a body.
            if bytes.iter().any(|byte| !matches!(byte, b'\r' | b'\n')) {
                self.phase.head_started();
            }
        }
        self.request.accept(bytes)
    }

    fn reject(&mut self, cx: &mut Context<'_>) {
        self.rejected = true;
        if self.phase.is_reading_head() && self.stalled_write.is_none() {
            // A full send buffer: the client is disconnected without the response.
            let _ = self.stream.try_write(HEADERS_TOO_LARGE);
        }
        // A failed shutdown means that the connection is closed already.
        let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
    }

    /// Closes after the last response: closes the sending side at once, and discards what arrives until the client closes or the
    /// deadline passes. Never ready without an error, so that actix writes nothing more and parses nothing more.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        // A failed shutdown means that the connection is closed already. A repeated one has no effect.
        let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
        // A client that sends without a pause must not keep the reads ready beyond the deadline.
        if self.phase.deadline().is_some_and(|until| until <= Instant::now()) {
            return Poll::Ready(io::ErrorKind::TimedOut.into());
        }
        self.poll_discard(cx)
    }

    /// Discards what a rejected client still sends: closing with unread data would reset the connection before the client reads the 431.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let mut scratch = [0; 4_096];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(io::ErrorKind::InvalidData.into()),
                Poll::Pending => return self.poll_deadline(cx),
            }
        }
    }

    /// Writes as much of the 408 as fits in the send buffer. Never while another response is partly written.
    fn send_timeout_response(&self) {
        if self.phase.is_reading_head() && self.stalled_write.is_none() && !self.rejected {
            // The connection is closed next, also if nothing was written.
            let _ = self.stream.try_write(&(self.timeout_response)());
        }
    }

    /// Fails a write that has been pending for the stall timeout, or for a shorter one while the service stops.
    fn check_stall<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled_write = None;
            return written;
        }
        let limit = self.phase.timeouts().stall;
        let stalled = self.stalled_write.get_or_insert_with(|| StalledWrite::begin(limit, &self.stopping));
        ready!(stalled.poll_limit(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.rejected {
            return this.poll_discard(cx).map(Err);
        }
        if this.phase.blocks_input() {
            // The response wakes the connection, and [`Self::poll_close`] reads after it.
            return Poll::Pending;
        }
        if let Poll::Ready(read) = this.poll_request(cx, buffer) {
            return Poll::Ready(read);
        }
        if !this.surplus.is_empty() {
            this.phase.wake_after_response(cx.waker());
            this.detect_close(cx);
        }
        this.poll_deadline(cx).map(Err)
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.check_stall(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // actix flushes after all bytes of the response were written.
        if this.phase.is_closing() {
            return this.poll_close(cx).map(Err);
        }
        Pin::new(&mut this.stream).poll_flush(cx)
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
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, pieces);
        this.check_stall(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
