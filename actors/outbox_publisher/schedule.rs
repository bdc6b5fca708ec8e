//! Schedule: which partition runs next. Partitions take turns, so that none starves; a suspect row's trial runs only when nothing else
//! does. A partition whose last batch was full runs again as soon as there is a place: its next batch is worth its price by itself.
use std::collections::{BTreeSet, VecDeque};

use ports::outbox::ClaimKind;
use ports::partitions::PartitionNo;

use super::run_end::RunEnd;

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
    /// Those whose last batch was full.
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

    /// The next partition to run, if fewer than `max` run. A trial waits until nothing runs, and nothing is unsettled or unresolved, and
    /// nothing else runs until it is resolved: otherwise a death of the process would count for rows that did not cause it.
    pub fn next(&mut self, max: usize, selection: Selection) -> Option<(PartitionNo, ClaimKind)> {
        if self.running.len() >= max {
            return None;
        }
        if let Some(partition) = self.on_trial {
            return self.resolve_trial(partition);
        }
        // While something is unresolved, the others go on: its resolution may have to wait for a broker.
        if let Some(partition) = self.trials.front().copied().filter(|_| self.unresolved.is_empty()) {
            if !self.running.is_empty() || !self.unsettled.is_empty() {
                return None;
            }
            self.trials.pop_front();
            self.on_trial = Some(partition);
            self.running.insert(partition);
            return Some((partition, ClaimKind::Trial));
        }
        let at = match selection {
            Selection::All => 0,
            Selection::Full => self.waiting.iter().position(|partition| self.full.contains(partition))?,
        };
        let partition = self.waiting.remove(at)?;
        self.queued.remove(&partition);
        self.full.remove(&partition);
        self.running.insert(partition);
        Some((partition, ClaimKind::Ordinary))
    }

    /// The partition of an unresolved trial, if it waits for its turn: its run resolves the trial before it claims.
    fn resolve_trial(&mut self, partition: PartitionNo) -> Option<(PartitionNo, ClaimKind)> {
        if !self.running.is_empty() || !self.queued.remove(&partition) {
            return None;
        }
        self.waiting.retain(|other| *other != partition);
        self.full.remove(&partition);
        self.running.insert(partition);
        Some((partition, ClaimKind::Ordinary))
    }

    /// The next partition to settle without a claim, if fewer than `max` run. One that also waits for its turn goes on waiting afterwards.
    pub fn next_unsettled(&mut self, max: usize) -> Option<PartitionNo> {
        if self.running.len() >= max {
            return None;
        }
        let partition = self.unsettled.iter().copied().find(|partition| !self.running.contains(partition))?;
        if self.queued.remove(&partition) {
            self.waiting.retain(|other| *other != partition);
            self.full.remove(&partition);
            self.again.insert(partition);
        }
        self.running.insert(partition);
        Some(partition)
    }

    /// Whether any partition waits for its turn or a trial.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.trials.is_empty()
    }

    /// A run has ended. Returns whether the partition was woken during it. A trial with an unknown outcome goes on until it is resolved.
    pub fn finished(&mut self, partition: PartitionNo, end: RunEnd) -> bool {
        self.running.remove(&partition);
        self.unsettled.remove(&partition);
        match end {
            RunEnd::Resolved => self.resolved(partition),
            RunEnd::Unsettled => {
                self.resolved(partition);
                self.unsettled.insert(partition);
            }
            RunEnd::Unresolved => {
                self.unresolved.insert(partition);
            }
        }
        self.again.remove(&partition)
    }

    /// Nothing of this process is open in the partition: a run resolved it, or another instance resolves it.
    pub fn resolved(&mut self, partition: PartitionNo) {
        self.unresolved.remove(&partition);
        self.unsettled.remove(&partition);
        if self.on_trial == Some(partition) {
            self.on_trial = None;
            // Rows that became due during the trial, or that wait behind the suspect, get an ordinary turn.
            self.wake(partition);
        }
    }

    /// A run could not begin, because this instance does not own the partition: its owner resolves what is open.
    pub fn not_owned(&mut self, partition: PartitionNo) {
        self.finished(partition, RunEnd::Resolved);
        self.forget(partition);
    }

    /// A run could not begin, because this instance hands the partition over or has no workers yet.
    pub fn not_run(&mut self, partition: PartitionNo) {
        let is_open = self.unresolved.contains(&partition) || self.unsettled.contains(&partition);
        self.finished(partition, if is_open { RunEnd::Unresolved } else { RunEnd::Resolved });
        self.forget(partition);
    }

    /// The partition does not run any more. A batch of it that is unsettled or unresolved remains open until [`Schedule::resolved`].
    pub fn forget(&mut self, partition: PartitionNo) {
        if self.unsettled.remove(&partition) {
            self.unresolved.insert(partition);
        }
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
        assert!(schedule.finished(A, RunEnd::Resolved), "it was woken while it ran");
        schedule.wake(A);

        let turns: Vec<_> = (0..3)
            .filter_map(|_| {
                let (partition, _) = schedule.next(1, Selection::All)?;
                schedule.finished(partition, RunEnd::Resolved);
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
        assert!(schedule.finished(B, RunEnd::Resolved), "it was woken while it ran");
        schedule.wake_full(B);

        let order: Vec<_> = (0..3).filter_map(|_| Some(schedule.next(16, Selection::All)?.0)).collect();
        assert_eq!(order, [A, C, B], "a cycle takes them in the order in which they wait");
        schedule.finished(B, RunEnd::Resolved);
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
        schedule.finished(A, RunEnd::Resolved);
        assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Trial)));
        assert_eq!(schedule.next(16, Selection::All), None, "nothing runs during it");
        schedule.finished(B, RunEnd::Resolved);
        assert_eq!(schedule.next(16, Selection::All), Some((C, ClaimKind::Ordinary)));
        assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Ordinary)));
    }

    #[test]
    fn acknowledged_batch_is_settled_by_the_next_claim_or_without_one() {
        let mut schedule = Schedule::default();
        for partition in [A, B] {
            schedule.wake(partition);
            schedule.next(16, Selection::All);
            schedule.finished(partition, RunEnd::Unsettled);
        }
        assert!(!schedule.is_waiting());
        schedule.wake(A);
        assert_eq!(schedule.next(16, Selection::All), Some((A, ClaimKind::Ordinary)));
        assert_eq!(schedule.next(16, Selection::All), None, "B has no rows that are due");

        assert_eq!(schedule.next_unsettled(1), None, "no more than asked");
        assert_eq!(schedule.next_unsettled(16), Some(B));
        assert_eq!(schedule.next_unsettled(16), None, "the run of A settles it");
        assert!(!schedule.finished(B, RunEnd::Resolved));
        schedule.finished(A, RunEnd::Resolved);
        assert_eq!(schedule.next_unsettled(16), None);
    }

    #[test]
    fn partition_that_only_settles_keeps_its_turn() {
        let mut schedule = Schedule::default();
        schedule.wake(A);
        schedule.next(16, Selection::All);
        schedule.finished(A, RunEnd::Unsettled);
        schedule.wake(A);

        assert_eq!(schedule.next_unsettled(16), Some(A));
        assert_eq!(schedule.next(16, Selection::All), None, "it runs");
        assert!(schedule.finished(A, RunEnd::Resolved), "it runs again");
    }

    #[test]
    fn trial_waits_until_acknowledged_batches_are_settled() {
        let mut schedule = Schedule::default();
        schedule.wake(A);
        schedule.next(16, Selection::All);
        schedule.request_trial(B);
        schedule.finished(A, RunEnd::Unsettled);
        schedule.wake(A);

        assert_eq!(schedule.next(16, Selection::All), None, "a batch of A is open");
        assert_eq!(schedule.next_unsettled(16), Some(A));
        assert_eq!(schedule.next(16, Selection::All), None, "A runs");
        schedule.finished(A, RunEnd::Resolved);
        assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Trial)));
    }

    #[test]
    fn batch_of_a_partition_that_is_handed_over_is_open_until_the_end_of_the_hand_over() {
        let mut schedule = Schedule::default();
        schedule.wake(A);
        schedule.next(16, Selection::All);
        schedule.finished(A, RunEnd::Unsettled);
        schedule.request_trial(B);
        schedule.forget(A);

        assert_eq!(schedule.next_unsettled(16), None, "its hand-over settles it");
        assert_eq!(schedule.next(16, Selection::All), None);
        schedule.resolved(A);
        assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Trial)));
    }

    /// The run that the hand-over waits for ends after the partition was forgotten.
    #[test]
    fn batch_that_ends_during_its_hand_over_blocks_no_trial_afterwards() {
        let mut schedule = Schedule::default();
        schedule.wake(A);
        schedule.next(16, Selection::All);
        schedule.request_trial(B);
        schedule.forget(A);
        schedule.finished(A, RunEnd::Unsettled);
        assert_eq!(schedule.next(16, Selection::All), None, "the hand-over settles it");

        schedule.resolved(A);
        schedule.wake(A);
        assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Trial)));
        schedule.finished(B, RunEnd::Resolved);
        schedule.next(16, Selection::All);
        schedule.not_owned(A);
        schedule.next(16, Selection::All);
        schedule.finished(B, RunEnd::Resolved);
        schedule.request_trial(C);
        assert_eq!(schedule.next(16, Selection::All), Some((C, ClaimKind::Trial)));
    }

    #[test]
    fn batch_that_is_reported_after_its_hand_over_blocks_no_trial() {
        let mut schedule = Schedule::default();
        schedule.wake(A);
        schedule.next(16, Selection::All);
        schedule.request_trial(B);
        schedule.forget(A);
        schedule.resolved(A);
        schedule.finished(A, RunEnd::Unsettled);

        assert_eq!(schedule.next_unsettled(16), Some(A));
        schedule.not_owned(A);
        assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Trial)));
    }

    #[test]
    fn a_forgotten_partition_does_not_run() {
        let mut schedule = Schedule::default();
        schedule.wake(A);
        schedule.request_trial(A);
        schedule.forget(A);
        assert_eq!(schedule.next(16, Selection::All), None);
    }

    /// Starts a trial of B with nothing else waiting.
    fn schedule_with_trial() -> Schedule {
        let mut schedule = Schedule::default();
        schedule.request_trial(B);
        assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Trial)));
        schedule
    }

    #[test]
    fn trial_waits_until_every_unknown_outcome_is_resolved_and_others_go_on() {
        let mut schedule = Schedule::default();
        schedule.wake(A);
        schedule.next(16, Selection::All);
        schedule.request_trial(B);
        schedule.finished(A, RunEnd::Unresolved);

        assert_eq!(schedule.next(16, Selection::All), None, "a batch of A may be open");
        schedule.wake(C);
        assert_eq!(
            schedule.next(16, Selection::All),
            Some((C, ClaimKind::Ordinary)),
            "it does not wait for the broker of A"
        );
        schedule.wake(A);
        assert_eq!(schedule.next(16, Selection::All), Some((A, ClaimKind::Ordinary)));
        schedule.finished(A, RunEnd::Resolved);
        assert_eq!(schedule.next(16, Selection::All), None, "C still runs");
        schedule.finished(C, RunEnd::Resolved);
        assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Trial)));
    }

    #[test]
    fn nothing_else_runs_until_a_trial_with_an_unknown_outcome_is_resolved() {
        let mut schedule = schedule_with_trial();
        schedule.wake(A);
        schedule.finished(B, RunEnd::Unresolved);

        assert_eq!(schedule.next(16, Selection::All), None, "B pauses after its failure");
        schedule.wake(B);
        assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Ordinary)), "the run that resolves");
        assert_eq!(schedule.next(16, Selection::All), None);
        schedule.finished(B, RunEnd::Unresolved);
        assert_eq!(schedule.next(16, Selection::All), None, "the broker is still away");
        schedule.wake(B);
        schedule.next(16, Selection::All);
        schedule.finished(B, RunEnd::Resolved);
        assert_eq!(schedule.next(16, Selection::All), Some((A, ClaimKind::Ordinary)));
    }

    #[test]
    fn trial_blocks_nothing_after_its_partition_moved_to_another_instance() {
        let mut schedule = schedule_with_trial();
        schedule.wake(A);
        schedule.finished(B, RunEnd::Unresolved);
        schedule.forget(B);
        assert_eq!(schedule.next(16, Selection::All), None, "the hand-over has begun, and not ended");

        schedule.resolved(B);

        assert_eq!(schedule.next(16, Selection::All), Some((A, ClaimKind::Ordinary)));
    }

    #[test]
    fn run_that_did_not_begin_changes_nothing_that_is_unresolved() {
        let mut schedule = schedule_with_trial();
        schedule.not_run(B);
        schedule.wake(A);
        assert_eq!(schedule.next(16, Selection::All), Some((A, ClaimKind::Ordinary)), "the trial did not begin");

        schedule.finished(A, RunEnd::Unresolved);
        schedule.wake(A);
        schedule.next(16, Selection::All);
        schedule.not_run(A);
        schedule.forget(B);
        schedule.request_trial(C);
        assert_eq!(schedule.next(16, Selection::All), None, "a batch of A may be open");
    }
}
