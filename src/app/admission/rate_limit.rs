//! Rate limits: a token bucket per subject or address, method and route. Pressure tightens them; requests pass when the backend fails.
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use ports::Error;
use ports::clock::Clock;
use ports::rate_limit::{RateLimitPolicy, RateLimiter, StoredLimits};

use crate::admission::tier_policies::{CLASSES, TierPolicies};
use crate::admission::write_gate::WriteGate;

/// How long a policy is cached before the backend is read again.
const POLICY_TTL: Duration = Duration::from_secs(10);
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
        let capacity = (policy.window_size(throttle) as u32).max(1);
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
            && now - read_at < POLICY_TTL.as_millis() as i64
        {
            return policy.clone();
        }
        let loaded = self.limiter.stored_limits(tier, class).await;
        let limits = self.limits();
        let configured = || limits.options.policies.find(tier, class).unwrap_or(&limits.fallback).clone();
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = match (loaded, policies.get(&name)) {
            (Ok(stored), _) => with_stored_limits(configured(), stored, &name),
            // While the backend fails, the cached policy stays in force.
            (Err(_), Some((_, cached))) => cached.clone(),
            (Err(_), None) => configured(),
        };
        if policies.len() >= POLICIES_MAX {
            policies.clear();
        }
        policies.insert(name, (now, policy.clone()));
        policy
    }
}

/// The configured policy with what operators have stored, under the name of its tier and class once anything is stored.
fn with_stored_limits(configured: RateLimitPolicy, stored: StoredLimits, name: &str) -> RateLimitPolicy {
    if stored == StoredLimits::default() {
        return configured;
    }
    RateLimitPolicy {
        name: name.into(),
        capacity: stored.capacity.unwrap_or(configured.capacity),
        window: stored.window.unwrap_or(configured.window),
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

    /// Allows everything, and has stored limits for gold, write only. Without `Some` it fails.
    #[derive(Default)]
    struct OneTier {
        stored: Mutex<Option<StoredLimits>>,
    }

    impl OneTier {
        fn store(&self, capacity: Option<u32>, window: Option<Duration>) {
            *self.stored.lock().expect("no panic") = Some(StoredLimits { capacity, window });
        }
    }

    #[async_trait]
    impl RateLimiter for OneTier {
        async fn take(&self, _: &str, _: &RateLimitPolicy, _: f64) -> Result<RateLimitDecision, Error> {
            Ok(RateLimitDecision { allowed: true, remaining: 1, next_in: Duration::ZERO })
        }

        async fn stored_limits(&self, tier: &str, class: &str) -> Result<StoredLimits, Error> {
            let stored = self.stored.lock().expect("no panic").ok_or_else(|| Error::Unreachable("away".into()))?;
            Ok(if (tier, class) == ("gold", "write") { stored } else { StoredLimits::default() })
        }
    }

    /// An admission with policies for gold, its backend and its clock.
    fn admission() -> (Admission, Arc<OneTier>, Arc<SetClock>) {
        let (limiter, clock) = (Arc::new(OneTier::default()), Arc::new(SetClock(AtomicI64::new(0))));
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
        limiter.store(None, None);

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
        limiter.store(None, None);
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
        let pass = |millis: i64| clock.0.fetch_add(millis, SeqCst);
        limiter.store(None, None);
        assert_eq!(capacity(&admission, "gold", "POST").1, 600);

        limiter.store(Some(50), None);
        pass(9_999);
        assert_eq!(capacity(&admission, "gold", "POST").1, 600, "policies are read every 10 s");
        pass(1);
        assert_eq!(capacity(&admission, "gold", "POST"), ("gold:write".into(), 50));
        assert_eq!(capacity(&admission, "gold", "GET").1, 1_200);

        *limiter.stored.lock().expect("no panic") = None;
        pass(10_000);
        assert_eq!(capacity(&admission, "gold", "POST").1, 50, "the last known policy holds while the backend fails");

        limiter.store(None, None);
        pass(10_000);
        assert_eq!(capacity(&admission, "gold", "POST"), ("gold:write".into(), 600));
    }

    #[test]
    fn a_limit_that_is_not_stored_comes_from_the_configuration_in_force() {
        let (admission, limiter, clock) = admission();
        let limits = || {
            let request = RateLimitRequest { subject: None, tier: "gold", method: "POST", route: "/orders", ip: "::1" };
            let decision = admission.admit(request).now_or_never().expect("no wait").expect("admitted");
            decision.map(|decision| (decision.policy.to_string(), decision.capacity, decision.window.as_secs()))
        };
        limiter.store(Some(50), None);
        assert_eq!(limits(), Some(("gold:write".into(), 50, 60)));

        admission.set_options(Options { capacity: 9, window: Duration::from_secs(30), ..Options::default() });
        assert_eq!(limits(), Some(("gold:write".into(), 50, 30)));

        limiter.store(None, Some(Duration::from_secs(5)));
        clock.0.fetch_add(10_000, SeqCst);
        assert_eq!(limits(), Some(("gold:write".into(), 9, 5)));
    }
}
