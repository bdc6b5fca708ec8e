//! Token buckets. A backend that fails lets requests pass: availability before policy.
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Error;

/// Accepted capacities of a policy for a tier.
pub const CAPACITY_BOUNDS: RangeInclusive<u32> = 1..=1_000_000;
/// Accepted windows of a policy for a tier: a window below half a second measures the network's jitter, and one above a day is a quota.
pub const WINDOW_BOUNDS: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(86_400);

/// Longest reported time until the next token, also for a bucket that is never refilled.
pub const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// The throttle as a share of 0 to 1; a value that is not finite counts as 1.
pub fn clamped_throttle(throttle: f64) -> f64 {
    if throttle.is_finite() { throttle.clamp(0.0, 1.0) } else { 1.0 }
}

/// Requests per time window. A bucket refills evenly at capacity / window and holds a quarter more than the capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimitPolicy {
    /// Name in response headers and metrics.
    pub name: Arc<str>,
    /// Number of requests per window.
    pub capacity: u32,
    /// Length of the window.
    pub window: Duration,
}

impl RateLimitPolicy {
    /// Most tokens of a bucket under a throttle: a quarter more than the capacity.
    pub fn bucket_size(&self, throttle: f64) -> f64 {
        whole_requests(f64::from(self.capacity) * 1.25 * throttle)
    }

    /// Tokens that a bucket gains in a millisecond under a throttle.
    pub fn tokens_per_ms(&self, throttle: f64) -> f64 {
        f64::from(self.capacity) * throttle / (self.window.as_secs_f64() * 1_000.0).max(1.0)
    }

    /// Most requests in a window under a throttle, without a burst.
    pub fn window_size(&self, throttle: f64) -> f64 {
        whole_requests(f64::from(self.capacity) * throttle)
    }
}

/// Rounds down, but not to zero: a throttle that reduces a small capacity below one request makes requests rarer, and does not refuse all of them.
fn whole_requests(requests: f64) -> f64 {
    if requests > 0.0 { requests.floor().max(1.0) } else { 0.0 }
}

/// Limits of a tier and endpoint class that operators set at run time. The configuration supplies what is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredLimits {
    /// Number of requests per window.
    pub capacity: Option<u32>,
    /// Length of the window.
    pub window: Option<Duration>,
}

/// Result of taking a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitDecision {
    /// Whether a token was taken, so that the request is allowed.
    pub allowed: bool,
    /// Number of whole tokens left.
    pub remaining: u32,
    /// Time until the next token.
    pub next_in: Duration,
}

/// The error that sums of fractions of a token may have: it must not cost a whole token.
pub const TOKEN_ROUNDING: f64 = 1e-9;

impl RateLimitDecision {
    /// The decision of a token bucket that has `tokens` left after the request. A bucket without a refill reports [`WAIT_MAX`].
    pub fn of_bucket(allowed: bool, tokens: f64, tokens_per_ms: f64) -> Self {
        let tokens = tokens + TOKEN_ROUNDING;
        let missing_ms = ((1.0 - tokens.fract()) / tokens_per_ms).round().max(1.0);
        Self { allowed, remaining: tokens as u32, next_in: limited_wait(missing_ms / 1_000.0) }
    }
}

/// A wait of so many seconds, at most [`WAIT_MAX`].
pub fn limited_wait(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(WAIT_MAX).min(WAIT_MAX)
}

/// Token buckets by name.
#[async_trait]
pub trait RateLimiter: Send + Sync {
    /// Takes one token. `throttle` in 0.0..=1.0 scales refill rate and size of the bucket (backpressure).
    async fn take(&self, bucket: &str, policy: &RateLimitPolicy, throttle: f64) -> Result<RateLimitDecision, Error>;

    /// Reads the limits that operators have stored for a tier and endpoint class. A backend without shared storage has none.
    async fn stored_limits(&self, _tier: &str, _class: &str) -> Result<StoredLimits, Error> {
        Ok(StoredLimits::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_and_zero_only_under_a_throttle_of_zero() {
        let sizes = |capacity, throttle| {
            let policy = RateLimitPolicy { name: "p".into(), capacity, window: Duration::from_secs(60) };
            (policy.bucket_size(throttle), policy.window_size(throttle))
        };
        assert_eq!(sizes(120, 1.0), (150.0, 120.0));
        assert_eq!(sizes(3, 0.5), (1.0, 1.0));
        assert_eq!(sizes(1, 0.1), (1.0, 1.0));
        assert_eq!(sizes(1, 0.0), (0.0, 0.0));
    }

    #[test]
    fn throttles_are_shares() {
        assert_eq!([f64::NAN, f64::INFINITY, -1.0, 0.5, 7.0].map(clamped_throttle), [1.0, 1.0, 0.0, 0.5, 1.0]);
    }

    #[test]
    fn a_bucket_reports_whole_tokens_and_the_time_of_the_next_one() {
        let next_in = |tokens, tokens_per_ms| RateLimitDecision::of_bucket(false, tokens, tokens_per_ms).next_in;

        let first = RateLimitDecision { allowed: true, remaining: 149, next_in: Duration::from_millis(500) };
        assert_eq!(RateLimitDecision::of_bucket(true, 149.0, 0.002), first);
        assert_eq!(next_in(0.75, 0.002), Duration::from_millis(125));
        let closed = RateLimitDecision { allowed: false, remaining: 0, next_in: WAIT_MAX };
        assert_eq!(RateLimitDecision::of_bucket(false, 0.0, 0.0), closed);
        let half = RateLimitDecision { allowed: true, remaining: 149, next_in: Duration::from_millis(250) };
        assert_eq!(RateLimitDecision::of_bucket(true, 149.5, 0.002), half);
        assert_eq!(RateLimitDecision::of_bucket(true, 2.999_999_999_9, 0.002).remaining, 3, "a rounding error");
        assert_eq!([next_in(0.0, 0.0), next_in(0.0, 1e-9)], [WAIT_MAX; 2]);
    }
}
