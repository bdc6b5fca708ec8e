//! Which partition runs next: round and round through those with work, so that none starves, and a suspect only when nothing else runs.
use std::collections::{BTreeSet, VecDeque};

use ports::outbox::ClaimKind;
use ports::partitions::PartitionNo;

/// Whose turn it is. Pure: the actor tells it what happens.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    waiting: VecDeque<PartitionNo>,
    queued: BTreeSet<PartitionNo>,
    running: BTreeSet<PartitionNo>,
    /// Woken while it ran: it runs again afterwards.
    again: BTreeSet<PartitionNo>,
    trials: VecDeque<PartitionNo>,
    on_trial: Option<PartitionNo>,
}

impl Schedule {
    /// A partition may have work.
    pub(super) fn wake(&mut self, partition: PartitionNo) {
        if self.running.contains(&partition) {
            self.again.insert(partition);
        } else if self.queued.insert(partition) {
            self.waiting.push_back(partition);
        }
    }

    /// A partition has a suspect that is due.
    pub(super) fn wants_trial(&mut self, partition: PartitionNo) {
        if self.on_trial != Some(partition) && !self.trials.contains(&partition) {
            self.trials.push_back(partition);
        }
    }

    /// The next to run beside `max` others. A trial waits until nothing runs, and nothing runs beside it.
    pub(super) fn next(&mut self, max: usize) -> Option<(PartitionNo, ClaimKind)> {
        if self.on_trial.is_some() || self.running.len() >= max {
            return None;
        }
        if let Some(partition) = self.trials.front().copied() {
            if !self.running.is_empty() {
                return None;
            }
            self.trials.pop_front();
            self.on_trial = Some(partition);
            self.running.insert(partition);
            return Some((partition, ClaimKind::Trial));
        }
        let partition = self.waiting.pop_front()?;
        self.queued.remove(&partition);
        self.running.insert(partition);
        Some((partition, ClaimKind::Ordinary))
    }

    /// Whether anything waits for its turn.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.trials.is_empty()
    }

    /// A run is over. Answers whether the partition was woken meanwhile.
    pub(super) fn finished(&mut self, partition: PartitionNo) -> bool {
        self.running.remove(&partition);
        if self.on_trial == Some(partition) {
            self.on_trial = None;
            // What was queued for it meanwhile, or left behind the suspect, gets its ordinary turn.
            self.wake(partition);
        }
        self.again.remove(&partition)
    }

    /// A partition is not ours any more.
    pub(super) fn forget(&mut self, partition: PartitionNo) {
        self.waiting.retain(|other| *other != partition);
        self.trials.retain(|other| *other != partition);
        self.queued.remove(&partition);
        self.again.remove(&partition);
    }

    /// Batches that run.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PartitionNo = PartitionNo(1);
    const B: PartitionNo = PartitionNo(2);
    const C: PartitionNo = PartitionNo(3);

    #[test]
    fn everyone_gets_a_turn_before_anyone_gets_a_second() {
        let mut schedule = Schedule::default();
        for partition in [A, B, C, A] {
            schedule.wake(partition);
        }
        assert_eq!(schedule.next(1), Some((A, ClaimKind::Ordinary)));
        schedule.wake(A);
        assert_eq!(schedule.next(1), None, "no more than asked");
        assert!(schedule.finished(A), "it was woken while it ran");
        schedule.wake(A);

        let turns: Vec<_> = (0..3)
            .filter_map(|_| {
                let (partition, _) = schedule.next(1)?;
                schedule.finished(partition);
                Some(partition)
            })
            .collect();
        assert_eq!(turns, [B, C, A]);
        assert!(!schedule.is_waiting());
    }

    #[test]
    fn a_trial_runs_alone() {
        let mut schedule = Schedule::default();
        schedule.wake(A);
        schedule.next(16);
        schedule.wants_trial(B);
        schedule.wake(C);

        assert_eq!(schedule.next(16), None, "others still run");
        schedule.finished(A);
        assert_eq!(schedule.next(16), Some((B, ClaimKind::Trial)));
        assert_eq!(schedule.next(16), None, "nothing runs beside it");
        schedule.finished(B);
        assert_eq!(schedule.next(16), Some((C, ClaimKind::Ordinary)));
        assert_eq!(schedule.next(16), Some((B, ClaimKind::Ordinary)));
    }

    #[test]
    fn what_is_given_away_does_not_run() {
        let mut schedule = Schedule::default();
        schedule.wake(A);
        schedule.wants_trial(A);
        schedule.forget(A);
        assert_eq!(schedule.next(16), None);
    }
}
