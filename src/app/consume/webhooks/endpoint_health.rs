//! EndpointHealth: the state of a webhook's endpoint, derived from its calls, and the decision on an event after a failed attempt.
use std::time::Duration;

use super::delivery::EndpointState;
use crate::consume::chain::{ATTEMPTS_MAX, FailureAction};
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
    /// The event is forwarded: to the next retry topic, or through the last one again, or to the dead letters.
    Forward(FailureAction),
}

impl EndpointHealth {
    /// Health of an endpoint that was not called yet.
    pub fn new(options: breaker::Options) -> Self {
        Self { breaker: CircuitBreaker::new(options), worked_at: None }
    }

    /// Records a response of an endpoint that works, whatever its status says about the event. Returns whether it closed the breaker.
    pub fn record_success(&mut self, now: Duration) -> bool {
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
        _ if attempt < ATTEMPTS_MAX => DeliveryDecision::Forward(FailureAction::Retry),
        (Overloaded, false) => DeliveryDecision::Forward(FailureAction::Retry),
        (Unavailable, false) if !worked_since => DeliveryDecision::Forward(FailureAction::Retry),
        (Healthy, _) | (Unavailable, false) => DeliveryDecision::Forward(FailureAction::DeadLetter),
    }
}

#[cfg(test)]
mod tests {
    use super::DeliveryDecision::{Forward, NeedsRedelivery};
    use super::EndpointState::{Healthy, Overloaded, Unavailable};
    use super::*;

    const RETRY: DeliveryDecision = Forward(FailureAction::Retry);
    const DEAD_LETTER: DeliveryDecision = Forward(FailureAction::DeadLetter);

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn last_attempt_that_fails_as_in_an_outage_is_repeated_unless_the_endpoint_works() {
        // attempt, endpoint, probing, worked_since
        let cases = [
            ((1, Healthy, false, true), RETRY),
            ((4, Unavailable, false, true), RETRY),
            ((5, Healthy, false, false), DEAD_LETTER),
            ((5, Healthy, true, false), DEAD_LETTER),
            ((5, Unavailable, false, false), RETRY),
            ((9, Unavailable, false, false), RETRY),
            ((5, Unavailable, false, true), DEAD_LETTER),
            ((9, Overloaded, false, true), RETRY),
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
        health.record_success(s(10));
        assert!(health.worked_since(s(9)) && !health.worked_since(s(10)));

        health.breaker.failed(s(11));

        assert!(!health.worked_since(s(9)));
        health.record_success(s(13));
        assert!(health.worked_since(s(9)) && health.worked_since(s(12)) && !health.worked_since(s(3_600)));
    }
}
