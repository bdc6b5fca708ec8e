//! Reads a request body within the limits of size and time, and determines whether it is complete.
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header::CONTENT_LENGTH;
use actix_web::web::{Bytes, BytesMut, Payload};
use futures::{FutureExt, StreamExt};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::error::{ErrorCode, Problem};
use crate::http::options::Options;

/// Largest first allocation in bytes, also where `Content-Length` is larger.
const FIRST_BYTES: usize = 16 * 1024;

/// Bytes of an unread body that are discarded to keep its connection; a longer body costs the connection.
const DISCARD_MAX: usize = 16 * 1024;

/// Longest pause in the arrival of a body while the service stops: a client that has stopped sending would delay the stop by up to
/// `http.body_timeout`.
const STOPPING_STALL_MAX: Duration = Duration::from_secs(2);
/// Interval between two checks whether the service stops, while a body does not arrive.
const STOPPING_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The body of a request while it is received.
pub(crate) struct IncomingBody {
    payload: Payload,
    /// The transfer coding is not valid, or the client closed before the end. actix reports it once.
    broken: bool,
}

impl IncomingBody {
    pub(crate) fn new(payload: Payload) -> Self {
        Self { payload, broken: false }
    }

    /// The next bytes, or `None` at the end. Cancel-safe.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        self.payload.next().await.transpose().map_err(|_| {
            self.broken = true;
            broken()
        })
    }
}

/// A request body that was not read to its end. Its connection serves no further request, because the rest of the body would be parsed as one.
pub(crate) enum UnreadBody {
    /// More of it may arrive.
    Rest {
        /// Held until the response is complete.
        _body: IncomingBody,
    },
    /// Its transfer coding is not valid, so nothing that follows has a meaning.
    Broken,
}

/// Discards the received bytes of a body that its handler did not read, without waiting for more; `None` when the body is complete.
pub(crate) async fn discard_received(mut body: IncomingBody) -> Option<UnreadBody> {
    let (mut discarded, mut yielded) = (0, false);
    while !body.broken {
        match body.next().now_or_never() {
            Some(Ok(None)) => return None,
            Some(Ok(Some(chunk))) => (discarded, yielded) = (discarded + chunk.len(), false),
            Some(Err(_)) => break,
            // actix decodes the bytes in its buffer while the handler waits.
            None if !yielded && discarded <= DISCARD_MAX => {
                yielded = true;
                yield_now().await;
            }
            None => return Some(UnreadBody::Rest { _body: body }),
        }
    }
    Some(UnreadBody::Broken)
}

/// Reads the whole body into memory. `is_stopping` is whether the service stops.
///
/// # Errors
/// 413 above `http.body_max`, 408 after `http.body_timeout`, 400 for a body that ends early, 503 for one that does not go on while the service
/// stops.
pub(crate) async fn read_body(
    body: &mut IncomingBody,
    request: &HttpRequest,
    options: &Options,
    is_stopping: impl Fn() -> bool,
) -> Result<Bytes, Problem> {
    let announced =
        request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > options.body_max) {
        return Err(too_large());
    }
    let late = |_| Err(Problem::new(ErrorCode::RequestTimeout, "the body did not arrive in time"));
    let whole = collect(body, announced, options.body_max, is_stopping);
    timeout(options.body_timeout, whole).await.unwrap_or_else(late)
}

async fn collect(
    incoming: &mut IncomingBody,
    announced: Option<usize>,
    max: usize,
    is_stopping: impl Fn() -> bool,
) -> Result<Bytes, Problem> {
    let Some(first) = next_unless_stopping(incoming, &is_stopping).await? else { return Ok(Bytes::new()) };
    if first.len() > max {
        return Err(too_large());
    }
    // Most bodies arrive in one chunk and need no copy.
    if announced == Some(first.len()) {
        return Ok(first);
    }
    let mut body = BytesMut::with_capacity(announced.unwrap_or(FIRST_BYTES).min(FIRST_BYTES).max(first.len()));
    body.extend_from_slice(&first);
    while let Some(chunk) = next_unless_stopping(incoming, &is_stopping).await? {
        if body.len() + chunk.len() > max {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// The next bytes, or `None` at the end; 503 where none arrive for [`STOPPING_STALL_MAX`] and the service stops.
async fn next_unless_stopping(
    incoming: &mut IncomingBody,
    is_stopping: impl Fn() -> bool,
) -> Result<Option<Bytes>, Problem> {
    let mut stalled = Duration::ZERO;
    loop {
        match timeout(STOPPING_CHECK_INTERVAL, incoming.next()).await {
            Ok(next) => return next,
            Err(_) => stalled += STOPPING_CHECK_INTERVAL,
        }
        if stalled >= STOPPING_STALL_MAX && is_stopping() {
            return Err(Problem::unavailable(
                "the service stops, and the body does not arrive; nothing was changed",
                1,
            ));
        }
    }
}

/// 400 for a body whose end cannot be found.
pub(crate) fn broken() -> Problem {
    Problem::bad_request("the body ended early or its transfer coding is not valid")
}

fn too_large() -> Problem {
    Problem::new(ErrorCode::PayloadTooLarge, "the body is larger than allowed")
}
