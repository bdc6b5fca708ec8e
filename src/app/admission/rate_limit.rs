//! Rate limits: a token bucket per subject or address, method and route. Pressure tightens them; requests pass when the backend fails.
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use ports::Error;
use ports::clock::Clock;
use ports::rate_limit::{RateLimitPolicy, RateLimiter};

use crate::admission::tier_policies::{CLASSES, TierPolicies};
use crate::admission::write_gate::WriteGate;

/// How long a policy is cached before the backend is read again.
const POLICY_FRESH: Duration = Duration::from_secs(10);
/// Limit of cached policies; the cache is cleared when it is full. Tiers and classes are few.
const POLICIES_MAX: usize = 1_024;

/// The default rate limit, and those of single tiers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Whether requests are limited at all.
    pub enabled: bool,
    /// Number of requests per window.
    pub capacity: u32,
    /// Length of the window.
    pub window: Duration,
    /// Limits by tier and class. A limit that operators store in Redis at run time comes before them.
    pub policies: TierPolicies,
}

impl Default for Options {
    /// 120 requests a minute, as in the services that this one replaces.
    fn default() -> Self {
        Self { enabled: true, capacity: 120, window: Duration::from_secs(60), policies: TierPolicies::default() }
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
    gate: Arc<WriteGate>,
    clock: Arc<dyn Clock>,
    limits: RwLock<Limits>,
    /// Policies by tier and class, with the time in milliseconds at which they were read.
    policies: Mutex<HashMap<String, (i64, RateLimitPolicy)>>,
}

/// The limits of the configuration that is in force.
struct Limits {
    options: Options,
    /// Applies to tiers without a policy.
    fallback: RateLimitPolicy,
}

impl From<Options> for Limits {
    fn from(options: Options) -> Self {
        let fallback = RateLimitPolicy { name: "default".into(), capacity: options.capacity, window: options.window };
        Self { options, fallback }
    }
}

impl Admission {
    /// Limits requests with this backend; `gate` supplies the throttling factor.
    pub fn new(limiter: Arc<dyn RateLimiter>, gate: Arc<WriteGate>, clock: Arc<dyn Clock>, options: Options) -> Self {
        Self { limiter, gate, clock, limits: RwLock::new(options.into()), policies: Mutex::default() }
    }

    /// Replaces the configured limits. They hold from the next request on; buckets keep what is left in them.
    pub fn set_options(&self, options: Options) {
        let mut limits = self.limits.write().unwrap_or_else(PoisonError::into_inner);
        *limits = options.into();
        self.policies.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn limits(&self) -> RwLockReadGuard<'_, Limits> {
        self.limits.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a token for a request. `None` when rate limits are disabled.
    ///
    /// # Errors
    /// The backend failed. The caller lets the request pass and counts it, so that operators see that no limit applied.
    pub async fn admit(&self, request: RateLimitRequest<'_>) -> Result<Option<AdmissionDecision>, Error> {
        if !self.limits().options.enabled {
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
        let limits = self.limits();
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = match (loaded, policies.get(&name)) {
            (Ok(Some(policy)), _) => policy,
            // While the backend fails, the cached policy stays in force.
            (Err(_), Some((_, cached))) => cached.clone(),
            (Ok(None), _) | (Err(_), None) => {
                limits.options.policies.find(tier, class).unwrap_or(&limits.fallback).clone()
            }
        };
        if policies.len() >= POLICIES_MAX {
            policies.clear();
        }
        policies.insert(name, (now, policy.clone()));
        policy
    }
}

/// The class of requests with this method, one of [`CLASSES`].
fn class(method: &str) -> &'static str {
    match method {
        "GET" | "HEAD" | "OPTIONS" => CLASSES[0],
        _ => CLASSES[1],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

    use async_trait::async_trait;
    use domain::Timestamp;
    use futures::FutureExt;
    use ports::rate_limit::RateLimitDecision;

    use super::*;

    struct SetClock(AtomicI64);

    impl Clock for SetClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(SeqCst))
        }
    }

    /// Allows everything, and has at most one stored policy: that of gold, write. Without a capacity it fails.
    #[derive(Default)]
    struct OnePolicy {
        capacity: Mutex<Option<Option<u32>>>,
    }

    #[async_trait]
    impl RateLimiter for OnePolicy {
        async fn take(&self, _: &str, _: &RateLimitPolicy, _: f64) -> Result<RateLimitDecision, Error> {
            Ok(RateLimitDecision { allowed: true, remaining: 1, next_in: Duration::ZERO })
        }

