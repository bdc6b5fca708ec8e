//! Cycles: which batches start together. The due batches of all partitions start at the same time, so that their claims share a statement of
//! the store with the settlements of the cycle before, and their records a transaction of the broker. Cycles follow each other; partitions
//! with full batches run independently of them.
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::event_rate::EventRate;
use crate::partition_worker::cycle_guard::CycleGuard;
use crate::system::options::{CycleLoad, Options};

/// The number of a cycle.
type CycleNo = u64;

/// The open cycle, which has a batch that the broker has not answered, and the time of the next one. Reads no clock: the caller passes the time.
pub struct Cycles {
    spacing_min: Duration,
    spacing_max: Duration,
    duration_normal: Duration,
    load: CycleLoad,
    wait_max: Duration,
    open: Option<RunningCycle>,
    /// The start of the last cycle.
    last: Option<Instant>,
    /// The smoothed time from a cycle's start to its end.
    duration: Duration,
    rate: EventRate,
    next: CycleNo,
    ended: UnboundedSender<CycleNo>,
    endings: Option<UnboundedReceiver<CycleNo>>,
}

/// A cycle that has a batch without an answer.
#[derive(Clone, Copy)]
struct RunningCycle {
    number: CycleNo,
    started_at: Instant,
}

/// Whether a cycle may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CycleStart {
    /// It may begin at once.
    Now,
    /// It may begin at this time, or when the open cycle ends.
    At(Instant),
}

impl Cycles {
    /// Starts without an open cycle and with the least spacing.
    pub fn new(options: &Options) -> Self {
        let (ended, endings) = unbounded_channel();
        let Options { cycle_spacing_min, cycle_spacing_max, cycle_duration_normal, cycle_load, cycle_wait_max, .. } =
            *options;
        Self {
            spacing_min: cycle_spacing_min,
            spacing_max: cycle_spacing_max,
            duration_normal: cycle_duration_normal,
            load: cycle_load,
            wait_max: cycle_wait_max,
            open: None,
            last: None,
            duration: Duration::ZERO,
            rate: EventRate::default(),
            next: 0,
            ended,
            endings: Some(endings),
        }
    }

    /// Yields the number of each cycle that has ended. The first caller receives all of them, a later one none.
    pub fn endings(&mut self) -> impl Stream<Item = CycleNo> + use<> {
        let endings = stream::iter(self.endings.take());
        endings.flat_map(|endings| stream::unfold(endings, async |mut endings| Some((endings.recv().await?, endings))))
    }

    /// When the next cycle may begin.
    pub fn next_start(&mut self, now: Instant) -> CycleStart {
        if let Some(late) = self.open.filter(|open| open.started_at + self.wait_max <= now) {
            self.end(late.number, late.started_at + self.wait_max);
        }
        let spaced = self.last.map_or(now, |last| last + self.spacing());
        let waited = self.open.map_or(now, |open| open.started_at + self.wait_max);
        let at = spaced.max(waited);
        if at <= now { CycleStart::Now } else { CycleStart::At(at) }
    }

    /// Begins a cycle and returns the guard of its first batch.
    pub fn begin(&mut self, now: Instant) -> CycleGuard {
        self.next += 1;
        self.rate.sample(now);
        self.last = Some(now);
        self.open = Some(RunningCycle { number: self.next, started_at: now });
        CycleGuard::new(self.next, self.ended.clone())
    }

    /// Records the report of a batch. A cycle ends with the last of its reports: all of its partitions can be part of the next one.
    pub fn record_report(&mut self, acknowledged: usize, guard: Option<CycleGuard>) {
        self.rate.add(acknowledged);
        drop(guard);
    }

    /// A cycle has ended: the broker has answered its last batch. The next one settles its batches, and its partitions can be part of it.
    pub fn end(&mut self, number: CycleNo, now: Instant) {
        let Some(ended) = self.open.take_if(|open| open.number == number) else { return };
        self.duration = (self.duration * 3 + (now - ended.started_at)) / 4;
    }

