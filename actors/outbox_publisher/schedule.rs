//! Schedule: which partition runs next. Partitions take turns, so that none starves; a suspect row's trial runs only when nothing else
//! does. A partition whose last batch was full runs again as soon as there is a place: its next batch is worth its price by itself.
use std::collections::{BTreeSet, VecDeque};

use ports::outbox::ClaimKind;
use ports::partitions::PartitionNo;

/// Waiting and running partitions. Pure: the publisher calls it for each change.
#[derive(Debug, Default)]
pub struct Schedule {
    waiting: VecDeque<PartitionNo>,
    queued: BTreeSet<PartitionNo>,
    running: BTreeSet<PartitionNo>,
    /// Waiting partitions whose last batch was full.
    full: BTreeSet<PartitionNo>,
    /// Partitions with a wake-up during their run: they run again afterwards.
    again: BTreeSet<PartitionNo>,
    trials: VecDeque<PartitionNo>,
    on_trial: Option<PartitionNo>,
}

/// Which waiting partitions may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of them: a cycle begins.
    All,
    /// Those whose last batch was full.
    Full,
}

impl Schedule {
    /// The partition may have due rows: it waits for its turn, or runs again after its current run.
    pub fn wake(&mut self, partition: PartitionNo) {
        if self.running.contains(&partition) {
            self.again.insert(partition);
        } else if self.queued.insert(partition) {
            self.waiting.push_back(partition);
        }
    }

    /// The partition's last batch was full: it waits for a place, but for no cycle.
    pub fn wake_full(&mut self, partition: PartitionNo) {
        self.wake(partition);
        if self.queued.contains(&partition) {
            self.full.insert(partition);
        }
    }

    /// A suspect row of the partition is due: the partition needs a trial.
    pub fn request_trial(&mut self, partition: PartitionNo) {
        if self.on_trial != Some(partition) && !self.trials.contains(&partition) {
            self.trials.push_back(partition);
        }
    }

    /// The next partition to run, if fewer than `max` run. A trial waits until nothing runs, and nothing else runs during it.
    pub fn next(&mut self, max: usize, selection: Selection) -> Option<(PartitionNo, ClaimKind)> {
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
        let partition = match selection {
            Selection::All => self.waiting.pop_front()?,
            Selection::Full if self.full.is_empty() => return None,
            Selection::Full => {
                let at = self.waiting.iter().position(|partition| self.full.contains(partition))?;
                self.waiting.remove(at)?
            }
        };
        self.queued.remove(&partition);
        self.full.remove(&partition);
        self.running.insert(partition);
        Some((partition, ClaimKind::Ordinary))
    }

    /// Whether any partition waits for its turn or a trial.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.trials.is_empty()
    }

    /// A run has ended. Returns whether the partition was woken during it.
    pub fn finished(&mut self, partition: PartitionNo) -> bool {
        self.running.remove(&partition);
        if self.on_trial == Some(partition) {
            self.on_trial = None;
            // Rows that became due during the trial, or that wait behind the suspect, get an ordinary turn.
            self.wake(partition);
        }
        self.again.remove(&partition)
    }

    /// This instance does not own the partition any more.
    pub fn forget(&mut self, partition: PartitionNo) {
        self.waiting.retain(|other| *other != partition);
        self.trials.retain(|other| *other != partition);
        self.queued.remove(&partition);
        self.full.remove(&partition);
        self.again.remove(&partition);
    }

    /// Number of partitions that run now.
    pub fn running(&self) -> usize {
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
    fn every_partition_runs_once_before_any_runs_twice() {
        let mut schedule = Schedule::default();
        for partition in [A, B, C, A] {
            schedule.wake(partition);
        }
        assert_eq!(schedule.next(1, Selection::All), Some((A, ClaimKind::Ordinary)));
        schedule.wake(A);
        assert_eq!(schedule.next(1, Selection::All), None, "no more than asked");
        assert!(schedule.finished(A), "it was woken while it ran");
        schedule.wake(A);

        let turns: Vec<_> = (0..3)
            .filter_map(|_| {
                let (partition, _) = schedule.next(1, Selection::All)?;
                schedule.finished(partition);
                Some(partition)
            })
            .collect();
        assert_eq!(turns, [B, C, A]);
        assert!(!schedule.is_waiting());
    }

    #[test]
    fn between_cycles_only_partitions_with_full_batches_run() {
        let mut schedule = Schedule::default();
        schedule.wake(A);
        schedule.wake_full(B);
        schedule.wake(C);

        assert_eq!(schedule.next(16, Selection::Full), Some((B, ClaimKind::Ordinary)));
        assert_eq!(schedule.next(16, Selection::Full), None);
        schedule.wake_full(B);
        assert!(schedule.finished(B), "it was woken while it ran");
        schedule.wake_full(B);

        let order: Vec<_> = (0..3).filter_map(|_| Some(schedule.next(16, Selection::All)?.0)).collect();
        assert_eq!(order, [A, C, B], "a cycle takes them in the order in which they wait");
        schedule.finished(B);
        schedule.wake(B);
        assert_eq!(schedule.next(16, Selection::Full), None, "its last batch was not full");
    }

    #[test]
    fn nothing_else_runs_during_a_trial() {
        let mut schedule = Schedule::default();
        schedule.wake(A);
        schedule.next(16, Selection::All);
        schedule.request_trial(B);
        schedule.wake(C);

        assert_eq!(schedule.next(16, Selection::All), None, "others still run");
        schedule.finished(A);
        assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Trial)));
        assert_eq!(schedule.next(16, Selection::All), None, "nothing runs during it");
        schedule.finished(B);
        assert_eq!(schedule.next(16, Selection::All), Some((C, ClaimKind::Ordinary)));
        assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Ordinary)));
    }

    #[test]
    fn a_forgotten_partition_does_not_run() {
        let mut schedule = Schedule::default();
        schedule.wake(A);
        schedule.request_trial(A);
        schedule.forget(A);
        assert_eq!(schedule.next(16, Selection::All), None);
    }
}
