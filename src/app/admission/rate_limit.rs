//! Who may ask how often: token buckets per subject, method, route and address, narrowed by pressure, open when the backend fails.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ports::Error;
use ports::clock::Clock;
use ports::rate_limit::{RateLimitPolicy, RateLimiter};

use crate::admission::gate::Gate;

/// How long a policy read from the backend is believed.
const POLICY_FRESH: Duration = Duration::from_secs(10);
/// Most remembered policies; beyond it the memory starts anew. Tiers and classes are few.
const POLICIES_MAX: usize = 1_024;

/// Rate limits as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Whether there are any.
    pub enabled: bool,
    /// Requests per window.
    pub capacity: u32,
    /// The window.
    pub window: Duration,
}

impl Default for Options {
    /// The seeds' service: 120 requests a minute.
    fn default() -> Self {
        Self { enabled: true, capacity: 120, window: Duration::from_secs(60) }
    }
}

/// A request at the door.
#[derive(Clone, Copy, Debug)]
pub struct RateLimitRequest<'a> {
    /// `sub` of the token, if there is one.
    pub subject: Option<&'a str>,
    /// Tier of the token; `default` where it has none.
    pub tier: &'a str,
    /// HTTP method.
    pub method: &'a str,
    /// Route template, never the raw path.
    pub route: &'a str,
    /// Client's address.
    pub ip: &'a str,
}

/// What was decided, with what the headers say about it.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionDecision {
    /// Whether the request may pass.
    pub allowed: bool,
    /// Name of the policy.
    pub policy: Arc<str>,
    /// Requests per window, after throttling.
    pub capacity: u32,
    /// The window.
    pub window: Duration,
    /// Whole tokens left.
    pub remaining: u32,
    /// Until the next token.
    pub next_in: Duration,
}

/// The doorkeeper.
pub struct Admission {
    limit: Arc<dyn RateLimiter>,
    gate: Arc<Gate>,
    clock: Arc<dyn Clock>,
    options: Options,
    fallback: RateLimitPolicy,
    policies: Mutex<HashMap<String, (i64, RateLimitPolicy)>>,
}

impl Admission {
    /// A doorkeeper over this backend.
    pub fn new(limit: Arc<dyn RateLimiter>, gate: Arc<Gate>, clock: Arc<dyn Clock>, options: Options) -> Self {
        let fallback = RateLimitPolicy { name: "default".into(), capacity: options.capacity, window: options.window };
        Self { limit, gate, clock, options, fallback, policies: Mutex::default() }
    }

    /// Takes a token for this visit. `None`: no limit applies.
    ///
    /// # Errors
    /// The backend failed. The request passes then, and whoever asked counts it: an open limit must not go unseen.
    pub async fn admit(&self, visit: RateLimitRequest<'_>) -> Result<Option<AdmissionDecision>, Error> {
        if !self.options.enabled {
            return Ok(None);
        }
        let policy = self.policy(visit.tier, class(visit.method)).await;
        let who = visit.subject.unwrap_or(visit.ip);
        let bucket = format!("{who}\n{}\n{}\n{}", visit.method, visit.route, visit.ip);
        let throttle = self.gate.stage().limit_factor();
        let taken = self.limit.take(&bucket, &policy, throttle).await?;
        let capacity = ((f64::from(policy.capacity) * throttle).floor() as u32).max(1);
        Ok(Some(AdmissionDecision {
            allowed: taken.allowed,
            policy: policy.name,
            capacity,
            window: policy.window,
            remaining: taken.remaining,
            next_in: taken.next_in,
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
        let asked = self.limit.policy(tier, class).await;
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = match (asked, policies.get(&name)) {
            (Ok(Some(policy)), _) => policy,
            // A backend that cannot be asked changes nobody's policy.
            (Err(_), Some((_, known))) => known.clone(),
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
