//! Reads a request body within the limits of size and time.
use actix_web::HttpRequest;
use actix_web::http::header::CONTENT_LENGTH;
use actix_web::web::{Bytes, BytesMut, Payload};
use futures::StreamExt;
use tokio::time::timeout;

use crate::error::{ErrorCode, Problem};
use crate::options::Options;

/// Bytes of the first allocation, whatever `Content-Length` announces.
const FIRST_BYTES: usize = 16 * 1024;

/// Reads the whole body into memory.
///
/// # Errors
/// 413 above `http.body_max`, 408 after `http.body_timeout`, 400 for a body that ends early.
pub(crate) async fn read_body(payload: Payload, request: &HttpRequest, options: &Options) -> Result<Bytes, Problem> {
    let announced =
        request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > options.body_max) {
        return Err(too_large());
    }
    let late = |_| Err(Problem::new(ErrorCode::RequestTimeout, "the body did not arrive in time"));
    timeout(options.body_timeout, collect(payload, announced, options.body_max)).await.unwrap_or_else(late)
}

async fn collect(mut payload: Payload, announced: Option<usize>, max: usize) -> Result<Bytes, Problem> {
    let broken = |_| Problem::bad_request("the body ended early or its transfer coding is not valid");
    let Some(first) = payload.next().await else { return Ok(Bytes::new()) };
    let first = first.map_err(broken)?;
    if first.len() > max {
        return Err(too_large());
    }
    // Most bodies arrive in one chunk and need no copy.
    if announced == Some(first.len()) {
        return Ok(first);
    }
    let mut body = BytesMut::with_capacity(announced.unwrap_or(FIRST_BYTES).min(FIRST_BYTES).max(first.len()));
    body.extend_from_slice(&first);
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(broken)?;
        if body.len() + chunk.len() > max {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

fn too_large() -> Problem {
    Problem::new(ErrorCode::PayloadTooLarge, "the body is larger than allowed")
}
