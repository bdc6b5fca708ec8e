//! Reads a body: no more than allowed, no longer than allowed.
use actix_web::HttpRequest;
use actix_web::http::header::CONTENT_LENGTH;
use actix_web::web::{Bytes, BytesMut, Payload};
use futures::StreamExt;
use tokio::time::timeout;

use crate::error::{Kind, Problem};
use crate::json::{Json, parse};
use crate::options::Options;

/// First allocation for a body whose length is not told, and the most that a told length is believed for.
const FIRST_BYTES: usize = 16 * 1024;

/// The whole body.
pub(crate) async fn read(payload: Payload, request: &HttpRequest, options: &Options) -> Result<Bytes, Problem> {
    let told = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if told.is_some_and(|length| length > options.body_max) {
        return Err(too_large());
    }
    let late = |_| Err(Problem::new(Kind::RequestTimeout, "the body did not arrive in time"));
    timeout(options.body_timeout, collect(payload, told, options.body_max)).await.unwrap_or_else(late)
}

async fn collect(mut payload: Payload, told: Option<usize>, most: usize) -> Result<Bytes, Problem> {
    let broken = |_| Problem::bad_request("the body broke off or its transfer coding is not valid");
    let Some(first) = payload.next().await else { return Ok(Bytes::new()) };
    let first = first.map_err(broken)?;
    if first.len() > most {
        return Err(too_large());
    }
    // The usual body comes in one piece and is not copied.
    if told == Some(first.len()) {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(told.unwrap_or(FIRST_BYTES).min(FIRST_BYTES).max(first.len()));
    whole.extend_from_slice(&first);
    while let Some(piece) = payload.next().await {
        let piece = piece.map_err(broken)?;
        if whole.len() + piece.len() > most {
            return Err(too_large());
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

/// A body that must be a JSON object.
pub(crate) fn object(body: &[u8]) -> Result<Json<'_>, Problem> {
    match parse(body).map_err(|malformed| Problem::bad_request(malformed.to_string()))? {
        object @ Json::Object(_) => Ok(object),
        _ => Err(Problem::bad_request("the body must be a JSON object")),
    }
}

fn too_large() -> Problem {
    Problem::new(Kind::PayloadTooLarge, "the body is larger than allowed")
}
