//! `RateLimiter` on Redis: token buckets in a script, by the server's clock. If the script itself fails, a sliding window in plain commands
//! replaces it. If the server is unavailable the call fails, and the caller allows the request.
use async_trait::async_trait;
use ports::Error;
use ports::rate_limit::{RateLimitDecision, RateLimitPolicy, RateLimiter, StoredLimits, clamped_throttle};

use crate::connection::call::{Caller, Request};
use crate::connection::client::{Redis, RedisInner};

/// The parameters of a bucket under a policy and a throttle.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BucketShape {
    size: f64,
    tokens_per_ms: f64,
    ttl_ms: u64,
}

impl BucketShape {
    fn new(policy: &RateLimitPolicy, throttle: f64) -> Self {
        let window_ms = (policy.window.as_secs_f64() * 1_000.0).max(1.0);
        Self {
            size: policy.bucket_size(throttle),
            tokens_per_ms: policy.tokens_per_ms(throttle),
            // An empty bucket is full after a window and a quarter, whatever the throttle: a bucket that expires then is a full one.
            ttl_ms: (window_ms * 1.25) as u64 + 1_000,
        }
    }
}

#[async_trait]
impl RateLimiter for Redis {
    async fn take(&self, bucket: &str, policy: &RateLimitPolicy, throttle: f64) -> Result<RateLimitDecision, Error> {
        let throttle = clamped_throttle(throttle);
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
        Ok(RateLimitDecision::of_bucket(allowed, tokens, shape.tokens_per_ms))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn bucket_parameters_follow_the_contract() {
        let policy = RateLimitPolicy { name: "default".into(), capacity: 120, window: Duration::from_secs(60) };

        let full = BucketShape::new(&policy, 1.0);
        assert_eq!((full.size, full.tokens_per_ms, full.ttl_ms), (150.0, 0.002, 76_000));
        let closed = BucketShape::new(&policy, 0.0);
        assert_eq!((closed.size, closed.tokens_per_ms, closed.ttl_ms), (0.0, 0.0, 76_000));
    }
}
