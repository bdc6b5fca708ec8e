//! Responses of handlers: JSON and other content types.
use std::fmt::Display;

use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue};
use actix_web::web::Bytes;
use serde::{Serialize, Serializer};

use crate::error::Problem;

/// What a handler returns.
pub(crate) type RouteResult = Result<HttpResponse, Problem>;

pub(crate) fn json_response(status: StatusCode, body: &impl Serialize) -> HttpResponse {
    let body = serde_json::to_vec(body).expect("bodies hold only texts, numbers, lists and objects");
    with_type(status, "application/json", body)
}

/// 200 with a JSON body.
pub(crate) fn ok(body: &impl Serialize) -> HttpResponse {
    json_response(StatusCode::OK, body)
}

pub(crate) fn with_type(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = HttpResponse::with_body(status, BoxBody::new(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Serialises a value as its `Display` text, without an intermediate `String`.
pub(crate) struct AsText<T>(pub(crate) T);

impl<T: Display> Serialize for AsText<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}
