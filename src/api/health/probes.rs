//! Probes for platforms: `/livez`, `/readyz`, `/startupz` in plain text; `?verbose` lists the checks.
use std::fmt::Write;

use actix_web::HttpResponse;

use crate::health::status::{HealthStatus, readiness, with_retry_after, worst};
use crate::request::context::RequestContext;
use crate::request::response::{RouteResult, with_type};
use crate::request::route::{Endpoint, Resource, handler};

pub(crate) fn resources() -> Vec<Resource> {
    vec![
        Resource::at("/livez").on(Endpoint::get(handler!(livez)).not_json()),
        Resource::at("/readyz").on(Endpoint::get(handler!(readyz)).not_json()),
        Resource::at("/startupz").on(Endpoint::get(handler!(startupz)).not_json()),
    ]
}

/// Is the process alive?
#[utoipa::path(get, path = "/livez", tag = "health", operation_id = "livez",
    params(("verbose" = Option<String>, Query, description = "List the checks")),
    responses((status = 200, description = "The process is alive", body = String, content_type = "text/plain")))]
pub(crate) async fn livez(context: RequestContext) -> RouteResult {
    Ok(report(&context, &[("process", HealthStatus::Up)]))
}

/// Is the process ready for traffic?
#[utoipa::path(get, path = "/readyz", tag = "health", operation_id = "readyz",
    params(("verbose" = Option<String>, Query, description = "List the checks")),
    responses(
        (status = 200, description = "Ready", body = String, content_type = "text/plain"),
        (status = 503, description = "Not ready", body = String, content_type = "text/plain")))]
pub(crate) async fn readyz(context: RequestContext) -> RouteResult {
    let (snapshot, now) = (context.state.operations.health(), context.state.operations.monotonic_now());
    Ok(report(&context, &readiness(&snapshot, context.state.options.unsent_age_max, now)))
}

/// Has the process started?
#[utoipa::path(get, path = "/startupz", tag = "health", operation_id = "startupz",
    params(("verbose" = Option<String>, Query, description = "List the checks")),
    responses(
        (status = 200, description = "Started", body = String, content_type = "text/plain"),
        (status = 503, description = "Still starting", body = String, content_type = "text/plain")))]
pub(crate) async fn startupz(context: RequestContext) -> RouteResult {
    let started = context.state.operations.health().started;
    Ok(report(&context, &[("startup", HealthStatus::up_or_out_of_service(started))]))
}

fn report(context: &RequestContext, checks: &[(&'static str, HealthStatus)]) -> HttpResponse {
    let status = worst(checks);
    let mut text = String::new();
    let is_verbose = |pair: &str| pair == "verbose" || (pair.starts_with("verbose=") && pair != "verbose=false");
    if context.request.query_string().split('&').any(is_verbose) {
        for (name, status) in checks {
            let sign = if *status == HealthStatus::Up { '+' } else { '-' };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "[{sign}]{name} {}", status.as_str());
        }
    }
    text.push_str(if status == HealthStatus::Up { "ok\n" } else { "not ok\n" });
    with_retry_after(with_type(status.status(), "text/plain; charset=utf-8", text))
}
