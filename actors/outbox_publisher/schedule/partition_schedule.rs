//! Schedule: which partition runs next. Partitions take turns, so that none starves; a suspect row's trial runs only when nothing else
//! does. A partition whose last batch was full runs again as soon as an in-flight slot is free: a full batch amortises its fixed cost, so it
//! does not wait for a cycle.
use std::collections::{BTreeSet, VecDeque};

use ports::outbox::ClaimKind;
use ports::partitions::PartitionNo;

use crate::partition_worker::report::RunEnd;

/// Waiting and running partitions. Pure: the publisher calls it for each change.
#[derive(Debug, Default)]
pub struct Schedule {
    /// The waiting partitions in the order of their turns.
    waiting: VecDeque<PartitionNo>,
    /// The same partitions, in which one is found without a search.
    waiting_set: BTreeSet<PartitionNo>,
    running: BTreeSet<PartitionNo>,
    /// Waiting partitions whose last batch was full.
    full: BTreeSet<PartitionNo>,
    /// Running partitions that run again afterwards: they were woken meanwhile, or waited for a turn when a settlement began.
    run_again: BTreeSet<PartitionNo>,
    /// The partitions that need a trial, in the order of their requests.
    requested_trials: VecDeque<PartitionNo>,
    /// The partition whose trial runs or is unresolved.
    on_trial: Option<PartitionNo>,
    /// Partitions whose last run left an acknowledged batch to the settlement of the next one.
    unsettled: BTreeSet<PartitionNo>,
    /// Partitions whose last run ended with an unknown outcome: a batch of this process may be open. If the process dies, the death counts
    /// for its rows, too.
    unresolved: BTreeSet<PartitionNo>,
}

/// Which waiting partitions may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of them: a cycle begins.
    All,
    /// Partitions whose last batch was full.
    Full,
}

impl Schedule {
    /// An empty schedule with partitions that an earlier publisher of this process ran: batches of theirs may be open.
    pub fn resuming(partitions: impl Iterator<Item = PartitionNo>) -> Self {
        Self { unresolved: partitions.collect(), ..Self::default() }
    }

    /// The partition may have due rows: it waits for its turn, or runs again after its current run.
    pub fn wake(&mut self, partition: PartitionNo) {
        if self.running.contains(&partition) {
            self.run_again.insert(partition);
        } else if self.waiting_set.insert(partition) {
            self.waiting.push_back(partition);
        }
    }

    /// The partition's last batch was full: it waits for a free in-flight slot, but for no cycle.
    pub fn wake_full(&mut self, partition: PartitionNo) {
        self.wake(partition);
        if self.waiting_set.contains(&partition) {
            self.full.insert(partition);
        }
    }

    /// A suspect row of the partition is due: the partition needs a trial.
    pub fn request_trial(&mut self, partition: PartitionNo) {
        if self.on_trial != Some(partition) && !self.requested_trials.contains(&partition) {
            self.requested_trials.push_back(partition);
        }
    }

    /// The next partition to run, if fewer than `max` run. A trial waits until nothing runs, and nothing is unsettled or unresolved, and
    /// nothing else runs until it is resolved: otherwise a death of the process would count for rows that did not cause it.
    pub fn next(&mut self, max: usize, selection: Selection) -> Option<(PartitionNo, ClaimKind)> {
        if self.running.len() >= max {
            return None;
        }
        if let Some(partition) = self.on_trial {
            return self.resolve_trial(partition);
        }
        // While a partition is unresolved, the others go on: its resolution may have to wait for the broker.
        if let Some(partition) = self.requested_trials.front().copied().filter(|_| self.unresolved.is_empty()) {
            if !self.running.is_empty() || !self.unsettled.is_empty() {
                return None;
            }
            self.requested_trials.pop_front();
            self.on_trial = Some(partition);
            self.running.insert(partition);
            return Some((partition, ClaimKind::Trial));
        }
        let index = match selection {
            Selection::All => 0,
            Selection::Full => self.waiting.iter().position(|partition| self.full.contains(partition))?,
        };
        let partition = self.waiting.remove(index)?;
        self.waiting_set.remove(&partition);
        self.full.remove(&partition);
        self.running.insert(partition);
        Some((partition, ClaimKind::Ordinary))
    }

