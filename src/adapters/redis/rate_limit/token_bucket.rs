//! `RateLimiter` on Redis: token buckets in a script, by the server's clock. If the script itself fails, a sliding window in plain commands
//! replaces it. If the server is unavailable the call fails, and the caller allows the request.
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::rate_limit::{RateLimitDecision, RateLimitPolicy, RateLimiter, StoredLimits};

use crate::connection::call::{Caller, Request};
use crate::connection::client::{Redis, RedisInner};
use crate::rate_limit::limits::WAIT_MAX;

/// The parameters of a bucket under a policy and a throttle.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BucketShape {
    size: f64,
    tokens_per_ms: f64,
    ttl_ms: u64,
}

impl BucketShape {
    fn new(policy: &RateLimitPolicy, throttle: f64) -> Self {
        let capacity = f64::from(policy.capacity);
        let window_ms = (policy.window.as_secs_f64() * 1_000.0).max(1.0);
        Self {
            size: policy.bucket_size(throttle),
            tokens_per_ms: capacity * throttle / window_ms,
            // An empty bucket is full after a window and a quarter, whatever the throttle: a bucket that expires then is a full one.
            ttl_ms: (window_ms * 1.25) as u64 + 1_000,
        }
    }

    fn decision(&self, allowed: bool, tokens: f64) -> RateLimitDecision {
        // A rounding error must not cost a whole token.
        let tokens = tokens + 1e-9;
        let missing_ms = ((1.0 - tokens.fract()) / self.tokens_per_ms).round().max(1.0);
        let next_in = Duration::try_from_secs_f64(missing_ms / 1_000.0).unwrap_or(WAIT_MAX).min(WAIT_MAX);
        RateLimitDecision { allowed, remaining: tokens as u32, next_in }
    }
}

/// The throttle as a share of 0 to 1; a value that is not finite counts as 1.
fn clamped(throttle: f64) -> f64 {
    if throttle.is_finite() { throttle.clamp(0.0, 1.0) } else { 1.0 }
}

#[async_trait]
impl RateLimiter for Redis {
    async fn take(&self, bucket: &str, policy: &RateLimitPolicy, throttle: f64) -> Result<RateLimitDecision, Error> {
        let throttle = clamped(throttle);
        match self.inner.take_token(bucket, BucketShape::new(policy, throttle)).await {
            // The server answers and refuses the script: the bucket's key has another type, or an ACL forbids scripts.
            Err(Error::Broken(error)) => {
                if self.inner.warnings.is_first("the bucket script") {
                    tracing::warn!(
                        event = "bucket_failed",
                        error,
                        "counting in sliding windows where the bucket script fails"
                    );
                }
                if let Some(metrics) = &self.inner.options.metrics {
                    metrics.rate_limit_fallback_count.inc();
                }
                self.inner.take_in_window(bucket, policy, throttle).await
            }
            result => result,
        }
    }

    async fn stored_limits(&self, tier: &str, class: &str) -> Result<StoredLimits, Error> {
        self.inner.stored_limits(tier, class).await
    }
}

impl RedisInner {
    async fn take_token(&self, bucket: &str, shape: BucketShape) -> Result<RateLimitDecision, Error> {
        let mut take = self.scripts.take_token.prepare_invoke();
        take.key(self.keys.bucket(bucket)).arg(shape.size).arg(shape.tokens_per_ms).arg(shape.ttl_ms);
        let (allowed, tokens): (bool, f64) =
            self.call(Caller::RateLimit, "take a token", Request::Script(&take)).await?;
        Ok(shape.decision(allowed, tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_parameters_and_decisions_follow_the_contract() {
        let policy = RateLimitPolicy { name: "default".into(), capacity: 120, window: Duration::from_secs(60) };

        let full = BucketShape::new(&policy, 1.0);
        assert_eq!((full.size, full.tokens_per_ms, full.ttl_ms), (150.0, 0.002, 76_000));
        let first = RateLimitDecision { allowed: true, remaining: 149, next_in: Duration::from_millis(500) };
        assert_eq!(full.decision(true, 149.0), first);
        assert_eq!(full.decision(false, 0.75).next_in, Duration::from_millis(125));

        let closed = BucketShape::new(&policy, 0.0);
        assert_eq!(closed.decision(false, 0.0), RateLimitDecision { allowed: false, remaining: 0, next_in: WAIT_MAX });
        assert_eq!((clamped(f64::NAN), clamped(-1.0), clamped(7.0)), (1.0, 0.0, 1.0));
    }
}
