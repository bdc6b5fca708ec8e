//! The batches that start now: those of a cycle, or full ones between two cycles. A cycle also settles the batches of the cycles before it.
use std::time::Duration;

use app::policy::breaker::BreakerPermit;
use ports::outbox::OutboxStore;
use ports::partitions::PartitionNo;
use tokio::time::Instant;

use super::breaker_guard::BreakerGuard;
use super::cycles::{CycleStart, Cycles};
use super::schedule::partition_schedule::{Schedule, Selection};
use crate::partition_worker::batch_request::{ClaimMode, RunBatch, SendPermit};

/// The batches that the publisher starts now, and when it continues.
#[derive(Debug, Default)]
pub struct DueBatches {
    /// The requests for the workers.
    pub requests: Vec<(PartitionNo, RunBatch)>,
    /// When the next cycle may begin, if partitions wait for it.
    pub next_cycle: Option<Instant>,
    /// The breaker's pause, if it holds batches back.
    pub pause: Option<Duration>,
}

impl DueBatches {
    /// Announces to the store how many requests follow, if there are several.
    pub fn expect_requests(&self, outbox: &dyn OutboxStore) {
        if self.requests.len() > 1 {
            outbox.expect_requests(u32::try_from(self.requests.len()).unwrap_or(u32::MAX));
        }
    }

    /// Takes from the schedule the partitions that may start a batch now, so that at most `max` run.
    pub fn take(
        schedule: &mut Schedule,
        cycles: &mut Cycles,
        breaker: &mut BreakerGuard,
        max: usize,
        now: Instant,
    ) -> Self {
        let mut due = Self::default();
        if !schedule.is_waiting() {
            due.settle_all(schedule, max);
            return due;
        }
        let selection = match cycles.next_start(now) {
            CycleStart::Now => Selection::All,
            CycleStart::At(at) => {
                due.next_cycle = Some(at);
                Selection::Full
            }
        };
        let mut cycle = None;
        while schedule.is_waiting() && schedule.running() < max {
            let permit = match breaker.try_acquire() {
                BreakerPermit::Free => SendPermit::Normal,
                BreakerPermit::Probe => SendPermit::Probe,
                BreakerPermit::Wait(pause) => {
                    due.pause = Some(pause);
                    break;
                }
            };
            let Some((partition, kind)) = schedule.next(max, selection) else {
                if permit == SendPermit::Probe {
                    breaker.return_probe();
                }
                break;
            };
            if permit == SendPermit::Probe {
                breaker.begin_probe(partition);
            }
            if selection == Selection::All && cycle.is_none() {
                cycle = Some(cycles.begin(now));
            }
            let claim = Some(ClaimMode { kind, permit });
            due.requests.push((partition, RunBatch { claim, woken_at: None, cycle: cycle.clone() }));
        }
        // Settlements wait for the claims of the next cycle, but not for a broker.
        if selection == Selection::All || due.pause.is_some() {
            due.settle_all(schedule, max);
        }
        due
    }

    /// Settles the partitions that do not claim.
    fn settle_all(&mut self, schedule: &mut Schedule, max: usize) {
        while let Some(partition) = schedule.next_unsettled(max) {
            self.requests.push((partition, RunBatch { claim: None, woken_at: None, cycle: None }));
        }
    }
}