    /// The partition of an unresolved trial, if it waits for its turn: its run resolves the trial before it claims.
    fn resolve_trial(&mut self, partition: PartitionNo) -> Option<(PartitionNo, ClaimKind)> {
        if !self.running.is_empty() || !self.stop_waiting(partition) {
            return None;
        }
        self.running.insert(partition);
        Some((partition, ClaimKind::Ordinary))
    }

    /// The next partition to settle without a claim, if fewer than `max` run. One that also waits for its turn goes on waiting afterwards.
    pub fn next_unsettled(&mut self, max: usize) -> Option<PartitionNo> {
        if self.running.len() >= max {
            return None;
        }
        let partition = self.unsettled.iter().copied().find(|partition| !self.running.contains(partition))?;
        if self.stop_waiting(partition) {
            self.run_again.insert(partition);
        }
        self.running.insert(partition);
        Some(partition)
    }

    /// Whether any partition waits for its turn or a trial.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.requested_trials.is_empty()
    }

    /// A run has ended. Returns whether the partition was woken during it. A trial with an unknown outcome goes on until it is resolved.
    pub fn record_end(&mut self, partition: PartitionNo, end: RunEnd) -> bool {
        self.running.remove(&partition);
        match end {
            RunEnd::Resolved | RunEnd::HeldElsewhere => self.mark_resolved(partition),
            RunEnd::Unsettled => {
                self.mark_resolved(partition);
                self.unsettled.insert(partition);
            }
            RunEnd::Unresolved => {
                self.unsettled.remove(&partition);
                self.unresolved.insert(partition);
            }
        }
        self.run_again.remove(&partition)
    }

    /// Records that the partition has no open batch of this process: a run resolved it, or another instance resolves it.
    pub fn mark_resolved(&mut self, partition: PartitionNo) {
        self.unresolved.remove(&partition);
        self.unsettled.remove(&partition);
        if self.on_trial == Some(partition) {
            self.on_trial = None;
            // Rows that became due during the trial, or that wait behind the suspect, get an ordinary turn.
            self.wake(partition);
        }
    }

    /// A run could not begin, because this instance does not own the partition: its owner resolves an open batch.
    pub fn remove_foreign(&mut self, partition: PartitionNo) {
        self.record_end(partition, RunEnd::HeldElsewhere);
        self.remove(partition);
    }

    /// A run could not begin, because this instance hands the partition over, or has no workers yet. An open batch remains open.
    pub fn cancel_run(&mut self, partition: PartitionNo) {
        let is_open = self.unresolved.contains(&partition) || self.unsettled.contains(&partition);
        self.record_end(partition, if is_open { RunEnd::Unresolved } else { RunEnd::Resolved });
        self.remove(partition);
    }

    /// The partition does not run any more. A batch of it that is unsettled or unresolved remains open until [`Schedule::mark_resolved`].
    pub fn remove(&mut self, partition: PartitionNo) {
        if self.unsettled.remove(&partition) {
            self.unresolved.insert(partition);
        }
        self.stop_waiting(partition);
        self.requested_trials.retain(|other| *other != partition);
        self.run_again.remove(&partition);
    }

    /// Takes a partition out of the waiting ones. Returns whether it was among them.
    fn stop_waiting(&mut self, partition: PartitionNo) -> bool {
        let was_waiting = self.waiting_set.remove(&partition);
        if was_waiting {
            self.waiting.retain(|other| *other != partition);
            self.full.remove(&partition);
        }
        was_waiting
    }

    /// Number of partitions that run now.
    pub fn running(&self) -> usize {
        self.running.len()
    }
}