        async fn policy(&self, tier: &str, class: &str) -> Result<Option<RateLimitPolicy>, Error> {
            let stored = self.capacity.lock().expect("no panic").ok_or_else(|| Error::Unreachable("away".into()))?;
            let stored = stored.filter(|_| (tier, class) == ("gold", "write"));
            Ok(stored.map(|capacity| RateLimitPolicy { name: "stored".into(), capacity, window: POLICY_FRESH }))
        }
    }

    /// An admission with policies for gold, its backend and its clock.
    fn admission() -> (Admission, Arc<OnePolicy>, Arc<SetClock>) {
        let (limiter, clock) = (Arc::new(OnePolicy::default()), Arc::new(SetClock(AtomicI64::new(0))));
        let policies = TierPolicies::parse("gold:write=600/60s,gold:read=1200/60s").expect("valid");
        let options = Options { policies, ..Options::default() };
        let admission = Admission::new(Arc::clone(&limiter) as _, Arc::default(), Arc::clone(&clock) as _, options);
        (admission, limiter, clock)
    }

    fn capacity(admission: &Admission, tier: &str, method: &str) -> (String, u32) {
        let request = RateLimitRequest { subject: Some("ann"), tier, method, route: "/orders", ip: "::1" };
        let decision = admission.admit(request).now_or_never().expect("no wait").expect("admitted").expect("limited");
        (decision.policy.to_string(), decision.capacity)
    }

    #[test]
    fn a_configured_policy_applies_to_its_tier_and_class_only() {
        let (admission, limiter, _) = admission();
        *limiter.capacity.lock().expect("no panic") = Some(None);

        assert_eq!(capacity(&admission, "gold", "POST"), ("gold:write".into(), 600));
        assert_eq!(capacity(&admission, "gold", "PATCH"), ("gold:write".into(), 600));
        assert_eq!(capacity(&admission, "gold", "GET"), ("gold:read".into(), 1_200));
        assert_eq!(capacity(&admission, "silver", "POST"), ("default".into(), 120));
    }

    #[test]
    fn a_configured_policy_applies_also_when_the_backend_fails() {
        let (admission, _, _) = admission();

        assert_eq!(capacity(&admission, "gold", "POST"), ("gold:write".into(), 600));
        assert_eq!(capacity(&admission, "silver", "POST"), ("default".into(), 120));
    }

    #[test]
    fn changed_limits_hold_from_the_next_request_on() {
        let (admission, limiter, _) = admission();
        *limiter.capacity.lock().expect("no panic") = Some(None);
        assert_eq!(capacity(&admission, "gold", "POST"), ("gold:write".into(), 600));
        assert_eq!(capacity(&admission, "silver", "POST"), ("default".into(), 120));

        let policies = TierPolicies::parse("gold:write=7/60s").expect("valid");
        admission.set_options(Options { capacity: 9, policies, ..Options::default() });

        assert_eq!(capacity(&admission, "gold", "POST"), ("gold:write".into(), 7));
        assert_eq!(capacity(&admission, "gold", "GET"), ("default".into(), 9));
        assert_eq!(capacity(&admission, "silver", "POST"), ("default".into(), 9));
    }

    #[test]
    fn a_stored_policy_replaces_the_configured_one_until_it_expires() {
        let (admission, limiter, clock) = admission();
        let store = |capacity: Option<u32>| *limiter.capacity.lock().expect("no panic") = Some(capacity);
        let pass = |millis: i64| clock.0.fetch_add(millis, SeqCst);
        store(None);
        assert_eq!(capacity(&admission, "gold", "POST").1, 600);

        store(Some(50));
        pass(9_999);
        assert_eq!(capacity(&admission, "gold", "POST").1, 600, "policies are read every 10 s");
        pass(1);
        assert_eq!(capacity(&admission, "gold", "POST"), ("stored".into(), 50));
        assert_eq!(capacity(&admission, "gold", "GET").1, 1_200);

        *limiter.capacity.lock().expect("no panic") = None;
        pass(10_000);
        assert_eq!(capacity(&admission, "gold", "POST").1, 50, "the last known policy holds while the backend fails");

        store(None);
        pass(10_000);
        assert_eq!(capacity(&admission, "gold", "POST"), ("gold:write".into(), 600));
    }
}
