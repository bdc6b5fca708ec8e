//! FailurePlan: how often an event's handler fails before it accepts the event, and how long it takes.
use std::time::Duration;

use app::consume::chain::ATTEMPTS_MAX;
use app::consume::event_handler::HandlerFault;
use ports::FailureType;
use ports::clock::Rng;

/// Longest time that a slow handler takes, in milliseconds: longer than a partition's handover.
const SLOWNESS_MAX: u64 = 2_000;

/// The share of events with each kind of failure, 0.0..=1.0.
#[derive(Clone, Copy, Debug, Default)]
pub struct FailureRates {
    /// The handler fails some attempts, rarely all of them.
    pub transient: f64,
    /// No retry repairs the failure.
    pub permanent: f64,
    /// The handler takes long.
    pub slow: f64,
}

/// The failures of the handler for one event.
#[derive(Clone, Copy, Debug)]
pub struct FailurePlan {
    /// The attempts that fail, from the first.
    failures: u32,
    is_permanent: bool,
    /// How long the first attempt takes.
    slowness: Duration,
}

impl FailureRates {
    /// Draws the plan of an event.
    pub fn draw(&self, rng: &impl Rng) -> FailurePlan {
        let (kind, failures) = (rng.fraction(), 1 + rng.next_u64() % (u64::from(ATTEMPTS_MAX) + 1));
        let is_permanent = kind < self.permanent;
        let is_transient = !is_permanent && kind < self.permanent + self.transient;
        let is_slow = rng.fraction() < self.slow;
        let slowness = Duration::from_millis(if is_slow { rng.next_u64() % SLOWNESS_MAX } else { 0 });
        FailurePlan { failures: if is_transient { failures as u32 } else { 0 }, is_permanent, slowness }
    }
}

impl FailurePlan {
    /// How long an attempt takes.
    pub fn duration(&self, attempt: u32) -> Duration {
        if attempt == 1 { self.slowness } else { Duration::ZERO }
    }

    /// Whether the event ends among the dead letters.
    pub fn is_dead_letter(&self) -> bool {
        self.is_permanent || self.failures >= ATTEMPTS_MAX
    }

    /// How an attempt fails; `None` if the handler accepts the event.
    pub fn failure(&self, attempt: u32) -> Option<HandlerFault> {
        let fails = self.is_permanent || attempt <= self.failures;
        fails.then(|| HandlerFault {
            retryable: !self.is_permanent,
            failure_type: if self.is_permanent { FailureType::Validation } else { FailureType::Timeout },
            reason: "the simulated handler fails".to_owned(),
        })
    }
}
