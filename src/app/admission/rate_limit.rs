//! Rate limits: a token bucket per subject or address, method and route. Pressure tightens them; requests pass when the backend fails.
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ports::Error;
use ports::clock::Clock;
use ports::rate_limit::{RateLimitPolicy, RateLimiter};

use crate::admission::gate::Gate;

/// How long a policy is cached before the backend is read again.
const POLICY_FRESH: Duration = Duration::from_secs(10);
/// Limit of cached policies; the cache is cleared when it is full. Tiers and classes are few.
const POLICIES_MAX: usize = 1_024;

/// The default rate limit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Whether requests are limited at all.
    pub enabled: bool,
    /// Number of requests per window.
    pub capacity: u32,
    /// Length of the window.
    pub window: Duration,
}

impl Default for Options {
    /// 120 requests a minute, as in the services that this one replaces.
    fn default() -> Self {
        Self { enabled: true, capacity: 120, window: Duration::from_secs(60) }
    }
}

/// The properties of a request that select its policy and bucket.
#[derive(Clone, Copy, Debug)]
pub struct RateLimitRequest<'a> {
    /// `sub` claim of the token; `None` for anonymous requests.
    pub subject: Option<&'a str>,
    /// Tier claim of the token; `default` where it has none.
    pub tier: &'a str,
    /// HTTP method in upper case.
    pub method: &'a str,
    /// Route template, never the raw path.
    pub route: &'a str,
    /// Address of the client.
    pub ip: &'a str,
}

/// Decision on a request, with the values of its rate limit headers.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionDecision {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// Name of the policy that applied.
    pub policy: Arc<str>,
    /// Number of requests per window, after throttling.
    pub capacity: u32,
    /// Length of the window.
    pub window: Duration,
    /// Number of whole tokens left.
    pub remaining: u32,
    /// Time until the next token.
    pub next_in: Duration,
}

/// Applies rate limits to requests.
pub struct Admission {
    limiter: Arc<dyn RateLimiter>,
    gate: Arc<Gate>,
    clock: Arc<dyn Clock>,
    options: Options,
    fallback: RateLimitPolicy,
    /// Policies by tier and class, with the time in milliseconds at which they were read.
    policies: Mutex<HashMap<String, (i64, RateLimitPolicy)>>,
}

impl Admission {
    /// Limits requests with this backend; `gate` supplies the throttling factor.
    pub fn new(limiter: Arc<dyn RateLimiter>, gate: Arc<Gate>, clock: Arc<dyn Clock>, options: Options) -> Self {
        let fallback = RateLimitPolicy { name: "default".into(), capacity: options.capacity, window: options.window };
        Self { limiter, gate, clock, options, fallback, policies: Mutex::default() }
    }

    /// Takes a token for a request. `None` when rate limits are disabled.
    ///
    /// # Errors
    /// The backend failed. The caller lets the request pass and counts it, so that operators see that no limit applied.
    pub async fn admit(&self, request: RateLimitRequest<'_>) -> Result<Option<AdmissionDecision>, Error> {
        if !self.options.enabled {
            return Ok(None);
        }
        let policy = self.policy(request.tier, class(request.method)).await;
        let client = request.subject.unwrap_or(request.ip);
        let bucket = format!("{client}\n{}\n{}\n{}", request.method, request.route, request.ip);
        let throttle = self.gate.stage().limit_factor();
        let decision = self.limiter.take(&bucket, &policy, throttle).await?;
        let capacity = ((f64::from(policy.capacity) * throttle).floor() as u32).max(1);
        Ok(Some(AdmissionDecision {
            allowed: decision.allowed,
            policy: policy.name,
            capacity,
            window: policy.window,
            remaining: decision.remaining,
            next_in: decision.next_in,
        }))
    }

    async fn policy(&self, tier: &str, class: &str) -> RateLimitPolicy {
        let name = format!("{tier}:{class}");
        let now = self.clock.now().millis();
        if let Some((read_at, policy)) = self.policies.lock().unwrap_or_else(PoisonError::into_inner).get(&name)
            && now - read_at < POLICY_FRESH.as_millis() as i64
        {
            return policy.clone();
        }
        let loaded = self.limiter.policy(tier, class).await;
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = match (loaded, policies.get(&name)) {
            (Ok(Some(policy)), _) => policy,
            // While the backend fails, the cached policy stays in force.
            (Err(_), Some((_, cached))) => cached.clone(),
            (Ok(None), _) | (Err(_), None) => self.fallback.clone(),
        };
        if policies.len() >= POLICIES_MAX {
            policies.clear();
        }
        policies.insert(name, (now, policy.clone()));
        policy
    }
}

fn class(method: &str) -> &'static str {
    match method {
        "GET" | "HEAD" | "OPTIONS" => "read",
        _ => "write",
    }
}
