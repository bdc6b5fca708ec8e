//! A circuit breaker as data: consecutive failures open it, after a delay one probe is allowed, and the probe's result decides.
use serde::Deserialize;
use std::time::Duration;

/// When the breaker opens and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Number of consecutive failures that open it.
    pub failures: u32,
    /// How long it stays open before one probe is allowed.
    pub open: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { failures: 5, open: Duration::from_secs(20) }
    }
}

/// A circuit breaker. `now` is any clock that does not go back.
#[derive(Clone, Debug)]
pub struct CircuitBreaker {
    options: Options,
    state: BreakerState,
}

/// Whether calls are allowed, and what changes that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Every call is allowed.
    Closed {
        /// Number of consecutive failures so far.
        failures: u32,
    },
    /// No call is allowed.
    Open {
        /// Time from which a probe is allowed.
        until: Duration,
    },
    /// One probe is running.
    HalfOpen,
}

/// The breaker's permission for a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerPermit {
    /// Make the call without restriction.
    Free,
    /// Make the call as the only probe.
    Probe,
    /// Wait this long before asking again.
    Wait(Duration),
}

impl CircuitBreaker {
    /// Creates a closed breaker.
    pub fn new(options: Options) -> Self {
        Self { options, state: BreakerState::Closed { failures: 0 } }
    }

    /// Asks whether a call is allowed now.
    pub fn try_acquire(&mut self, now: Duration) -> BreakerPermit {
        match self.state {
            BreakerState::Closed { .. } => BreakerPermit::Free,
            BreakerState::Open { until } if now >= until => {
                self.state = BreakerState::HalfOpen;
                BreakerPermit::Probe
            }
            BreakerState::Open { until } => BreakerPermit::Wait(until - now),
            BreakerState::HalfOpen => BreakerPermit::Wait(self.options.open),
        }
    }

    /// Records a successful call. Returns whether it closed the breaker.
    pub fn succeeded(&mut self) -> bool {
        let before = std::mem::replace(&mut self.state, BreakerState::Closed { failures: 0 });
        !matches!(before, BreakerState::Closed { .. })
    }

    /// Records a failure of the dependency itself, not of one record. Returns whether it opened the breaker.
    pub fn failed(&mut self, now: Duration) -> bool {
        let failures = match self.state {
            BreakerState::Closed { failures } => failures + 1,
            BreakerState::HalfOpen => self.options.failures,
            BreakerState::Open { .. } => return false,
        };
        if failures < self.options.failures {
            self.state = BreakerState::Closed { failures };
            return false;
        }
        self.state = BreakerState::Open { until: now + self.options.open };
        true
    }

    /// Records a probe whose result shows nothing about the dependency: the next caller probes again.
    pub fn probe_without_result(&mut self, now: Duration) {
        if self.state == BreakerState::HalfOpen {
            self.state = BreakerState::Open { until: now };
        }
    }

    /// Allows a probe at once, because the dependency was seen to respond again.
    pub fn allow_probe_now(&mut self, now: Duration) {
        if let BreakerState::Open { until } = &mut self.state {
            *until = now.min(*until);
        }
    }

    /// Time until the next probe is allowed, zero when it is; `None` unless the breaker is open.
    pub fn until_probe(&self, now: Duration) -> Option<Duration> {
        match self.state {
            BreakerState::Open { until } => Some(until.saturating_sub(now)),
            BreakerState::Closed { .. } | BreakerState::HalfOpen => None,
        }
    }

    /// The present state, for views.
    pub fn state(&self) -> BreakerState {
        self.state
    }

    /// The state's name: `closed`, `half-open` or `open`.
    pub fn name(&self) -> &'static str {
        match self.state {
            BreakerState::Closed { .. } => "closed",
            BreakerState::HalfOpen => "half-open",
            BreakerState::Open { .. } => "open",
        }
    }

    /// The state as a gauge value: 0 closed, 1 half open, 2 open.
    pub fn number(&self) -> i64 {
        match self.state {
            BreakerState::Closed { .. } => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open { .. } => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn five_consecutive_failures_open_the_breaker_and_a_success_restarts_the_count() {
        let mut breaker = CircuitBreaker::new(Options::default());
        for _ in 0..4 {
            assert!(!breaker.failed(s(0)));
        }
        breaker.succeeded();
        for _ in 0..4 {
            assert!(!breaker.failed(s(0)));
        }
        assert!(breaker.failed(s(1)));
        assert_eq!(breaker.try_acquire(s(2)), BreakerPermit::Wait(s(19)));
    }

    #[test]
    fn one_probe_is_allowed_and_its_result_decides() {
        let mut breaker = CircuitBreaker::new(Options { failures: 1, open: s(20) });
        breaker.failed(s(0));

        assert_eq!(breaker.try_acquire(s(20)), BreakerPermit::Probe);
        assert!(matches!(breaker.try_acquire(s(20)), BreakerPermit::Wait(_)), "only one");
        assert!(breaker.failed(s(21)));
        assert_eq!(breaker.try_acquire(s(40)), BreakerPermit::Wait(s(1)));
        assert_eq!(breaker.try_acquire(s(41)), BreakerPermit::Probe);
        assert!(breaker.succeeded());
        assert_eq!(breaker.try_acquire(s(41)), BreakerPermit::Free);
    }

    #[test]
    fn probe_without_a_result_is_followed_by_another() {
        let mut breaker = CircuitBreaker::new(Options { failures: 1, open: s(20) });
        breaker.failed(s(0));
        breaker.try_acquire(s(20));
        breaker.probe_without_result(s(21));
        assert_eq!(breaker.try_acquire(s(21)), BreakerPermit::Probe);
    }

    #[test]
    fn dependency_that_responds_again_is_probed_at_once() {
        let mut breaker = CircuitBreaker::new(Options::default());
        for _ in 0..5 {
            breaker.failed(s(0));
        }
        assert_eq!(breaker.try_acquire(s(1)), BreakerPermit::Wait(s(19)));
        assert_eq!([1, 25].map(|now| breaker.until_probe(s(now))), [Some(s(19)), Some(s(0))]);

        breaker.allow_probe_now(s(2));
        assert_eq!(breaker.until_probe(s(2)), Some(s(0)));
        assert_eq!(breaker.try_acquire(s(2)), BreakerPermit::Probe);
        breaker.failed(s(3));
        assert_eq!(
            breaker.try_acquire(s(4)),
            BreakerPermit::Wait(s(19)),
            "a failed probe opens it for the whole delay"
        );
    }
}
