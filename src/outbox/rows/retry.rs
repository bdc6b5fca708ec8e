//! The delay before the next attempt: min(max, base · 2^(n−1)) · factor ÷ max(0.2, throttling), ± jitter, capped at max.
use serde::Deserialize;
use std::time::Duration;

use crate::failure::FaultClass;

/// How often and when a failed row is tried again.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    /// Most attempts; the first one counts.
    pub attempts_max: u32,
    /// Delay after the first failure.
    pub base: Duration,
    /// Longest delay, jitter and throttling included.
    pub max: Duration,
    /// Share by which a delay varies, either way, so that a thousand rows do not become due at once.
    pub jitter: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts_max: 12, base: Duration::from_secs(1), max: Duration::from_secs(300), jitter: 0.2 }
    }
}

/// The action after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// Try again after this delay.
    RetryIn(Duration),
    /// No attempt is left, or no further attempt can succeed.
    GiveUp,
}

/// Throttling below this value lengthens delays no further.
const THROTTLING_MIN: f64 = 0.2;
/// Semi-transient failures pass more slowly, so their delays are longer.
const SEMI_TRANSIENT_FACTOR: f64 = 1.75;

impl RetryPolicy {
    /// The number of attempts after attempt number `attempt` failed in an outage. Outages raise it to half of `attempts_max` at most, so that the
    /// other half is left to other failures, and never lower it below its value before the attempt.
    pub fn attempts_after_outage(&self, attempt: u32) -> u32 {
        attempt.min(attempt.saturating_sub(1).max(self.attempts_max / 2))
    }

    /// Decides after attempt number `attempt` (from 1). `throttling` in 0.0..=1.0 divides the delay: 1.0 under normal load, less under
    /// backpressure. `random` is a number in 0.0..1.0 that selects the jitter.
    pub fn decide(&self, attempt: u32, fault: FaultClass, throttling: f64, random: f64) -> RetryDecision {
        let factor = match fault {
            FaultClass::Permanent => return RetryDecision::GiveUp,
            FaultClass::Transient => 1.0,
            FaultClass::SemiTransient => SEMI_TRANSIENT_FACTOR,
        };
        if attempt >= self.attempts_max {
            return RetryDecision::GiveUp;
        }
        let doubled = self.base.as_secs_f64() * 2_f64.powi(attempt.saturating_sub(1).min(62) as i32);
        let delay = doubled.min(self.max.as_secs_f64()) * factor / throttling.max(THROTTLING_MIN);
        let jitter = 1.0 + self.jitter.clamp(0.0, 1.0) * (2.0 * random - 1.0);
        RetryDecision::RetryIn(Duration::from_secs_f64((delay * jitter).clamp(0.0, self.max.as_secs_f64())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay_ms(attempt: u32, fault: FaultClass, throttling: f64, random: f64) -> Option<u64> {
        match RetryPolicy::default().decide(attempt, fault, throttling, random) {
            RetryDecision::RetryIn(delay) => Some(delay.as_millis() as u64),
            RetryDecision::GiveUp => None,
        }
    }

    #[test]
    fn delays_double_and_are_capped() {
        let delays: Vec<_> = (1..=12).map(|attempt| delay_ms(attempt, FaultClass::Transient, 1.0, 0.5)).collect();
        let seconds = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300];
        assert_eq!(delays[..11], seconds.map(|seconds| Some(seconds * 1_000)));
        assert_eq!(delays[11], None, "the twelfth attempt was the last");
    }

    #[test]
    fn fault_throttling_and_jitter_lengthen_delays() {
        let cases = [
            (FaultClass::SemiTransient, 1.0, 0.5, Some(3_500)),
            (FaultClass::Transient, 0.5, 0.5, Some(4_000)),
            (FaultClass::Transient, 0.0, 0.5, Some(10_000)),
            (FaultClass::Transient, 1.0, 0.0, Some(1_600)),
            (FaultClass::Transient, 1.0, 1.0, Some(2_400)),
            (FaultClass::Permanent, 1.0, 0.5, None),
        ];
        for (fault, throttling, random, expected) in cases {
            assert_eq!(delay_ms(2, fault, throttling, random), expected, "{fault:?} {throttling} {random}");
        }
    }

    /// The counts after so many outages in a row, the first of them in attempt number `attempt`.
    fn counts_after_outages(attempts_max: u32, attempt: u32) -> [u32; 4] {
        let policy = RetryPolicy { attempts_max, ..RetryPolicy::default() };
        let mut next = attempt;
        [(); 4].map(|()| {
            let count = policy.attempts_after_outage(next);
            next = count + 1;
            count
        })
    }

    #[test]
    fn outages_alone_use_up_half_of_the_attempts_at_most() {
        let cases = [(1, [0, 0, 0, 0]), (2, [1, 1, 1, 1]), (3, [1, 1, 1, 1]), (4, [1, 2, 2, 2]), (12, [1, 2, 3, 4])];
        for (attempts_max, expected) in cases {
            assert_eq!(counts_after_outages(attempts_max, 1), expected, "of {attempts_max}");
        }
        assert_eq!(counts_after_outages(12, 5), [5, 6, 6, 6]);
    }

    #[test]
    fn outage_takes_back_no_attempt_that_was_used_before_it() {
        for attempts_max in 1..=12 {
            for before in 0..attempts_max {
                let counts = counts_after_outages(attempts_max, before + 1);
                assert!(counts.iter().all(|count| (before..attempts_max).contains(count)), "{before}: {counts:?}");
            }
        }
        assert_eq!(counts_after_outages(12, 10), [9; 4]);
    }

    #[test]
    fn no_delay_exceeds_the_longest() {
        assert_eq!(delay_ms(10, FaultClass::SemiTransient, 0.2, 1.0), Some(300_000));
    }
}
