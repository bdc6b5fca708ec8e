//! The style sheet and the scripts, served from the binary.
use actix_web::http::StatusCode;

use crate::request::context::RequestContext;
use crate::request::response::{RouteResult, with_type};

pub(crate) async fn style(_context: RequestContext) -> RouteResult {
    Ok(with_type(StatusCode::OK, "text/css; charset=utf-8", include_str!("assets/console.css")))
}

pub(crate) async fn favicon(_context: RequestContext) -> RouteResult {
    Ok(with_type(StatusCode::OK, "image/svg+xml", include_str!("assets/favicon.svg")))
}

pub(crate) async fn theme(_context: RequestContext) -> RouteResult {
    Ok(with_type(StatusCode::OK, "text/javascript; charset=utf-8", include_str!("assets/theme.js")))
}

pub(crate) async fn script(_context: RequestContext) -> RouteResult {
    Ok(with_type(StatusCode::OK, "text/javascript; charset=utf-8", include_str!("assets/console.js")))
}
