//! Token buckets. A backend that fails lets requests pass: availability before policy.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Error;

/// How many requests, in which time. Refilled evenly at capacity / window; the bucket holds a quarter more than the capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimitPolicy {
    /// Its name in headers and metrics.
    pub name: Arc<str>,
    /// Requests per window.
    pub capacity: u32,
    /// The window.
    pub window: Duration,
}

/// What a bucket answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitDecision {
    /// Whether the request may pass; then its token is gone.
    pub allowed: bool,
    /// Whole tokens left.
    pub remaining: u32,
    /// Until the next token.
    pub next_in: Duration,
}

/// Buckets by name.
#[async_trait]
pub trait RateLimiter: Send + Sync {
    /// Takes one token. `throttle` in 0.0..=1.0 narrows refill and size of the bucket (backpressure).
    async fn take(&self, bucket: &str, policy: &RateLimitPolicy, throttle: f64) -> Result<RateLimitDecision, Error>;

    /// The policy of a tier and endpoint class, where one is set aside from the default.
    async fn policy(&self, tier: &str, class: &str) -> Result<Option<RateLimitPolicy>, Error>;
}
