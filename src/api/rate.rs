//! The rate limit at the door, and its headers as the IETF's draft has them.
use std::net::IpAddr;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use app::admission::rate_limit::{AdmissionDecision, RateLimitRequest};
use tokio::time::timeout;

use crate::auth::Identity;
use crate::error::Problem;
use crate::route::Resource;
use crate::state::State;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// A backend that takes longer has failed, and a limit that fails lets requests pass.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks for a token. `None`: no limit applies, or it could not be asked; then the request passes, and is counted as such.
pub(crate) async fn admit(
    state: &State,
    to: &Resource,
    request: &HttpRequest,
    caller: Option<&Identity>,
) -> Option<AdmissionDecision> {
    let address = state.options.trusted_proxies.client(request);
    let ip = address.as_ref().map_or_else(|| "unknown".to_owned(), IpAddr::to_string);
    let visit = RateLimitRequest {
        subject: caller.map(|caller| caller.subject.as_str()),
        tier: caller.map_or("default", |caller| &caller.tier),
        method: request.method().as_str(),
        route: to.template,
        ip: &ip,
    };
    if let Ok(Ok(admitted)) = timeout(PATIENCE, state.admission.admit(visit)).await {
        return admitted;
    }
    state.metrics.rate_limit_fail_open_count.inc();
    None
}

/// Counts the decision, and refuses where it says so.
pub(crate) fn judge(state: &State, admitted: Option<&AdmissionDecision>) -> Result<(), Problem> {
    let Some(admitted) = admitted else { return Ok(()) };
    if admitted.allowed {
        state.metrics.rate_limit_allowed_count.inc();
        return Ok(());
    }
    state.metrics.rate_limit_blocked_count.inc();
    state.metrics.rate_limit_rejections_by_policy.with([&*admitted.policy]).inc();
    Err(Problem::rate_limited(whole_seconds(admitted.next_in).max(1)))
}

/// Writes the decision's headers.
pub(crate) fn tell(admitted: &AdmissionDecision, headers: &mut HeaderMap) {
    let AdmissionDecision { policy, capacity, window, remaining, next_in, .. } = admitted;
    let name: String = policy.chars().filter(|c| (' '..='~').contains(c) && !matches!(c, '"' | '\\')).collect();
    let texts = [
        (POLICY, format!("\"{name}\";q={capacity};w={}", window.as_secs())),
        (LIMIT, format!("\"{name}\";r={remaining};t={}", whole_seconds(*next_in))),
    ];
    for (header, text) in texts {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(header, value);
        }
    }
}

fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
