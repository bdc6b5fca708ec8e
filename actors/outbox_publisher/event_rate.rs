//! EventRate: the publish rate of the relay in events per second, smoothed.
use std::time::Duration;

use tokio::time::Instant;

/// Time over which the rate is smoothed: several cycles, and short enough to follow a load that begins.
const SMOOTHED_OVER: Duration = Duration::from_millis(200);
/// Shortest interval of a sample, so that two starts at one moment do not divide by zero.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// An exponentially weighted rate. Pure: the caller passes the time.
#[derive(Debug, Default)]
pub struct EventRate {
    count: usize,
    since: Option<Instant>,
    per_second: f64,
}

impl EventRate {
    /// Counts events towards the next sample.
    pub fn add(&mut self, events: usize) {
        self.count += events;
    }

    /// Adds the events that were counted since the last sample to the rate.
    pub fn sample(&mut self, now: Instant) {
        let count = std::mem::take(&mut self.count);
        let Some(since) = self.since.replace(now) else { return };
        let interval = now.saturating_duration_since(since).max(INTERVAL_MIN).as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "a count of events in an interval is far below 2^52")]
        let sample = count as f64 / interval;
        self.per_second += (sample - self.per_second) * (interval / SMOOTHED_OVER.as_secs_f64()).min(1.0);
    }

    /// The smoothed rate as of the last sample.
    pub fn per_second(&self) -> f64 {
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_follows_the_events_and_falls_to_zero_without_them() {
        let mut rate = EventRate::default();
        let mut now = Instant::now();
        rate.sample(now);
        for _ in 0..200 {
            now += Duration::from_millis(10);
            rate.add(50);
            rate.sample(now);
        }
        assert!((rate.per_second() - 5_000.0).abs() < 5.0, "{}", rate.per_second());

        rate.sample(now + Duration::from_secs(1));
        assert!(rate.per_second().abs() < 1e-9, "{}", rate.per_second());
    }
}
