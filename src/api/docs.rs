//! The OpenAPI document at `/openapi.json`, and its UI at `/docs`, both out of the binary.
use std::sync::{Arc, LazyLock};

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue};
use actix_web::web::Bytes;
use utoipa_swagger_ui::Config;

use crate::call::{Call, typed};
use crate::error::Problem;
use crate::openapi::openapi_json;
use crate::route::{Answer, Endpoint, Resource, handler};

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(openapi_json()));
static UI: LazyLock<Arc<Config<'static>>> = LazyLock::new(|| Arc::new(Config::from("/openapi.json").use_base_layout()));

/// The UI styles elements as it goes, and draws images from data; all else comes from here.
const POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      frame-ancestors 'none'; base-uri 'self'";

pub(crate) fn resources() -> Vec<Resource> {
    vec![
        Resource::at("/openapi.json").on(Endpoint::get(handler!(document)).counted()),
        Resource::at("/docs").on(Endpoint::get(handler!(index)).other().counted()),
        Resource::at("/docs/{file}").on(Endpoint::get(handler!(file)).other().counted()),
    ]
}

async fn document(_call: Call) -> Answer {
    Ok(typed(StatusCode::OK, "application/json", DOCUMENT.clone()))
}

/// The UI's page names its files relative to itself, but stands at `/docs`, not `/docs/`.
async fn index(_call: Call) -> Answer {
    let (bytes, _) = asset("index.html")?;
    let page = String::from_utf8_lossy(&bytes);
    let page = page.replacen("<head>", "<head>\n    <base href=\"/docs/\">", 1);
    Ok(dressed(typed(StatusCode::OK, "text/html; charset=utf-8", page)))
}

async fn file(call: Call) -> Answer {
    let (bytes, content_type) = asset(call.part("file"))?;
    Ok(dressed(typed(StatusCode::OK, content_type, bytes)))
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

fn dressed(mut answer: HttpResponse) -> HttpResponse {
    let headers = answer.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    answer
}
