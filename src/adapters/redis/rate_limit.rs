//! `RateLimiter` on Redis: token buckets in a script, by the server's clock. Where the script itself fails, a sliding window in plain
//! commands takes its place; where the server is away the call fails, and the caller lets the request pass.
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::rate_limit::{RateLimitDecision, RateLimitPolicy, RateLimiter};

use crate::link::{Ask, Caller};
use crate::open::{Inner, Redis};

/// Longest time to the next token that is told, also where none will ever come.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// A bucket's measures under a policy and a throttle.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    size: f64,
    per_ms: f64,
    life_ms: u64,
}

impl Shape {
    fn of(policy: &RateLimitPolicy, throttle: f64) -> Self {
        let capacity = f64::from(policy.capacity);
        let window_ms = (policy.window.as_secs_f64() * 1_000.0).max(1.0);
        Self {
            size: (capacity * 1.25 * throttle).floor(),
            per_ms: capacity * throttle / window_ms,
            // From empty to full it takes a window and a quarter, whatever the throttle: a bucket that is forgotten then is a full one.
            life_ms: (window_ms * 1.25) as u64 + 1_000,
        }
    }

    fn taken(&self, allowed: bool, held: f64) -> RateLimitDecision {
        // A hair of rounding must not cost a whole token.
        let held = held + 1e-9;
        let missing_ms = ((1.0 - held.fract()) / self.per_ms).round().max(1.0);
        let next_in = Duration::try_from_secs_f64(missing_ms / 1_000.0).unwrap_or(WAIT_MAX).min(WAIT_MAX);
        RateLimitDecision { allowed, remaining: held as u32, next_in }
    }
}

/// What is not a share is no throttle.
pub(crate) fn share(throttle: f64) -> f64 {
    if throttle.is_finite() { throttle.clamp(0.0, 1.0) } else { 1.0 }
}

#[async_trait]
impl RateLimiter for Redis {
    async fn take(&self, bucket: &str, policy: &RateLimitPolicy, throttle: f64) -> Result<RateLimitDecision, Error> {
        let throttle = share(throttle);
        match self.inner.take(bucket, Shape::of(policy, throttle)).await {
            // The server is there and says no to the script: a bucket's name holds something else, or scripts are forbidden.
            Err(Error::Broken(why)) => {
                if self.inner.complaints.first("the bucket script") {
                    tracing::warn!(
                        event = "bucket_failed",
                        error = why,
                        "counting in sliding windows where the bucket script fails"
                    );
                }
                if let Some(metrics) = &self.inner.options.metrics {
                    metrics.rate_limit_fallback_count.inc();
                }
                self.inner.take_in_window(bucket, policy, throttle).await
            }
            answered => answered,
        }
    }

    async fn policy(&self, tier: &str, class: &str) -> Result<Option<RateLimitPolicy>, Error> {
        self.inner.policy(tier, class).await
    }
}

impl Inner {
    async fn take(&self, bucket: &str, shape: Shape) -> Result<RateLimitDecision, Error> {
        let mut take = self.scripts.bucket_take.prepare_invoke();
        take.key(self.names.bucket(bucket)).arg(shape.size).arg(shape.per_ms).arg(shape.life_ms);
        let (allowed, held): (bool, f64) = self.ask(Caller::RateLimit, "take a token", Ask::Script(&take)).await?;
        Ok(shape.taken(allowed, held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_measured_as_the_contract_says() {
        let policy = RateLimitPolicy { name: "default".into(), capacity: 120, window: Duration::from_secs(60) };

        let full = Shape::of(&policy, 1.0);
        assert_eq!((full.size, full.per_ms, full.life_ms), (150.0, 0.002, 76_000));
        let first = RateLimitDecision { allowed: true, remaining: 149, next_in: Duration::from_millis(500) };
        assert_eq!(full.taken(true, 149.0), first);
        assert_eq!(full.taken(false, 0.75).next_in, Duration::from_millis(125));

        let shut = Shape::of(&policy, 0.0);
        assert_eq!(shut.taken(false, 0.0), RateLimitDecision { allowed: false, remaining: 0, next_in: WAIT_MAX });
        assert_eq!((share(f64::NAN), share(-1.0), share(7.0)), (1.0, 0.0, 1.0));
    }
}
