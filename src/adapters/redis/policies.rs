//! Policies that operators set aside in Redis for a tier and an endpoint class, by the names the seeds' service reads:
//! `rate_limit:config:{tier}:{class}:capacity` (requests) and `…:windowMs`. One of the two is enough; the other is the default's.
//! How long an answer is believed is the caller's business: it remembers policies for ten seconds.
use std::collections::BTreeSet;
use std::time::Duration;

use deadpool_redis::redis;
use parking_lot::Mutex;
use ports::Error;
use ports::rate_limit::RateLimitPolicy;

use crate::link::{Ask, Caller};
use crate::open::Inner;

/// Longest tier that is looked up: it comes from a token, and no operator names one longer.
const TIER_MAX: usize = 64;
/// A window shorter than half a second measures the network, a longer one than a day is a quota.
const WINDOW_MS: std::ops::RangeInclusive<u64> = 500..=86_400_000;
const CAPACITY: std::ops::RangeInclusive<u32> = 1..=1_000_000;
/// Most keys that are complained about; who has made more mistakes than that has read the log by now.
const COMPLAINTS_MAX: usize = 64;

/// What the log has told of already.
#[derive(Default)]
pub(crate) struct Complaints(Mutex<BTreeSet<String>>);

impl Complaints {
    /// Whether to complain about this: once.
    pub(crate) fn first(&self, about: &str) -> bool {
        let mut told = self.0.lock();
        told.len() < COMPLAINTS_MAX && told.insert(about.to_owned())
    }
}

impl Inner {
    pub(crate) async fn policy(&self, tier: &str, class: &str) -> Result<Option<RateLimitPolicy>, Error> {
        if tier.len() > TIER_MAX {
            return Ok(None);
        }
        let key = |field: &str| format!("{}{tier}:{class}:{field}", self.options.policies);
        let (capacity_key, window_key) = (key("capacity"), key("windowMs"));
        let mut pipe = redis::pipe();
        pipe.get(&capacity_key).get(&window_key);
        let (capacity, window): (Option<String>, Option<String>) =
            self.ask(Caller::RateLimit, "look up a policy", Ask::Pipe(&pipe)).await?;
        let capacity = self.legal(&capacity_key, capacity, &CAPACITY);
        let window = self.legal(&window_key, window, &WINDOW_MS).map(Duration::from_millis);
        if capacity.is_none() && window.is_none() {
            return Ok(None);
        }
        Ok(Some(RateLimitPolicy {
            name: format!("{tier}:{class}").into(),
            capacity: capacity.unwrap_or(self.options.capacity),
            window: window.unwrap_or(self.options.window),
        }))
    }

    fn legal<N: std::str::FromStr + PartialOrd>(
        &self,
        key: &str,
        text: Option<String>,
        bounds: &std::ops::RangeInclusive<N>,
    ) -> Option<N> {
        let text = text.filter(|text| !text.trim().is_empty())?;
        let number = text.trim().parse().ok().filter(|number| bounds.contains(number));
        if number.is_none() && self.complaints.first(key) {
            let value: String = text.chars().take(32).collect();
            tracing::warn!(
                event = "policy_ignored",
                key,
                value,
                "a rate limit in Redis is no number within bounds; ignored"
            );
        }
        number
    }
}
