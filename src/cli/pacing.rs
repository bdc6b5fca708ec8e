//! The pace of commands that change many things: so many a second, or as fast as they are answered.
use std::time::Duration;

/// Things that one call changes when no rate is set.
const STEP_MAX: u32 = 500;
/// Calls that a rate is divided into, so that a second's share does not arrive at once.
const STEPS_PER_SECOND: u32 = 10;

/// How many things one call changes, and how long it takes at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) step: u32,
    pub(crate) interval: Duration,
}

impl Pace {
    /// The pace of a rate per second; as fast as possible without one.
    pub(crate) fn of_rate(rate: Option<u32>) -> Self {
        let Some(rate) = rate.filter(|rate| *rate > 0) else {
            return Self { step: STEP_MAX, interval: Duration::ZERO };
        };
        let step = rate.div_ceil(STEPS_PER_SECOND).min(STEP_MAX);
        Self { step, interval: Duration::from_secs(1) * step / rate }
    }

    /// The size of the next call when `left` things are left.
    pub(crate) fn next_step(self, left: u64) -> u32 {
        u32::try_from(left).map_or(self.step, |left| left.min(self.step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_step_and_an_interval() {
        let cases = [
            (None, 500, 0),
            (Some(1), 1, 1_000),
            (Some(5), 1, 200),
            (Some(10), 1, 100),
            (Some(100), 10, 100),
            (Some(50_000), 500, 10),
        ];
        for (rate, step, interval_ms) in cases {
            let pace = Pace::of_rate(rate);
            assert_eq!(pace, Pace { step, interval: Duration::from_millis(interval_ms) }, "{rate:?}");
        }
        assert_eq!((Pace::of_rate(None).next_step(7), Pace::of_rate(None).next_step(u64::MAX)), (7, 500));
    }
}
