//! Serves the OpenAPI document at `/openapi.json` and its user interface at `/docs`, both from the binary.
use std::sync::{Arc, LazyLock};

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue};
use actix_web::web::Bytes;
use utoipa_swagger_ui::Config;

use crate::error::Problem;
use crate::openapi::document::{openapi_json, openapi_json_without_orders};
use crate::request::context::RequestContext;
use crate::request::response::{RouteResult, with_type};
use crate::request::route::{Endpoint, Resource, handler};

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(openapi_json()));
static DOCUMENT_WITHOUT_ORDERS: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(openapi_json_without_orders()));
static UI: LazyLock<Arc<Config<'static>>> = LazyLock::new(|| Arc::new(Config::from("/openapi.json").use_base_layout()));

/// Swagger UI sets inline styles and uses `data:` images; everything else is served from here.
const POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      frame-ancestors 'none'; base-uri 'self'";

/// The OpenAPI document, for clients and operators.
pub(crate) fn document() -> Vec<Resource> {
    vec![Resource::at("/openapi.json").on(Endpoint::get(handler!(openapi)).rate_limited())]
}

/// The user interface, served on the admin surface.
pub(crate) fn pages() -> Vec<Resource> {
    vec![
        Resource::at("/docs").on(Endpoint::get(handler!(index)).not_json().rate_limited()),
        Resource::at("/docs/{file}").on(Endpoint::get(handler!(file)).not_json().rate_limited()),
    ]
}

async fn openapi(context: RequestContext) -> RouteResult {
    let document = if context.state.options.orders_enabled { &DOCUMENT } else { &DOCUMENT_WITHOUT_ORDERS };
    Ok(with_type(StatusCode::OK, "application/json", (*document).clone()))
}

/// The page refers to its files relatively, but is served at `/docs` without a trailing slash.
async fn index(_context: RequestContext) -> RouteResult {
    let (bytes, _) = asset("index.html")?;
    let page = String::from_utf8_lossy(&bytes);
    let page = page.replacen("<head>", "<head>\n    <base href=\"/docs/\">", 1);
    Ok(with_headers(with_type(StatusCode::OK, "text/html; charset=utf-8", page)))
}

async fn file(context: RequestContext) -> RouteResult {
    let (bytes, content_type) = asset(context.path_parameter("file"))?;
    Ok(with_headers(with_type(StatusCode::OK, content_type, bytes)))
}

fn asset(name: &str) -> Result<(Vec<u8>, &'static str), Problem> {
    let file =
        utoipa_swagger_ui::serve(name, Arc::clone(&UI)).map_err(|error| Problem::unexpected(error.to_string()))?;
    let file = file.ok_or_else(|| Problem::not_found("no such route"))?;
    let content_type = match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "png" => "image/png",
        "map" | "json" => "application/json",
        _ => "application/octet-stream",
    };
    Ok((file.bytes.into_owned(), content_type))
}

fn with_headers(mut response: HttpResponse) -> HttpResponse {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    response
}
