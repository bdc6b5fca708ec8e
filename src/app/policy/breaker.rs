//! A circuit breaker as data: five failures in a row open it, after twenty seconds one probe may pass, its outcome decides.
use std::time::Duration;

/// When it opens and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Failures in a row that open it.
    pub failures: u32,
    /// How long it stays open before one probe may pass.
    pub open: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { failures: 5, open: Duration::from_secs(20) }
    }
}

/// The breaker. `now` is any clock that does not go back.
#[derive(Clone, Debug)]
pub struct CircuitBreaker {
    options: Options,
    state: BreakerState,
}

/// What it lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Everything.
    Closed {
        /// Failures in a row so far.
        failures: u32,
    },
    /// Nothing, until then.
    Open {
        /// When a probe may pass.
        until: Duration,
    },
    /// One probe is on its way.
    HalfOpen,
}

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerPermit {
    /// Go.
    Free,
    /// Go alone: you are the probe.
    Probe,
    /// Wait so long.
    Wait(Duration),
}

impl CircuitBreaker {
    /// A closed breaker.
    pub fn new(options: Options) -> Self {
        Self { options, state: BreakerState::Closed { failures: 0 } }
    }

    /// Asks to pass.
    pub fn pass(&mut self, now: Duration) -> BreakerPermit {
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

    /// A send succeeded. Returns whether this closed the breaker.
    pub fn succeeded(&mut self) -> bool {
        let was = std::mem::replace(&mut self.state, BreakerState::Closed { failures: 0 });
        !matches!(was, BreakerState::Closed { .. })
    }

    /// A send failed for a reason that is the broker's, not the record's. Returns whether this opened the breaker.
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

    /// A probe came back without an answer about the broker: the next caller probes again.
    pub fn probe_without_result(&mut self, now: Duration) {
        if self.state == BreakerState::HalfOpen {
            self.state = BreakerState::Open { until: now };
        }
    }

    /// The broker was seen to come back: whoever comes next probes, however long the breaker was to stay open.
    pub fn allow_probe_now(&mut self, now: Duration) {
        if let BreakerState::Open { until } = &mut self.state {
            *until = now.min(*until);
        }
    }

    /// The state, for people.
    pub fn state(&self) -> BreakerState {
        self.state
    }

    /// `closed`, `half-open` or `open`.
    pub fn name(&self) -> &'static str {
        match self.state {
            BreakerState::Closed { .. } => "closed",
            BreakerState::HalfOpen => "half-open",
            BreakerState::Open { .. } => "open",
        }
    }

    /// 0 closed, 1 half open, 2 open: the gauge.
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
    fn five_failures_in_a_row_open_it_and_a_success_between_them_does_not() {
        let mut breaker = CircuitBreaker::new(Options::default());
        for _ in 0..4 {
            assert!(!breaker.failed(s(0)));
        }
        breaker.succeeded();
        for _ in 0..4 {
            assert!(!breaker.failed(s(0)));
        }
        assert!(breaker.failed(s(1)));
        assert_eq!(breaker.pass(s(2)), BreakerPermit::Wait(s(19)));
    }

    #[test]
    fn one_probe_passes_and_its_outcome_decides() {
        let mut breaker = CircuitBreaker::new(Options { failures: 1, open: s(20) });
        breaker.failed(s(0));

        assert_eq!(breaker.pass(s(20)), BreakerPermit::Probe);
        assert!(matches!(breaker.pass(s(20)), BreakerPermit::Wait(_)), "only one");
        assert!(breaker.failed(s(21)));
        assert_eq!(breaker.pass(s(40)), BreakerPermit::Wait(s(1)));
        assert_eq!(breaker.pass(s(41)), BreakerPermit::Probe);
        assert!(breaker.succeeded());
        assert_eq!(breaker.pass(s(41)), BreakerPermit::Free);
    }

    #[test]
    fn a_probe_that_says_nothing_is_followed_by_another() {
        let mut breaker = CircuitBreaker::new(Options { failures: 1, open: s(20) });
        breaker.failed(s(0));
        breaker.pass(s(20));
        breaker.probe_without_result(s(21));
        assert_eq!(breaker.pass(s(21)), BreakerPermit::Probe);
    }

    #[test]
    fn a_broker_that_came_back_is_probed_at_once() {
        let mut breaker = CircuitBreaker::new(Options::default());
        for _ in 0..5 {
            breaker.failed(s(0));
        }
        assert_eq!(breaker.pass(s(1)), BreakerPermit::Wait(s(19)));

        breaker.allow_probe_now(s(2));
        assert_eq!(breaker.pass(s(2)), BreakerPermit::Probe);
        breaker.failed(s(3));
        assert_eq!(breaker.pass(s(4)), BreakerPermit::Wait(s(19)), "a probe that fails opens it for its whole time");
    }
}
