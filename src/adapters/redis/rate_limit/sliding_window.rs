//! The sliding window that replaces a bucket whose script fails: two counters, the former one weighted by the share of it that the last
//! window's length still covers. It uses plain commands only, because scripts failed, and allows the capacity without the burst of a quarter.
use std::time::Duration;

use deadpool_redis::redis;
use ports::Error;
use ports::rate_limit::{RateLimitDecision, RateLimitPolicy, limited_wait};

use crate::connection::call::{Caller, Request, single};
use crate::connection::client::RedisInner;

/// The server's time as a window and a position in it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WindowPosition {
    number: u64,
    /// The elapsed share of this window, 0.0..1.0.
    elapsed: f64,
}

impl WindowPosition {
    fn new(now_ms: u64, window_ms: u64) -> Self {
        Self { number: now_ms / window_ms, elapsed: (now_ms % window_ms) as f64 / window_ms as f64 }
    }

    /// The decision about a request that `current` already counts.
    fn decision(self, current: u64, former: u64, limit: f64, window: Duration) -> RateLimitDecision {
        let counted = current as f64 + former as f64 * (1.0 - self.elapsed);
        let left = (limit - counted).max(0.0);
        let next_in = limited_wait(window.as_secs_f64() / limit);
        RateLimitDecision { allowed: counted <= limit, remaining: left as u32, next_in }
    }
}

impl RedisInner {
    pub(crate) async fn take_in_window(
        &self,
        bucket: &str,
        policy: &RateLimitPolicy,
        throttle: f64,
    ) -> Result<RateLimitDecision, Error> {
        let operation = "count in a window";
        let window_ms = u64::try_from(policy.window.as_millis()).unwrap_or(u64::MAX / 4).clamp(1, u64::MAX / 4);
        let ((seconds, micros),): ((u64, u64),) =
            self.call(Caller::RateLimit, operation, Request::Pipeline(&single(redis::cmd("TIME")))).await?;
        let position = WindowPosition::new(seconds * 1_000 + micros / 1_000, window_ms);
        let key = self.keys.window(bucket, position.number);
        let mut count = redis::pipe();
        count.incr(&key, 1).cmd("PEXPIRE").arg(&key).arg(window_ms * 2).ignore();
        count.get(self.keys.window(bucket, position.number.saturating_sub(1)));
        let (current, former): (u64, Option<u64>) =
            self.call(Caller::RateLimit, operation, Request::Pipeline(&count)).await?;
        let decision = position.decision(current, former.unwrap_or(0), policy.window_size(throttle), policy.window);
        if !decision.allowed {
            // A refused request does not count. If this command fails it does, until the window has passed.
            let mut uncount = redis::cmd("DECR");
            uncount.arg(&key);
            let _: Result<(i64,), Error> =
                self.call(Caller::RateLimit, operation, Request::Pipeline(&single(uncount))).await;
        }
        Ok(decision)
    }
}

#[cfg(test)]
mod tests {
    use ports::rate_limit::WAIT_MAX;

    use super::*;

    #[test]
    fn the_former_window_counts_for_the_share_that_is_still_covered() {
        let position = WindowPosition::new(10_250, 1_000);
        assert_eq!(position, WindowPosition { number: 10, elapsed: 0.25 });

        let window = Duration::from_secs(1);
        assert_eq!(
            position.decision(4, 8, 10.0, window),
            RateLimitDecision { allowed: true, remaining: 0, next_in: window / 10 }
        );
        assert!(!position.decision(5, 8, 10.0, window).allowed);
        assert_eq!(position.decision(1, 0, 10.0, window).remaining, 9);
        assert_eq!(
            position.decision(1, 0, 0.0, window),
            RateLimitDecision { allowed: false, remaining: 0, next_in: WAIT_MAX }
        );
    }
}
