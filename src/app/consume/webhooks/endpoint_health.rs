//! EndpointHealth: the state of a webhook's endpoint, derived from its calls, and the decision on an event after a failed attempt.
use std::time::Duration;

use super::delivery::EndpointState;
use crate::consume::chain::ATTEMPTS_MAX;
use crate::policy::breaker::{self, BreakerState, CircuitBreaker};

/// The circuit breaker of an endpoint, and when the endpoint last worked. Times are of any clock that does not go back.
#[derive(Clone, Debug)]
pub struct EndpointHealth {
    /// Stops the calls of an endpoint that does not work.
    pub breaker: CircuitBreaker,
    worked_at: Option<Duration>,
}

/// The decision on an event after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryDecision {
    /// The group delivers the event again, and the attempt does not count.
    NeedsRedelivery,
    /// The next retry topic, or another round through the last one.
    Retry,
    /// No further attempt, until an operator redrives the event from the dead-letter topic.
    DeadLetter,
}

impl EndpointHealth {
    /// Health of an endpoint that was not called yet.
    pub fn new(options: breaker::Options) -> Self {
        Self { breaker: CircuitBreaker::new(options), worked_at: None }
    }

    /// Records a response of an endpoint that works, whatever it says about the event. Returns whether it closed the breaker.
    pub fn worked(&mut self, now: Duration) -> bool {
        self.worked_at = Some(now);
        self.breaker.succeeded()
    }

    /// Whether the latest call found the endpoint working, after the time at which an event failed before: then a further failure of this event
    /// is its own, not an outage.
    pub fn worked_since(&self, failed_at: Duration) -> bool {
        let works = self.breaker.state() == BreakerState::Closed { failures: 0 };
        works && self.worked_at.is_some_and(|worked_at| worked_at > failed_at)
    }
}

/// Decides on an event whose attempt failed. `worked_since`: see [`EndpointHealth::worked_since`], before this attempt. Only an attempt that shows
/// something about the event can be its last: an outage makes no event a dead letter.
pub fn decide_after_failure(
    attempt: u32,
    endpoint: EndpointState,
    probing: bool,
    worked_since: bool,
) -> DeliveryDecision {
    use EndpointState::{Healthy, Overloaded, Unavailable};
    match (endpoint, probing) {
        // The probe shows nothing about the event.
        (Unavailable | Overloaded, true) => DeliveryDecision::NeedsRedelivery,
        _ if attempt < ATTEMPTS_MAX => DeliveryDecision::Retry,
        (Overloaded, false) => DeliveryDecision::Retry,
        (Unavailable, false) if !worked_since => DeliveryDecision::Retry,
        (Healthy, _) | (Unavailable, false) => DeliveryDecision::DeadLetter,
    }
}

#[cfg(test)]
mod tests {
    use super::DeliveryDecision::{DeadLetter, NeedsRedelivery, Retry};
    use super::EndpointState::{Healthy, Overloaded, Unavailable};
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn last_attempt_that_fails_as_in_an_outage_is_repeated_unless_the_endpoint_works() {
        // attempt, endpoint, probing, worked_since
        let cases = [
            ((1, Healthy, false, true), Retry),
            ((4, Unavailable, false, true), Retry),
            ((5, Healthy, false, false), DeadLetter),
            ((5, Healthy, true, false), DeadLetter),
            ((5, Unavailable, false, false), Retry),
            ((9, Unavailable, false, false), Retry),
            ((5, Unavailable, false, true), DeadLetter),
            ((9, Overloaded, false, true), Retry),
            ((1, Unavailable, true, false), NeedsRedelivery),
            ((5, Unavailable, true, false), NeedsRedelivery),
            ((5, Overloaded, true, false), NeedsRedelivery),
        ];
        for (case @ (attempt, endpoint, probing, worked_since), expected) in cases {
            assert_eq!(decide_after_failure(attempt, endpoint, probing, worked_since), expected, "{case:?}");
        }
    }

    #[test]
    fn endpoint_works_since_an_attempt_if_the_latest_call_after_it_succeeded() {
        let mut health = EndpointHealth::new(breaker::Options { failures: 5, open: s(30) });
        assert!(!health.worked_since(s(0)), "it was not called yet");
        health.worked(s(10));
        assert!(health.worked_since(s(9)) && !health.worked_since(s(10)));

        health.breaker.failed(s(11));

        assert!(!health.worked_since(s(9)));
        health.worked(s(13));
        assert!(health.worked_since(s(9)) && health.worked_since(s(12)) && !health.worked_since(s(3_600)));
    }
}
