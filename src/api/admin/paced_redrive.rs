//! A redrive at a rate, step by step, so that a second's share does not arrive at once. The command line, HTTP and the console share it.
use std::time::Duration;

use app::error::QueryError;
use app::operators::dead_letters::{DeadLetterFilter, DeadLetters, HeldKeys, RedriveReport, redriven_text};
use app::operators::outbox::OutboxOperations;
use app::port_types::{Audit, RedriveMode, RowFilter, RowStatus};
use tokio::time::{Instant, MissedTickBehavior};

/// Rows or dead letters that one call changes when no rate is set.
const STEP_MAX: u32 = 500;
/// Calls that a rate is divided into.
const STEPS_PER_SECOND: u32 = 10;

/// How many rows or dead letters one call changes, and how far apart the calls begin at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    step: u32,
    interval: Duration,
}

impl Pace {
    /// The pace of a rate per second; as fast as possible without one.
    pub fn from_rate(rate: Option<u32>) -> Self {
        let Some(rate) = rate.filter(|rate| *rate > 0) else {
            return Self { step: STEP_MAX, interval: Duration::ZERO };
        };
        let step = rate.div_ceil(STEPS_PER_SECOND).min(STEP_MAX);
        Self { step, interval: Duration::from_secs(1) * step / rate }
    }

    /// The size of the next call when `left` rows or dead letters are left.
    fn next_step(self, left: u64) -> u32 {
        u32::try_from(left).map_or(self.step, |left| left.min(self.step))
    }
}

/// A redrive that an operator has confirmed.
pub struct PacedRedrive<'a> {
    /// Changes no more than this number, which is the one that was counted.
    pub limit: u64,
    /// Size of its steps and time between them.
    pub pace: Pace,
    /// No step begins after this time, or would end after it as far as a step has a time limit; the rest is left for a further call. The
    /// first step always begins.
    pub time_max: Option<Duration>,
    /// Receives the number of examined rows or dead letters after each step.
    pub progress: &'a (dyn Fn(u64) + Sync),
}

impl PacedRedrive<'_> {
    /// Makes parked rows due, in id order; returns the number of changed rows. A row that is parked again meanwhile is not changed twice,
    /// because each step begins after the rows of the one before.
    ///
    /// # Errors
    /// Returns the error of the store; [`QueryError::PartlyDone`] when earlier steps have changed rows.
    pub async fn rows(
        &self,
        operations: &OutboxOperations,
        filter: &RowFilter,
        audit: &Audit,
    ) -> Result<u64, QueryError> {
        let mut filter = RowFilter { status: Some(RowStatus::Parked), after: None, ..filter.clone() };
        let (mut steps, mut seen, mut redriven) = (self.steps(Duration::ZERO), 0, 0);
        while seen < self.limit && steps.next().await {
            let interrupted = |error: QueryError| {
                if redriven > 0 { error.after(format!("rows made due: {redriven}")) } else { error }
            };
            let page = operations.rows(&filter, self.pace.next_step(self.limit - seen)).await.map_err(interrupted)?;
            let Some(last) = page.rows.last().map(|row| row.id) else { break };
            let step = page.rows.len() as u32;
            let changed = operations.redrive(&filter, step, RedriveMode::Execute, &audit.operator, &audit.reason).await;
            redriven += changed.map_err(interrupted)?;
            filter.after = Some(last);
            seen += u64::from(step);
            (self.progress)(seen);
        }
        Ok(redriven)
    }

    /// Sends dead letters back, each key's in their order over all steps; the report's `next` is where a further call continues.
    ///
    /// # Errors
    /// Returns the error of the broker or the store; [`QueryError::PartlyDone`] when earlier steps have sent dead letters back.
    pub async fn dead_letters(
        &self,
        dead_letters: &DeadLetters,
        filter: &DeadLetterFilter,
        audit: &Audit,
    ) -> Result<RedriveReport, QueryError> {
        let (mut filter, mut steps) = (filter.clone(), self.steps(dead_letters.call_time_max()));
        let mut total = RedriveReport { next: filter.after, ..RedriveReport::default() };
        let mut held_keys = HeldKeys::default();
        while total.matched < self.limit && steps.next().await {
            let step = self.pace.next_step(self.limit - total.matched);
            let page = dead_letters
                .redrive_step(&filter, step, &mut held_keys, audit)
                .await
                .map_err(|error| if total.redriven > 0 { error.after(redriven_text(total.redriven)) } else { error })?;
            total.matched += page.matched;
            total.redriven += page.redriven;
            total.held_back += page.held_back;
            total.refusals.append(page.refusals);
            total.next = page.next;
            (self.progress)(total.matched);
            match page.next {
                Some(next) => filter.after = Some(next),
                None => break,
            }
        }
        Ok(total.ended())
    }

    fn steps(&self, step_time_max: Duration) -> Steps {
        let begin = Instant::now();
        let mut interval = tokio::time::interval(self.pace.interval.max(Duration::from_millis(1)));
        // A slow call must not be followed by several at once.
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Steps { interval, end: self.time_max.map(|time| begin + time.saturating_sub(step_time_max)) }
    }
}

struct Steps {
    interval: tokio::time::Interval,
    end: Option<Instant>,
}

impl Steps {
    /// Waits for the next step; `false` when it would begin too late.
    async fn next(&mut self) -> bool {
        let wait = async { self.interval.tick().await };
        match self.end {
            None => wait.await,
            Some(end) => match tokio::time::timeout_at(end, wait).await {
                Ok(tick) => tick,
                Err(_) => return false,
            },
        };
        true
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
            let pace = Pace::from_rate(rate);
            assert_eq!(pace, Pace { step, interval: Duration::from_millis(interval_ms) }, "{rate:?}");
        }
        assert_eq!((Pace::from_rate(None).next_step(7), Pace::from_rate(None).next_step(u64::MAX)), (7, 500));
    }

    #[tokio::test(start_paused = true)]
    async fn no_step_but_the_first_begins_too_late_to_end_in_time() {
        let redrive = PacedRedrive {
            limit: 100,
            pace: Pace::from_rate(Some(10)),
            time_max: Some(Duration::from_millis(250)),
            progress: &|_| {},
        };
        for (step_time_ms, expected) in [(0, 3), (100, 2), (250, 1), (400, 1)] {
            let mut steps = redrive.steps(Duration::from_millis(step_time_ms));

            let mut taken = 0;
            while steps.next().await {
                taken += 1;
            }

            assert_eq!(taken, expected, "steps at 0, 100 and 200 ms that take {step_time_ms} ms");
        }
    }
}
