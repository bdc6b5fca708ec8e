//! A rate limiter with a flaw.
use std::sync::Arc;

use async_trait::async_trait;
use ports::Error;
use ports::rate_limit::{RateLimitDecision, RateLimitPolicy, RateLimiter};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenRateLimit {
    pub(crate) inner: Arc<dyn RateLimiter>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl RateLimiter for BrokenRateLimit {
    async fn take(&self, bucket: &str, policy: &RateLimitPolicy, throttle: f64) -> Result<RateLimitDecision, Error> {
        let bucket = if self.flaw == Flaw::SharesBucket { "shared" } else { bucket };
        let throttle = if self.flaw == Flaw::IgnoresThrottle { 1.0 } else { throttle };
        // 0.8 of 1.25 times the capacity is the capacity itself: no burst is left.
        let throttle = if self.flaw == Flaw::AllowsNoBurst { throttle * 0.8 } else { throttle };
        let decision = self.inner.take(bucket, policy, throttle).await?;
        Ok(RateLimitDecision { allowed: decision.allowed || self.flaw == Flaw::AllowsEverything, ..decision })
    }
}
