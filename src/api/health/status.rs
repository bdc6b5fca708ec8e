//! The health of the service and its components, computed from the health snapshot, so that frequent probes are cheap.
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderValue, RETRY_AFTER};
use app::health::HealthSnapshot;
use domain::Timestamp;

use crate::error::ErrorCode;

/// A health status, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HealthStatus {
    Up,
    Unknown,
    OutOfService,
    Down,
}

impl HealthStatus {
    /// The name that Spring Boot's actuator uses.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            HealthStatus::Up => "UP",
            HealthStatus::Unknown => "UNKNOWN",
            HealthStatus::OutOfService => "OUT_OF_SERVICE",
            HealthStatus::Down => "DOWN",
        }
    }

    pub(crate) fn up_or_down(up: bool) -> Self {
        if up { HealthStatus::Up } else { HealthStatus::Down }
    }

    pub(crate) fn up_or_out_of_service(up: bool) -> Self {
        if up { HealthStatus::Up } else { HealthStatus::OutOfService }
    }

    /// 200, or 503 when the process must receive no traffic.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            HealthStatus::Up | HealthStatus::Unknown => StatusCode::OK,
            HealthStatus::OutOfService | HealthStatus::Down => ErrorCode::Infrastructure.status(),
        }
    }
}

/// The checks of readiness. The broker is not one of them: without it events accumulate in the outbox, and orders are accepted.
pub(crate) fn readiness(
    snapshot: &HealthSnapshot,
    unsent_age_max: Duration,
    now: Timestamp,
) -> Vec<(&'static str, HealthStatus)> {
    let mut checks = vec![
        ("startup", HealthStatus::up_or_out_of_service(snapshot.started)),
        ("drain", HealthStatus::up_or_out_of_service(!snapshot.draining)),
        ("region", HealthStatus::up_or_out_of_service(!snapshot.passive)),
        ("storage", HealthStatus::up_or_down(snapshot.storage_full.is_none())),
    ];
    // A failed dependency takes the process out of service; only the dependency's own health is DOWN.
    let gating = snapshot.components.iter().filter(|component| component.gates || component.name == "db");
    checks.extend(gating.map(|component| (component.name, HealthStatus::up_or_out_of_service(component.up))));
    if !unsent_age_max.is_zero() {
        checks.push(("outbox", HealthStatus::up_or_down(!is_overdue(snapshot, unsent_age_max, now))));
    }
    checks
}

/// Whether the oldest unsent event is older than allowed; a limit of zero allows every age.
pub(crate) fn is_overdue(snapshot: &HealthSnapshot, unsent_age_max: Duration, now: Timestamp) -> bool {
    !unsent_age_max.is_zero() && snapshot.oldest_unsent(now).is_some_and(|age| age > unsent_age_max)
}

/// The worst status of these checks; UP without a check.
pub(crate) fn worst(checks: &[(&'static str, HealthStatus)]) -> HealthStatus {
    checks.iter().map(|(_, status)| *status).max().unwrap_or(HealthStatus::Up)
}

/// Adds `Retry-After` to a 503.
pub(crate) fn with_retry_after(mut response: HttpResponse) -> HttpResponse {
    if response.status() == ErrorCode::Infrastructure.status() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    }
    response
}
