//! `RateLimiter` in memory: token buckets that fill by themselves. A forgotten bucket is a full one, so forgetting only ever lets pass.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;
use parking_lot::Mutex;
use ports::Error;
use ports::rate_limit::{RateLimitDecision, RateLimitPolicy, RateLimiter};

use crate::generations::Generations;
use crate::memory::Memory;
use crate::open::Embedded;

/// Longest time to the next token that is told, also where none will ever come.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Buckets by name.
pub(crate) struct Buckets(Mutex<Generations<Arc<str>, Bucket>>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Bucket {
    tokens: f64,
    at: Timestamp,
}

impl Buckets {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(Mutex::new(Generations::new(capacity)))
    }

    fn take(&self, name: &str, policy: &RateLimitPolicy, throttle: f64, now: Timestamp) -> RateLimitDecision {
        let mut buckets = self.0.lock();
        let key: Arc<str> = name.into();
        let known = buckets.get_mut(&key).copied();
        let (bucket, taken) = take(known, policy, throttle, now);
        buckets.put(key, bucket);
        taken
    }
}

/// What a bucket holds afterwards, and what it answers.
fn take(known: Option<Bucket>, policy: &RateLimitPolicy, throttle: f64, now: Timestamp) -> (Bucket, RateLimitDecision) {
    let throttle = if throttle.is_finite() { throttle.clamp(0.0, 1.0) } else { 1.0 };
    let size = (f64::from(policy.capacity) * 1.25 * throttle).floor();
    let per_second = f64::from(policy.capacity) * throttle / policy.window.as_secs_f64().max(0.001);
    let held = match known {
        Some(bucket) => bucket.tokens + now.since(bucket.at).as_secs_f64() * per_second,
        None => size,
    };
    let held = held.min(size);
    // A hair of rounding must not cost a whole token.
    let allowed = held + 1e-9 >= 1.0;
    let tokens = if allowed { (held - 1.0).max(0.0) } else { held };
    let missing_ms = ((1.0 - (tokens + 1e-9).fract()) / per_second * 1_000.0).round().max(1.0);
    let next_in = Duration::try_from_secs_f64(missing_ms / 1_000.0).unwrap_or(WAIT_MAX).min(WAIT_MAX);
    let at = known.map_or(now, |bucket| now.max(bucket.at));
    (Bucket { tokens, at }, RateLimitDecision { allowed, remaining: (tokens + 1e-9) as u32, next_in })
}

#[async_trait]
impl RateLimiter for Embedded {
    async fn take(&self, bucket: &str, policy: &RateLimitPolicy, throttle: f64) -> Result<RateLimitDecision, Error> {
        self.inner.memory.take(bucket, policy, throttle).await
    }

    async fn policy(&self, tier: &str, class: &str) -> Result<Option<RateLimitPolicy>, Error> {
        self.inner.memory.policy(tier, class).await
    }
}

#[async_trait]
impl RateLimiter for Memory {
    async fn take(&self, bucket: &str, policy: &RateLimitPolicy, throttle: f64) -> Result<RateLimitDecision, Error> {
        Ok(self.inner.buckets.take(bucket, policy, throttle, self.inner.clock.now()))
    }

    async fn policy(&self, _tier: &str, _class: &str) -> Result<Option<RateLimitPolicy>, Error> {
        // Policies by tier and class are an operator's entries in Redis; without it the default holds for everyone.
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> RateLimitPolicy {
        RateLimitPolicy { name: "default".into(), capacity: 120, window: Duration::from_secs(60) }
    }

    #[test]
    fn a_bucket_holds_a_quarter_more_and_fills_evenly() {
        let buckets = Buckets::new(10);
        let at = Timestamp::from_millis;

        let first = buckets.take("a", &policy(), 1.0, at(0));
        assert_eq!(first, RateLimitDecision { allowed: true, remaining: 149, next_in: Duration::from_millis(500) });
        for _ in 0..149 {
            assert!(buckets.take("a", &policy(), 1.0, at(0)).allowed);
        }
        assert!(!buckets.take("a", &policy(), 1.0, at(0)).allowed);
        assert!(!buckets.take("a", &policy(), 1.0, at(499)).allowed);
        assert!(buckets.take("a", &policy(), 1.0, at(500)).allowed);
        assert!(buckets.take("b", &policy(), 1.0, at(500)).allowed);
    }

    #[test]
    fn throttling_narrows_bucket_and_refill() {
        let buckets = Buckets::new(10);

        let taken = buckets.take("a", &policy(), 0.5, Timestamp::from_millis(0));
        assert_eq!(taken, RateLimitDecision { allowed: true, remaining: 74, next_in: Duration::from_secs(1) });
        assert!(!buckets.take("none", &policy(), 0.0, Timestamp::from_millis(0)).allowed);
    }
}
