//! `RateLimiter` in memory: token buckets that refill with time. A dropped bucket is a full one, so dropping never refuses a request.
//!
//! Not `governor`: its quota is fixed when a limiter is built, while backpressure narrows size and refill of a bucket from one request to
//! the next, and the headers report the tokens that are left.
use std::sync::Arc;

use domain::Timestamp;
use ports::rate_limit::{RateLimitDecision, RateLimitPolicy, TOKEN_ROUNDING, clamped_throttle};

use crate::bounded::BoundedMap;

/// Token buckets by name; at capacity the map evicts entries.
pub(crate) struct TokenBuckets(BoundedMap<Arc<str>, TokenBucket>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct TokenBucket {
    tokens: f64,
    refilled_at: Timestamp,
}

impl TokenBuckets {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(BoundedMap::new(capacity))
    }

    pub(crate) fn take(
        &self,
        name: &str,
        policy: &RateLimitPolicy,
        throttle: f64,
        now: Timestamp,
    ) -> RateLimitDecision {
        self.0.update(name.into(), |bucket| {
            let (after, decision) = take(*bucket, policy, throttle, now);
            *bucket = Some(after);
            decision
        })
    }
}

/// The bucket after a request, and the decision on that request. `None` is a full bucket.
fn take(
    before: Option<TokenBucket>,
    policy: &RateLimitPolicy,
    throttle: f64,
    now: Timestamp,
) -> (TokenBucket, RateLimitDecision) {
    let throttle = clamped_throttle(throttle);
    let size = policy.bucket_size(throttle);
    let tokens_per_ms = policy.tokens_per_ms(throttle);
    let available = match before {
        Some(bucket) => bucket.tokens + now.since(bucket.refilled_at).as_secs_f64() * 1_000.0 * tokens_per_ms,
        None => size,
    };
    let available = available.min(size);
    let allowed = available + TOKEN_ROUNDING >= 1.0;
    let tokens = if allowed { (available - 1.0).max(0.0) } else { available };
    // After the clock has gone back this call refills nothing, and later calls count from the new time.
    (TokenBucket { tokens, refilled_at: now }, RateLimitDecision::of_bucket(allowed, tokens, tokens_per_ms))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn policy() -> RateLimitPolicy {
        RateLimitPolicy { name: "default".into(), capacity: 120, window: Duration::from_secs(60) }
    }

    #[test]
    fn a_bucket_holds_a_quarter_more_and_fills_evenly() {
        let buckets = TokenBuckets::new(10);
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
    fn a_bucket_is_refilled_after_the_clock_has_gone_back() {
        let buckets = TokenBuckets::new(10);
        let at = Timestamp::from_millis;
        while buckets.take("a", &policy(), 1.0, at(600_000)).allowed {}

        assert!(!buckets.take("a", &policy(), 1.0, at(0)).allowed);
        assert!(!buckets.take("a", &policy(), 1.0, at(499)).allowed);
        assert!(buckets.take("a", &policy(), 1.0, at(500)).allowed);
    }

    #[test]
    fn throttling_narrows_bucket_and_refill() {
        let buckets = TokenBuckets::new(10);

        let taken = buckets.take("a", &policy(), 0.5, Timestamp::from_millis(0));
        assert_eq!(taken, RateLimitDecision { allowed: true, remaining: 74, next_in: Duration::from_secs(1) });
        assert!(!buckets.take("none", &policy(), 0.0, Timestamp::from_millis(0)).allowed);
    }
}
