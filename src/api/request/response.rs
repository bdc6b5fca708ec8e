//! Responses of handlers: JSON and other content types.
use std::fmt::Display;

use actix_web::body::BoxBody;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use actix_web::http::{ConnectionType, StatusCode, Version};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use serde::{Serialize, Serializer};

use crate::error::Problem;

/// The result of a handler.
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

/// 303 to a page of the console, the response to a successful form.
pub(crate) fn see_other(to: &str) -> HttpResponse {
    // Callers pass only console paths that are percent-encoded or checked to be ASCII.
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/console"));
    HttpResponse::SeeOther().insert_header((LOCATION, to)).finish()
}

/// HTTP/1.0 has no chunks: there the end of the connection is the end of a streamed response.
pub(crate) fn end_without_chunks(request: &HttpRequest, response: &mut HttpResponse) {
    if request.version() < Version::HTTP_11 {
        response.head_mut().no_chunking(true);
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
}

/// Serialises a value as its `Display` text, without an intermediate `String`.
pub(crate) struct AsText<T>(pub(crate) T);

impl<T: Display> Serialize for AsText<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}
