//! The reference's token buckets: capacity and a quarter, refilled evenly over the policy's window.
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::rate_limit::{RateLimitDecision, RateLimitPolicy, RateLimiter};

use crate::reference::state::{Bucket, Reference};

#[async_trait]
impl RateLimiter for Reference {
    async fn take(&self, bucket: &str, policy: &RateLimitPolicy, throttle: f64) -> Result<RateLimitDecision, Error> {
        let now = self.now();
        let size = policy.bucket_size(throttle);
        let per_second = f64::from(policy.capacity) * throttle / policy.window.as_secs_f64();
        let mut state = self.state.lock();
        let bucket = state.buckets.entry(bucket.to_owned()).or_insert(Bucket { tokens: size, refilled_at: now });
        bucket.tokens = (bucket.tokens + now.since(bucket.refilled_at).as_secs_f64() * per_second).min(size);
        bucket.refilled_at = now;
        let allowed = bucket.tokens >= 1.0;
        bucket.tokens -= f64::from(u8::from(allowed));
        let missing = 1.0 - bucket.tokens.fract();
        let next_in = Duration::try_from_secs_f64(missing / per_second).unwrap_or(Duration::MAX);
        Ok(RateLimitDecision { allowed, remaining: bucket.tokens as u32, next_in })
    }
}
