//! Probes for platforms: `/livez`, `/readyz`, `/startupz`, in plain text; `?verbose` lists the checks.
//! Everything is read from the picture that the managers paint, so a probe each second costs nothing.
use std::fmt::Write;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderValue, RETRY_AFTER};
use app::health::HealthSnapshot;

use crate::call::{Call, typed};
use crate::error::Kind;
use crate::options::Options;
use crate::route::{Answer, Endpoint, Resource, handler};

pub(crate) fn resources() -> Vec<Resource> {
    vec![
        Resource::at("/livez").on(Endpoint::get(handler!(livez)).other()),
        Resource::at("/readyz").on(Endpoint::get(handler!(readyz)).other()),
        Resource::at("/startupz").on(Endpoint::get(handler!(startupz)).other()),
    ]
}

/// How something fares, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fare {
    Up,
    Unknown,
    OutOfService,
    Down,
}

impl Fare {
    /// Spring's word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Fare::Up => "UP",
            Fare::Unknown => "UNKNOWN",
            Fare::OutOfService => "OUT_OF_SERVICE",
            Fare::Down => "DOWN",
        }
    }

    pub(crate) fn of(up: bool) -> Self {
        if up { Fare::Up } else { Fare::Down }
    }

    /// 200, or 503 when no traffic should come.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Fare::Up | Fare::Unknown => StatusCode::OK,
            Fare::OutOfService | Fare::Down => Kind::Infrastructure.status(),
        }
    }
}

/// What readiness hangs on. A broker that is away is not among it: events pile up, and orders are taken.
pub(crate) fn readiness(picture: &HealthSnapshot, options: &Options) -> Vec<(&'static str, Fare)> {
    let mut checks = vec![
        ("startup", if picture.started { Fare::Up } else { Fare::OutOfService }),
        ("drain", if picture.draining { Fare::OutOfService } else { Fare::Up }),
        ("region", if picture.passive { Fare::OutOfService } else { Fare::Up }),
        ("room", Fare::of(picture.no_room.is_none())),
    ];
    let gating = picture.components.iter().filter(|component| component.gates || component.name == "db");
    // Whether traffic should come is asked here; that a dependency is DOWN is its own health's to say.
    let fare = |up| if up { Fare::Up } else { Fare::OutOfService };
    checks.extend(gating.map(|component| (component.name, fare(component.up))));
    if !options.unsent_age_max.is_zero() {
        checks.push(("outbox", Fare::of(!is_overdue(picture, options))));
    }
    checks
}

/// Whether the oldest unsent event is older than is allowed.
pub(crate) fn is_overdue(picture: &HealthSnapshot, options: &Options) -> bool {
    let limit = options.unsent_age_max;
    !limit.is_zero() && picture.depth.oldest_unsent.is_some_and(|age| age > limit)
}

/// The worst of some.
pub(crate) fn worst(checks: &[(&'static str, Fare)]) -> Fare {
    checks.iter().map(|(_, fare)| *fare).max().unwrap_or(Fare::Up)
}

/// Is the process alive?
#[utoipa::path(get, path = "/livez", tag = "health", operation_id = "livez",
    params(("verbose" = Option<String>, Query, description = "List the checks")),
    responses((status = 200, description = "It is", body = String, content_type = "text/plain")))]
pub(crate) async fn livez(call: Call) -> Answer {
    Ok(report(&call, &[("process", Fare::Up)]))
}

/// May traffic come?
#[utoipa::path(get, path = "/readyz", tag = "health", operation_id = "readyz",
    params(("verbose" = Option<String>, Query, description = "List the checks")),
    responses(
        (status = 200, description = "It may", body = String, content_type = "text/plain"),
        (status = 503, description = "Not now", body = String, content_type = "text/plain")))]
pub(crate) async fn readyz(call: Call) -> Answer {
    let picture = call.state.operations.health();
    Ok(report(&call, &readiness(&picture, &call.state.options)))
}

/// Is the start over?
#[utoipa::path(get, path = "/startupz", tag = "health", operation_id = "startupz",
    params(("verbose" = Option<String>, Query, description = "List the checks")),
    responses(
        (status = 200, description = "It is", body = String, content_type = "text/plain"),
        (status = 503, description = "Not yet", body = String, content_type = "text/plain")))]
pub(crate) async fn startupz(call: Call) -> Answer {
    let started = call.state.operations.health().started;
    Ok(report(&call, &[("startup", if started { Fare::Up } else { Fare::OutOfService })]))
}

fn report(call: &Call, checks: &[(&'static str, Fare)]) -> HttpResponse {
    let fare = worst(checks);
    let mut text = String::new();
    let wanted = |pair: &str| pair == "verbose" || (pair.starts_with("verbose=") && pair != "verbose=false");
    let verbose = call.request.query_string().split('&').any(wanted);
    if verbose {
        for (name, fare) in checks {
            let sign = if *fare == Fare::Up { '+' } else { '-' };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "[{sign}]{name} {}", fare.as_str());
        }
    }
    text.push_str(if fare == Fare::Up { "ok\n" } else { "not ok\n" });
    retry_later(typed(fare.status(), "text/plain; charset=utf-8", text))
}

/// Every 503 says when to come back.
pub(crate) fn retry_later(mut answer: HttpResponse) -> HttpResponse {
    if answer.status() == Kind::Infrastructure.status() {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    }
    answer
}
