//! A circuit breaker as data: five failures in a row open it, after twenty seconds one probe may pass, its outcome decides.
use std::time::Duration;

use serde::Deserialize;

/// When it opens and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
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
pub struct Breaker {
    options: Options,
    state: State,
}

/// What it lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
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
pub enum Pass {
    /// Go.
    Free,
    /// Go alone: you are the probe.
    Probe,
    /// Wait so long.
    Wait(Duration),
}

impl Breaker {
    /// A closed breaker.
    pub fn new(options: Options) -> Self {
        Self { options, state: State::Closed { failures: 0 } }
    }

    /// Asks to pass.
    pub fn pass(&mut self, now: Duration) -> Pass {
        match self.state {
            State::Closed { .. } => Pass::Free,
            State::Open { until } if now >= until => {
                self.state = State::HalfOpen;
                Pass::Probe
            }
            State::Open { until } => Pass::Wait(until - now),
            State::HalfOpen => Pass::Wait(self.options.open),
        }
    }

    /// A send succeeded. Returns whether this closed the breaker.
    pub fn succeeded(&mut self) -> bool {
        let was = std::mem::replace(&mut self.state, State::Closed { failures: 0 });
        !matches!(was, State::Closed { .. })
    }

    /// A send failed for a reason that is the broker's, not the record's. Returns whether this opened the breaker.
    pub fn failed(&mut self, now: Duration) -> bool {
        let failures = match self.state {
            State::Closed { failures } => failures + 1,
            State::HalfOpen => self.options.failures,
            State::Open { .. } => return false,
        };
        if failures < self.options.failures {
            self.state = State::Closed { failures };
            return false;
        }
        self.state = State::Open { until: now + self.options.open };
        true
    }

    /// A probe came back without an answer about the broker: the next caller probes again.
    pub fn undecided(&mut self, now: Duration) {
        if self.state == State::HalfOpen {
            self.state = State::Open { until: now };
        }
    }

    /// The broker was seen to come back: whoever comes next probes, however long the breaker was to stay open.
    pub fn hasten(&mut self, now: Duration) {
        if let State::Open { until } = &mut self.state {
            *until = now.min(*until);
        }
    }

    /// The state, for people.
    pub fn state(&self) -> State {
        self.state
    }

    /// `closed`, `half-open` or `open`.
    pub fn name(&self) -> &'static str {
        match self.state {
            State::Closed { .. } => "closed",
            State::HalfOpen => "half-open",
            State::Open { .. } => "open",
        }
    }

    /// 0 closed, 1 half open, 2 open: the gauge.
    pub fn number(&self) -> i64 {
        match self.state {
            State::Closed { .. } => 0,
            State::HalfOpen => 1,
            State::Open { .. } => 2,
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
        let mut breaker = Breaker::new(Options::default());
        for _ in 0..4 {
            assert!(!breaker.failed(s(0)));
        }
        breaker.succeeded();
        for _ in 0..4 {
            assert!(!breaker.failed(s(0)));
        }
        assert!(breaker.failed(s(1)));
        assert_eq!(breaker.pass(s(2)), Pass::Wait(s(19)));
    }

    #[test]
    fn one_probe_passes_and_its_outcome_decides() {
        let mut breaker = Breaker::new(Options { failures: 1, open: s(20) });
        breaker.failed(s(0));

        assert_eq!(breaker.pass(s(20)), Pass::Probe);
        assert!(matches!(breaker.pass(s(20)), Pass::Wait(_)), "only one");
        assert!(breaker.failed(s(21)));
        assert_eq!(breaker.pass(s(40)), Pass::Wait(s(1)));
        assert_eq!(breaker.pass(s(41)), Pass::Probe);
        assert!(breaker.succeeded());
        assert_eq!(breaker.pass(s(41)), Pass::Free);
    }

    #[test]
    fn a_probe_that_says_nothing_is_followed_by_another() {
        let mut breaker = Breaker::new(Options { failures: 1, open: s(20) });
        breaker.failed(s(0));
        breaker.pass(s(20));
        breaker.undecided(s(21));
        assert_eq!(breaker.pass(s(21)), Pass::Probe);
    }

    #[test]
    fn a_broker_that_came_back_is_probed_at_once() {
        let mut breaker = Breaker::new(Options::default());
        for _ in 0..5 {
            breaker.failed(s(0));
        }
        assert_eq!(breaker.pass(s(1)), Pass::Wait(s(19)));

        breaker.hasten(s(2));
        assert_eq!(breaker.pass(s(2)), Pass::Probe);
        breaker.failed(s(3));
        assert_eq!(breaker.pass(s(4)), Pass::Wait(s(19)), "a probe that fails opens it for its whole time");
    }
}
