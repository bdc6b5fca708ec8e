//! Policies that operators set in Redis for a tier and an endpoint class, under the names that an earlier service used:
//! `rate_limit:config:{tier}:{class}:capacity` (requests) and `…:windowMs`. The caller supplies what is not
//! set, and caches policies for ten seconds.
use std::ops::RangeInclusive;
use std::time::Duration;

use deadpool_redis::redis;
use ports::Error;
use ports::rate_limit::{CAPACITY_BOUNDS, StoredLimits, WINDOW_BOUNDS};

use crate::connection::call::{Caller, Request};
use crate::connection::client::RedisInner;

/// Longest tier that is looked up: tiers come from tokens, and operators name none longer.
const TIER_MAX: usize = 64;

impl RedisInner {
    pub(crate) async fn stored_limits(&self, tier: &str, class: &str) -> Result<StoredLimits, Error> {
        if tier.len() > TIER_MAX {
            return Ok(StoredLimits::default());
        }
        let key = |field: &str| format!("{}{tier}:{class}:{field}", self.options.policy_prefix);
        let (capacity_key, window_key) = (key("capacity"), key("windowMs"));
        let mut pipeline = redis::pipe();
        pipeline.get(&capacity_key).get(&window_key);
        let (capacity, window): (Option<String>, Option<String>) =
            self.call(Caller::RateLimit, "look up a policy", Request::Pipeline(&pipeline)).await?;
        let capacity = self.within_bounds(&capacity_key, capacity, |text| text.parse().ok(), &CAPACITY_BOUNDS);
        let milliseconds = |text: &str| text.parse().ok().map(Duration::from_millis);
        let window = self.within_bounds(&window_key, window, milliseconds, &WINDOW_BOUNDS);
        Ok(StoredLimits { capacity, window })
    }

    /// Parses a key's value. Logs a value that is not a number within bounds, once for each key, and ignores it.
    fn within_bounds<T: PartialOrd>(
        &self,
        key: &str,
        text: Option<String>,
        parse: impl FnOnce(&str) -> Option<T>,
        bounds: &RangeInclusive<T>,
    ) -> Option<T> {
        let text = text.filter(|text| !text.trim().is_empty())?;
        let limit = parse(text.trim()).filter(|limit| bounds.contains(limit));
        if limit.is_none() && self.warnings.is_first(key) {
            let value: String = text.chars().take(32).collect();
            tracing::warn!(
                event = "policy_ignored",
                key,
                value,
                "ignored a rate limit in Redis that is not a number within bounds"
            );
        }
        limit
    }
}
