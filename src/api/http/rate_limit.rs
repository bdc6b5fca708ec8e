//! Applies the rate limit to a request, and writes its headers as the IETF draft defines them.
use std::net::IpAddr;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use app::admission::rate_limit::{AdmissionDecision, RateLimitRequest};
use tokio::time::timeout;

use crate::auth::identity::Identity;
use crate::error::Problem;
use crate::request::route::Resource;
use crate::state::HttpState;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// A backend that takes longer counts as failed; a failed rate limit admits requests.
const BACKEND_TIMEOUT: Duration = Duration::from_secs(1);

/// Takes a token from the caller's bucket. `None`: no limit applies or the backend failed; the request is admitted.
pub(crate) async fn admit(
    state: &HttpState,
    resource: &Resource,
    request: &HttpRequest,
    caller: Option<&Identity>,
) -> Option<AdmissionDecision> {
    let address = state.options.trusted_proxies.client_address(request);
    let ip = address.as_ref().map_or_else(|| "unknown".to_owned(), IpAddr::to_string);
    let limit_request = RateLimitRequest {
        subject: caller.map(|caller| caller.subject.as_str()),
        tier: caller.map_or("default", |caller| &caller.tier),
        method: request.method().as_str(),
        route: resource.template,
        ip: &ip,
    };
    if let Ok(Ok(admitted)) = timeout(BACKEND_TIMEOUT, state.admission.admit(limit_request)).await {
        return admitted;
    }
    state.metrics.rate_limit_fail_open_count.inc();
    None
}

/// Counts the decision and turns a rejection into 429.
pub(crate) fn enforce(state: &HttpState, admitted: Option<&AdmissionDecision>) -> Result<(), Problem> {
    let Some(admitted) = admitted else { return Ok(()) };
    if admitted.allowed {
        state.metrics.rate_limit_allowed_count.inc();
        return Ok(());
    }
    state.metrics.rate_limit_blocked_count.inc();
    state.metrics.rate_limit_rejections_by_policy.with([&*admitted.policy]).inc();
    Err(Problem::rate_limited(seconds_rounded_up(admitted.next_in).max(1)))
}

/// Writes `RateLimit-Policy` and `RateLimit`.
pub(crate) fn write_headers(admitted: &AdmissionDecision, headers: &mut HeaderMap) {
    let AdmissionDecision { policy, capacity, window, remaining, next_in, .. } = admitted;
    let name: String = policy.chars().filter(|c| (' '..='~').contains(c) && !matches!(c, '"' | '\\')).collect();
    let values = [
        (POLICY, format!("\"{name}\";q={capacity};w={}", seconds_rounded_up(*window))),
        (LIMIT, format!("\"{name}\";r={remaining};t={}", seconds_rounded_up(*next_in))),
    ];
    for (header, text) in values {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(header, value);
        }
    }
}

fn seconds_rounded_up(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_of_the_policy_header_is_never_shorter_than_the_window() {
        for (window_ms, expected) in [(500, 1), (1_500, 2), (60_000, 60)] {
            let admitted = AdmissionDecision {
                allowed: true,
                policy: "default".into(),
                capacity: 120,
                window: Duration::from_millis(window_ms),
                remaining: 119,
                next_in: Duration::ZERO,
            };
            let mut headers = HeaderMap::new();

            write_headers(&admitted, &mut headers);

            let policy = headers.get(POLICY).and_then(|value| value.to_str().ok());
            assert_eq!(policy, Some(&*format!("\"default\";q=120;w={expected}")));
        }
    }
}
