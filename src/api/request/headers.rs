//! Single-valued headers, and the request id.
use actix_web::http::header::HeaderMap;
use app::commands::request_id::{self, is_request_id};
use rand::RngCore;

/// The value of a header that must occur once; `None` when it is missing, repeated or not ASCII text.
pub(crate) fn single_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name);
    let first = values.next()?;
    if values.next().is_some() { None } else { first.to_str().ok() }
}

/// The client's `X-Request-Id` when it occurs once and matches `[A-Za-z0-9._-]{1,128}`, else a new random id.
pub(crate) fn request_id(headers: &HeaderMap) -> String {
    single_value(headers, request_id::HEADER).filter(|id| is_request_id(id)).map_or_else(random_id, str::to_owned)
}

/// Whether the client has named the request by a valid id.
pub(crate) fn has_request_id(headers: &HeaderMap) -> bool {
    single_value(headers, request_id::HEADER).is_some_and(is_request_id)
}

fn random_id() -> String {
    let mut rng = rand::rng();
    format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64())
}