    /// A cycle has a fixed cost. When the CPU is saturated, that cost slows order creation. The spacing therefore grows, so that fewer and larger
    /// cycles follow, in two cases: cycles take longer than `duration_normal` (the spacing grows with the square of their duration), or many
    /// events commit during one cycle.
    fn spacing(&self) -> Duration {
        let slow = self.duration.mul_f64(self.duration.as_secs_f64() / self.duration_normal.as_secs_f64());
        let loaded = self.spacing_max.mul_f64(self.load.fraction(self.rate.per_second() * self.duration.as_secs_f64()));
        slow.max(loaded).min(self.spacing_max).max(self.spacing_min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn cycles() -> (Cycles, UnboundedReceiver<CycleNo>) {
        let mut cycles = Cycles::new(&Options {
            cycle_spacing_min: 5 * MS,
            cycle_spacing_max: 80 * MS,
            cycle_duration_normal: 20 * MS,
            cycle_load: CycleLoad { low: 90.0, high: 140.0 },
            cycle_wait_max: 100 * MS,
            ..Options::default()
        });
        let endings = cycles.endings.take().expect("taken once");
        (cycles, endings)
    }

    #[test]
    fn cycles_keep_their_spacing() {
        let (mut cycles, _endings) = cycles();
        let now = Instant::now();
        assert_eq!(cycles.next_start(now), CycleStart::Now, "an idle relay starts at once");
        drop(cycles.begin(now));
        cycles.end(1, now + MS);

        assert_eq!(cycles.next_start(now + 2 * MS), CycleStart::At(now + 5 * MS));
        assert_eq!(cycles.next_start(now + 5 * MS), CycleStart::Now);
    }

    #[test]
    fn cycles_that_take_longer_than_normal_follow_at_a_greater_distance() {
        for (duration, spacing) in [(5, 5), (10, 5), (20, 20), (30, 45), (200, 80)] {
            let (mut cycles, _endings) = cycles();
            cycles.wait_max = 1_000 * MS;
            let mut now = Instant::now();
            for number in 1..40 {
                drop(cycles.begin(now));
                cycles.end(number, now + duration * MS);
                now += 1_000 * MS;
            }
            let spaced = cycles.spacing().as_secs_f64() * 1_000.0;
            assert!((spaced - f64::from(spacing)).abs() < 0.5, "{duration} ms: {spaced}");
        }
    }

    #[test]
    fn cycles_that_many_events_wait_for_follow_at_a_greater_distance() {
        for (events_per_cycle, spacing) in [(0, 5), (90, 5), (115, 40), (140, 80), (10_000, 80)] {
            let (mut cycles, _endings) = cycles();
            let mut now = Instant::now();
            for number in 1..40 {
                drop(cycles.begin(now));
                cycles.record_report(events_per_cycle * 10, None);
                cycles.end(number, now + 10 * MS);
                now += 100 * MS;
            }
            let spaced = cycles.spacing().as_secs_f64() * 1_000.0;
            assert!((spaced - f64::from(spacing)).abs() < 0.5, "{events_per_cycle} in 10 ms: {spaced}");
        }
    }

    #[test]
    fn next_cycle_waits_until_the_last_batch_of_the_open_one_is_answered() {
        let (mut cycles, mut endings) = cycles();
        let now = Instant::now();
        let first = cycles.begin(now);
        let other = first.clone();
        assert_eq!(cycles.next_start(now + 20 * MS), CycleStart::At(now + 100 * MS));

        drop(first);
        assert!(endings.try_recv().is_err(), "the other batch is not acknowledged");
        drop(other);
        cycles.end(endings.try_recv().expect("ended"), now + 20 * MS);

        assert_eq!(cycles.next_start(now + 20 * MS), CycleStart::Now);
    }

    #[test]
    fn slow_batch_delays_the_others_only_for_a_while() {
        let (mut cycles, mut endings) = cycles();
        let now = Instant::now();
        let slow = cycles.begin(now);

        assert_eq!(cycles.next_start(now + 100 * MS), CycleStart::Now);
        let _next = cycles.begin(now + 100 * MS);
        drop(slow);
        assert_eq!(endings.try_recv(), Ok(1));
        cycles.end(1, now + 110 * MS);
        assert_eq!(cycles.next_start(now + 120 * MS), CycleStart::At(now + 200 * MS), "the next one is open still");
    }
}
