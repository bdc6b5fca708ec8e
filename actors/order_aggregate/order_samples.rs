//! OrderSamples: changes of orders on the live stream, at most one a second, so that they never displace other events.
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::Order;
use supervision::SupervisionBus;
use tokio::time::Instant;

/// Time between two samples.
const PERIOD: Duration = Duration::from_secs(1);

/// Publishes a sample of the committed changes; shared by all shards.
#[derive(Clone)]
pub struct OrderSamples {
    bus: SupervisionBus,
    state: Arc<Mutex<SampleState>>,
}

#[derive(Default)]
struct SampleState {
    last: Option<Instant>,
    /// Changes since the last sample.
    skipped: u64,
}

impl OrderSamples {
    /// Samples for the stream of this bus.
    pub fn new(bus: SupervisionBus) -> Self {
        Self { bus, state: Arc::default() }
    }

    /// Counts a committed change, and publishes it if no other was published within the last second.
    pub fn record(&self, order: &Order, event_type: &str) {
        let skipped = match self.state.lock().unwrap_or_else(PoisonError::into_inner).sample(Instant::now()) {
            Some(skipped) => skipped,
            None => return,
        };
        let fields = vec![
            ("order_id", order.id.to_string()),
            ("type", event_type.to_owned()),
            ("version", order.version.to_string()),
            ("skipped", skipped.to_string()),
        ];
        self.bus.publish_external("order_sampled", fields);
    }
}

impl SampleState {
    /// The number of changes that were skipped since the last sample, if a sample is due.
    fn sample(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < PERIOD) {
            self.skipped += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_change_a_second_is_a_sample_and_counts_those_before_it() {
        let (mut state, start) = (SampleState::default(), Instant::now());
        let at = |state: &mut SampleState, millis| state.sample(start + Duration::from_millis(millis));

        assert_eq!(at(&mut state, 0), Some(0));
        assert_eq!(at(&mut state, 1), None);
        assert_eq!(at(&mut state, 999), None);
        assert_eq!(at(&mut state, 1_000), Some(2));
        assert_eq!(at(&mut state, 2_500), Some(0));
    }
}
