//! Where a scan for ready rows may begin. Rows below have left, or wait in their own table; without this a claim walks over all the dead
//! rows that a long transaction keeps, a little further each time.
//!
//! Ids are drawn before their transactions commit, so a row may appear below one that was claimed already. A place may be passed only
//! when every transaction that was running when it was read has ended, and a look that began at the old place came after that. Which
//! those are, the claim's own number tells: it is given after the claim's snapshot was taken, and writers have theirs before they draw
//! an id. A snapshot's xmax does not tell: it is one past the last that had *ended*, and those at and above it may well be running.
use std::collections::VecDeque;

use ports::partitions::{Counter, Epoch, Fence};

/// Most places remembered; beyond that the youngest two become one, which only delays.
const PLACES_MAX: usize = 64;

/// What is known of one partition, for as long as nobody but us changed its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Low {
    epoch: Epoch,
    /// The counter after our last statement; somebody else's statement raises it, and then nothing here holds.
    counter: Counter,
    low: i64,
    /// The highest id that was taken at a look, and the transaction that took it.
    places: VecDeque<(i64, i64)>,
}

/// What one look at the ready rows found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// The highest ready row that was taken, and the number of our transaction.
    pub(crate) last: Option<(i64, i64)>,
    /// Whether all ready rows were taken.
    pub(crate) all: bool,
    /// The oldest transaction that was running.
    pub(crate) xmin: i64,
}

impl Low {
    /// Nothing known.
    pub(crate) fn new(fence: &Fence) -> Self {
        Self { epoch: fence.epoch, counter: fence.counter, low: 0, places: VecDeque::new() }
    }

    /// Whether what is known still holds for who names this fence.
    pub(crate) fn holds(&self, fence: &Fence) -> bool {
        (self.epoch, self.counter) == (fence.epoch, fence.counter)
    }

    /// Rows at and below are not ready.
    pub(crate) fn place(&self) -> i64 {
        self.low
    }

    /// Our own statement raised the counter, and made no row ready.
    pub(crate) fn raised(&mut self, counter: Counter) {
        self.counter = counter;
    }

    /// Remembers a look that began at [`Low::place`].
    pub(crate) fn looked(&mut self, look: Look) {
        if let Some(place) = look.last {
            if self.places.len() >= PLACES_MAX {
                self.places.pop_back();
            }
            self.places.push_back(place);
        }
        // Whoever was running when these were read has ended, and this look has seen what they left behind.
        while let Some((place, _)) = self.places.front().copied().filter(|(_, xid)| *xid <= look.xmin) {
            let passed = if look.all { place } else { look.last.map_or(self.low, |(last, _)| place.min(last)) };
            self.low = self.low.max(passed);
            if passed < place {
                break;
            }
            self.places.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use ports::partitions::{InstanceId, PartitionNo};

    use super::*;

    fn low() -> Low {
        Low::new(&Fence { partition: PartitionNo(0), owner: InstanceId("a".into()), epoch: 1, counter: 5 })
    }

    fn look(last: Option<(i64, i64)>, all: bool, xmin: i64) -> Look {
        Look { last, all, xmin }
    }

    #[test]
    fn a_place_is_passed_at_once_when_nobody_was_writing() {
        let mut low = low();
        low.looked(look(Some((10, 100)), false, 100));
        assert_eq!(low.place(), 10, "ours is the oldest: whoever draws an id from now on draws a larger one");
    }

    #[test]
    fn a_place_waits_for_whoever_was_writing_and_for_a_look_after_that() {
        let mut low = low();
        low.looked(look(Some((10, 100)), true, 90));
        low.looked(look(Some((20, 110)), true, 90));
        assert_eq!(low.place(), 0, "transaction 90 may still bring a row below");
        low.looked(look(None, true, 100));
        assert_eq!(low.place(), 10);
        low.looked(look(None, true, 120));
        assert_eq!(low.place(), 20);
    }

    #[test]
    fn a_place_waits_for_who_began_after_the_last_that_had_ended() {
        let mut low = low();
        low.looked(look(Some((10, 105)), true, 100));
        low.looked(look(None, true, 100));
        assert_eq!(low.place(), 0, "100 to 104 were running, and nobody after them had ended");
        low.looked(look(None, true, 105));
        assert_eq!(low.place(), 10);
    }

    #[test]
    fn a_late_row_that_was_not_taken_is_not_passed() {
        let mut low = low();
        low.looked(look(Some((10, 100)), true, 90));
        low.looked(look(Some((4, 130)), false, 120));
        assert_eq!(low.place(), 4, "the limit cut the look off at 4: 5 may be ready");
        low.looked(look(Some((8, 131)), false, 131));
        assert_eq!(low.place(), 8);
        low.looked(look(None, true, 140));
        assert_eq!(low.place(), 10);
    }

    #[test]
    fn places_are_bounded_and_somebody_elses_statement_ends_it() {
        let mut low = low();
        for at in 0..1_000 {
            low.looked(look(Some((at, 100 + at)), true, 1));
        }
        assert!(low.places.len() <= PLACES_MAX && low.place() == 0);
        low.looked(look(None, true, 5_000));
        assert_eq!(low.place(), 999);
        let fence = Fence { partition: PartitionNo(0), owner: InstanceId("a".into()), epoch: 1, counter: 5 };
        assert!(low.holds(&fence) && !low.holds(&Fence { counter: 6, ..fence.clone() }));
        low.raised(6);
        assert!(!low.holds(&fence));
    }
}
