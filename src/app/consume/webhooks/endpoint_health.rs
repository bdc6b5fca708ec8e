//! EndpointHealth: what the calls of a webhook's endpoint have shown about it, and what follows for an event whose attempt failed.
use std::time::Duration;

use crate::consume::chain::ATTEMPTS_MAX;
use crate::policy::breaker::{self, BreakerState, CircuitBreaker};

/// The circuit breaker of an endpoint, and when the endpoint last worked. Times are of any clock that does not go back.
#[derive(Clone, Debug)]
pub struct EndpointHealth {
    /// Stops the calls of an endpoint that does not work.
    pub breaker: CircuitBreaker,
    worked_at: Option<Duration>,
    /// How long a response shows that the endpoint works.
    recent: Duration,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// The group delivers the event again, and the attempt does not count.
    ComesAgain,
    /// The next retry topic, or another round through the last one.
    Retry,
    /// No further attempt, until an operator redrives the event from the dead-letter topic.
    DeadLetter,
}

impl EndpointHealth {
    /// Health of an endpoint that was not called yet.
    pub fn new(options: breaker::Options) -> Self {
        let recent = options.open;
        Self { breaker: CircuitBreaker::new(options), worked_at: None, recent }
    }

    /// Records a response of an endpoint that works, whatever it says about the event. Returns whether it closed the breaker.
    pub fn worked(&mut self, now: Duration) -> bool {
        self.worked_at = Some(now);
        self.breaker.succeeded()
    }

    /// Whether the latest call succeeded, a short time ago: then a failure is the event's own, not an outage.
    pub fn works(&self, now: Duration) -> bool {
        let is_recent = self.worked_at.is_some_and(|at| now.saturating_sub(at) <= self.recent);
        is_recent && self.breaker.state() == BreakerState::Closed { failures: 0 }
    }
}

/// Decides on an event whose attempt failed. `endpoint_down`: it failed as in an outage. `works`: see [`EndpointHealth::works`], before this
/// attempt. Only an attempt that shows something about the event can be its last: an outage makes no event a dead letter.
pub fn after_failure(attempt: u32, endpoint_down: bool, probing: bool, works: bool) -> AfterFailure {
    match (endpoint_down, probing) {
        // The probe shows nothing about the event.
        (true, true) => AfterFailure::ComesAgain,
        _ if attempt < ATTEMPTS_MAX => AfterFailure::Retry,
        (true, false) if !works => AfterFailure::Retry,
        _ => AfterFailure::DeadLetter,
    }
}

#[cfg(test)]
mod tests {
    use super::AfterFailure::{ComesAgain, DeadLetter, Retry};
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn last_attempt_that_fails_as_in_an_outage_is_repeated_unless_the_endpoint_works() {
        // attempt, endpoint_down, probing, works
        let cases = [
            ((1, false, false, true), Retry),
            ((4, true, false, true), Retry),
            ((5, false, false, false), DeadLetter),
            ((5, false, true, false), DeadLetter),
            ((5, true, false, false), Retry),
            ((9, true, false, false), Retry),
            ((5, true, false, true), DeadLetter),
            ((1, true, true, false), ComesAgain),
            ((5, true, true, false), ComesAgain),
        ];
        for (case @ (attempt, endpoint_down, probing, works), expected) in cases {
            assert_eq!(after_failure(attempt, endpoint_down, probing, works), expected, "{case:?}");
        }
    }

    #[test]
    fn endpoint_works_for_a_while_after_a_response_until_a_call_fails() {
        let mut health = EndpointHealth::new(breaker::Options { failures: 5, open: s(30) });
        assert!(!health.works(s(0)), "it was not called yet");
        health.worked(s(10));
        assert!(health.works(s(10)) && health.works(s(40)) && !health.works(s(41)));

        health.breaker.failed(s(11));

        assert!(!health.works(s(12)));
        health.worked(s(13));
        assert!(health.works(s(14)));
    }
}
