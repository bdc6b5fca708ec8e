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
        // 30 doublings of a millisecond are twelve days: beyond any cap, and no overflow.
        let exponent = failures.saturating_sub(1).min(30) as i32;
        let grown = self.min.mul_f64(self.factor.powi(exponent)).min(self.max).max(self.min);
        self.min + (grown - self.min).mul_f64(1.0 - self.jitter.clamp(0.0, 1.0) * random.clamp(0.0, 1.0))
    }
}
