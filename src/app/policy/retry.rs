//! When to try again: min(max, base · 2^(n−1)) · factor ÷ max(0.2, throttling), ± jitter, capped. The seeds' AdaptiveRetryPolicyStrategy.
use std::time::Duration;

use ports::Fault;
use serde::Deserialize;

/// How patient the outbox is.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Most attempts; the first counts.
    pub attempts_max: u32,
    /// Delay after the first failure.
    pub base: Duration,
    /// Longest delay.
    pub max: Duration,
    /// Share by which a delay varies, either way, so that a thousand rows do not come back as one.
    pub jitter: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { attempts_max: 12, base: Duration::from_secs(1), max: Duration::from_secs(300), jitter: 0.2 }
    }
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Try again after this delay.
    RetryIn(Duration),
    /// No attempt is left, or none would help.
    GiveUp,
}

/// Throttling below this lengthens delays no further.
const THROTTLE_FLOOR: f64 = 0.2;
/// Trouble of this class passes slower.
const SEMI_TRANSIENT_FACTOR: f64 = 1.75;

/// The verdict on attempt number `attempt` (from 1), at a throttling factor of 0.0..=1.0; `chance` is a roll in 0.0..1.0.
pub fn verdict(options: &Options, attempt: u32, fault: Fault, throttle: f64, chance: f64) -> Verdict {
    let factor = match fault {
        Fault::Permanent => return Verdict::GiveUp,
        Fault::Transient => 1.0,
        Fault::SemiTransient => SEMI_TRANSIENT_FACTOR,
    };
    if attempt >= options.attempts_max {
        return Verdict::GiveUp;
    }
    let doubled = options.base.as_secs_f64() * 2_f64.powi(attempt.saturating_sub(1).min(62) as i32);
    let plain = doubled.min(options.max.as_secs_f64()) * factor / throttle.max(THROTTLE_FLOOR);
    let swing = 1.0 + options.jitter.clamp(0.0, 1.0) * (2.0 * chance - 1.0);
    Verdict::RetryIn(Duration::from_secs_f64((plain * swing).clamp(0.0, options.max.as_secs_f64())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay(attempt: u32, fault: Fault, throttle: f64, chance: f64) -> Option<u64> {
        match verdict(&Options::default(), attempt, fault, throttle, chance) {
            Verdict::RetryIn(delay) => Some(delay.as_millis() as u64),
            Verdict::GiveUp => None,
        }
    }

    #[test]
    fn delays_double_and_are_capped() {
        let delays: Vec<_> = (1..=12).map(|attempt| delay(attempt, Fault::Transient, 1.0, 0.5)).collect();
        let seconds = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300];
        assert_eq!(delays[..11], seconds.map(|s| Some(s * 1_000)));
        assert_eq!(delays[11], None, "the twelfth attempt was the last");
    }

    #[test]
    fn class_pressure_and_chance_stretch_them() {
        let cases = [
            (Fault::SemiTransient, 1.0, 0.5, Some(3_500)),
            (Fault::Transient, 0.5, 0.5, Some(4_000)),
            (Fault::Transient, 0.0, 0.5, Some(10_000)),
            (Fault::Transient, 1.0, 0.0, Some(1_600)),
            (Fault::Transient, 1.0, 1.0, Some(2_400)),
            (Fault::Permanent, 1.0, 0.5, None),
        ];
        for (fault, throttle, chance, expected) in cases {
            assert_eq!(delay(2, fault, throttle, chance), expected, "{fault:?} {throttle} {chance}");
        }
    }

    #[test]
    fn no_delay_is_longer_than_the_longest() {
        assert_eq!(delay(10, Fault::SemiTransient, 0.2, 1.0), Some(300_000));
    }
}
