//! The delay before a restart: exponential with a cap and jitter. OTP restarts at once; the delay keeps a crash loop from using the CPU.

use std::time::Duration;

/// Exponential restart delays with a cap and jitter.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The first delay, never jittered. 50 ms: long enough to break a tight loop, far below the second in which an operator expects
    /// an actor back.
    pub min: Duration,
    /// The longest delay. 500 ms: the restart intensity, not the delay, ends a crash loop.
    pub max: Duration,
    /// Growth from one failure to the next. 2.
    pub factor: f64,
    /// Share of the growth that jitter may remove, 0 to 1. 0.2: children that failed together do not restart together.
    pub jitter: f64,
    /// After an uptime of this length the next delay is `min` again. 60 s.
    pub reset_after: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            min: Duration::from_millis(50),
            max: Duration::from_millis(500),
            factor: 2.0,
            jitter: 0.2,
            reset_after: Duration::from_secs(60),
        }
    }
}

impl Backoff {
    /// The delay before the restart that follows failure number `failures` in a row (1 = the first), with `random` in 0..1. It lies
    /// between `min` and `max`, and is exactly `min` for the first.
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        let exponent = failures.saturating_sub(1).min(i32::MAX as u32) as i32;
        let (min, max) = (self.min.as_secs_f64(), self.max.as_secs_f64());
        // As seconds, because a factor of ten exceeds every duration after some twenty failures. `max` first: NaN becomes the minimum.
        let seconds = (min * self.factor.powi(exponent)).max(min).min(max);
        let grown = Duration::try_from_secs_f64(seconds).unwrap_or(self.max).min(self.max).max(self.min);
        let kept = 1.0 - share(self.jitter) * share(random);
        self.min + (grown - self.min).mul_f64(kept)
    }
}

/// The value clamped to 0..=1; NaN is 0.
fn share(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_millis(50);
    const MAX: Duration = Duration::from_millis(500);

    fn delays(factor: f64, failures: [u32; 3]) -> [Duration; 3] {
        failures.map(|failures| Backoff { factor, ..Backoff::default() }.delay(failures, 0.0))
    }

    #[test]
    fn delay_grows_from_the_minimum_to_the_maximum() {
        assert_eq!(delays(2.0, [1, 2, 3]), [MIN, MIN * 2, MIN * 4]);
        assert_eq!(delays(2.0, [4, 5, u32::MAX]), [MIN * 8, MAX, MAX]);
        assert_eq!(delays(10.0, [22, 400, u32::MAX]), [MAX; 3], "ten to this power is no duration");
    }

    #[test]
    fn delay_stays_between_its_limits_for_every_factor_and_jitter() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -3.0, -0.0, 0.0, 0.5, 1e300] {
            for failures in [0, 1, 2, 3, 31, u32::MAX] {
                let delay = Backoff { factor: value, jitter: value, ..Backoff::default() }.delay(failures, value);
                assert!((MIN..=MAX).contains(&delay), "{value} after {failures} failures: {delay:?}");
            }
        }
    }

    #[test]
    fn jitter_shortens_the_growth_and_never_the_minimum() {
        let backoff = Backoff { jitter: 1.0, ..Backoff::default() };
        assert_eq!(backoff.delay(1, 1.0), MIN);
        assert_eq!(backoff.delay(9, 1.0), MIN);
        assert_eq!(backoff.delay(9, 0.0), MAX);
    }
}
