//! The sliding window that stands in for a bucket whose script fails: two counters, the former weighted by how much of it the last
//! window's length still covers. Plain commands only, because scripts are what failed. It holds the capacity without the quarter on top.
use std::time::Duration;

use deadpool_redis::redis;
use ports::Error;
use ports::rate_limit::{RateLimitDecision, RateLimitPolicy};

use crate::link::{Ask, Caller, one};
use crate::open::Inner;
use crate::rate_limit::WAIT_MAX;

/// Where in which window the server's clock stands.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    number: u64,
    /// How much of this window has passed, 0.0..1.0.
    passed: f64,
}

impl Place {
    fn at(now_ms: u64, window_ms: u64) -> Self {
        Self { number: now_ms / window_ms, passed: (now_ms % window_ms) as f64 / window_ms as f64 }
    }

    /// What becomes of a request that was counted in `current`.
    fn taken(self, current: u64, former: u64, limit: f64, window: Duration) -> RateLimitDecision {
        let counted = current as f64 + former as f64 * (1.0 - self.passed);
        let left = (limit - counted).max(0.0);
        let next_in = Duration::try_from_secs_f64(window.as_secs_f64() / limit).unwrap_or(WAIT_MAX).min(WAIT_MAX);
        RateLimitDecision { allowed: counted <= limit, remaining: left as u32, next_in }
    }
}

impl Inner {
    pub(crate) async fn take_in_window(
        &self,
        bucket: &str,
        policy: &RateLimitPolicy,
        throttle: f64,
    ) -> Result<RateLimitDecision, Error> {
        let doing = "count in a window";
        let window_ms = u64::try_from(policy.window.as_millis()).unwrap_or(u64::MAX / 4).clamp(1, u64::MAX / 4);
        let ((seconds, micros),): ((u64, u64),) =
            self.ask(Caller::RateLimit, doing, Ask::Pipe(&one(redis::cmd("TIME")))).await?;
        let place = Place::at(seconds * 1_000 + micros / 1_000, window_ms);
        let name = self.names.window(bucket, place.number);
        let mut count = redis::pipe();
        count.incr(&name, 1).cmd("PEXPIRE").arg(&name).arg(window_ms * 2).ignore();
        count.get(self.names.window(bucket, place.number.saturating_sub(1)));
        let (current, former): (u64, Option<u64>) = self.ask(Caller::RateLimit, doing, Ask::Pipe(&count)).await?;
        let limit = (f64::from(policy.capacity) * throttle).floor();
        let taken = place.taken(current, former.unwrap_or(0), limit, policy.window);
        if !taken.allowed {
            // A refused request takes nothing. If this fails, it has taken one after all: the window forgets it.
            let mut uncount = redis::cmd("DECR");
            uncount.arg(&name);
            let _: Result<(i64,), Error> = self.ask(Caller::RateLimit, doing, Ask::Pipe(&one(uncount))).await;
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_former_window_counts_for_as_much_as_is_still_in_sight() {
        let place = Place::at(10_250, 1_000);
        assert_eq!(place, Place { number: 10, passed: 0.25 });

        let window = Duration::from_secs(1);
        assert_eq!(
            place.taken(4, 8, 10.0, window),
            RateLimitDecision { allowed: true, remaining: 0, next_in: window / 10 }
        );
        assert!(!place.taken(5, 8, 10.0, window).allowed);
        assert_eq!(place.taken(1, 0, 10.0, window).remaining, 9);
        assert_eq!(
            place.taken(1, 0, 0.0, window),
            RateLimitDecision { allowed: false, remaining: 0, next_in: WAIT_MAX }
        );
    }
}
