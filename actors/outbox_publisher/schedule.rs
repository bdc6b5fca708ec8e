//! Which partition runs next: round and round through those with work, so that none starves, and a suspect only when nothing else runs.
//! Neighbours go together: what goes in one transaction then touches few partitions of the topic.
use std::collections::{BTreeSet, VecDeque};

use ports::outbox::ClaimKind;
use ports::partitions::PartitionNo;

/// Whose turn it is. Pure: the actor tells it what happens.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Partitions whose numbers leave the same rest by this are neighbours: their keys go to the same partitions of the topic.
    neighbourhoods: u32,
    /// Whose turn it is, and how many more of it may go before others that have waited longer.
    turn: (u32, usize),
    /// Batches come back full: each is worth its price by itself, and partitions of the topic that are written side by side are quicker.
    full: bool,
    waiting: VecDeque<PartitionNo>,
    queued: BTreeSet<PartitionNo>,
    running: BTreeSet<PartitionNo>,
    /// Woken while it ran: it runs again afterwards.
    again: BTreeSet<PartitionNo>,
    trials: VecDeque<PartitionNo>,
    on_trial: Option<PartitionNo>,
}

impl Schedule {
    /// Nothing waits. With one neighbourhood whoever has waited longest is next.
    pub(super) fn new(neighbourhoods: u32) -> Self {
        Self {
            neighbourhoods: neighbourhoods.max(1),
            turn: (0, 0),
            full: false,
            waiting: VecDeque::new(),
            queued: BTreeSet::new(),
            running: BTreeSet::new(),
            again: BTreeSet::new(),
            trials: VecDeque::new(),
            on_trial: None,
        }
    }

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
        let partition = self.take_neighbour(max)?;
        self.queued.remove(&partition);
        self.running.insert(partition);
        Some((partition, ClaimKind::Ordinary))
    }

    /// The one of this turn's neighbourhood that has waited longest. After `max` of them, or where none of them waits, the turn goes to the
    /// neighbourhood of whoever has waited longest of all.
    fn take_neighbour(&mut self, max: usize) -> Option<PartitionNo> {
        let (turn, left) = self.turn;
        let of = |partition: &PartitionNo| partition.0 % self.neighbourhoods;
        let neighbour = self.waiting.iter().position(|partition| left > 0 && !self.full && of(partition) == turn);
        let partition = self.waiting.remove(neighbour.unwrap_or(0))?;
        self.turn = if neighbour.is_some() { (turn, left - 1) } else { (of(&partition), max.saturating_sub(1)) };
        Some(partition)
    }

    /// Whether the last batch came back full.
    pub(super) fn came_back(&mut self, full: bool) {
        self.full = full;
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
        let mut schedule = Schedule::new(1);
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
    fn neighbours_go_together_and_nobody_waits_for_more_than_one_turn_of_them() {
        let mut schedule = Schedule::new(4);
        (0..12).for_each(|number| schedule.wake(PartitionNo(number)));
        let mut order = Vec::new();
        while let Some((partition, _)) = schedule.next(4) {
            order.push(partition.0);
            schedule.finished(partition);
            // Of this one there is always more.
            if partition.0 % 4 == 0 {
                schedule.wake(partition);
            }
            if order.len() == 16 {
                break;
            }
        }
        assert_eq!(order, [0, 4, 8, 0, 1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 0]);
    }

    #[test]
    fn where_batches_come_back_full_whoever_has_waited_longest_is_next() {
        let mut schedule = Schedule::new(4);
        schedule.came_back(true);
        (0..6).for_each(|number| schedule.wake(PartitionNo(number)));

        let order: Vec<u32> = (0..6).filter_map(|_| Some(schedule.next(16)?.0.0)).collect();

        assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_trial_runs_alone() {
        let mut schedule = Schedule::new(1);
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
        let mut schedule = Schedule::new(1);
        schedule.wake(A);
        schedule.wants_trial(A);
        schedule.forget(A);
        assert_eq!(schedule.next(16), None);
    }
}
