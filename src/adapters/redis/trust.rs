//! Whether the cache may be believed, as data: which epoch this process knows, since when, and what it has not yet made good.
use std::time::{Duration, Instant};

/// What one process believes of the cache.
#[derive(Debug)]
pub(crate) struct Trust {
    /// Counted up for every reason to doubt.
    doubts: u64,
    /// How many of them the last raise has answered.
    answered: u64,
    /// The server process that connections lead to.
    run: Option<String>,
    known: Option<Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    epoch: u64,
    since: Instant,
}

impl Trust {
    /// A fresh process doubts: its former life may have failed to tell of a change.
    pub(crate) fn new() -> Self {
        Self { doubts: 1, answered: 0, run: None, known: None }
    }

    /// Something may stand in the cache that is too old. Says whether this is news.
    pub(crate) fn doubt(&mut self) -> bool {
        let news = self.believes();
        self.doubts += 1;
        news
    }

    /// The doubts to be answered by a raise that is sent after this call.
    pub(crate) fn open(&self) -> Option<u64> {
        (!self.believes()).then_some(self.doubts)
    }

    /// The epoch was raised after `doubts` were counted. What came up since then stays open.
    pub(crate) fn raised(&mut self, doubts: u64, epoch: u64, now: Instant) {
        self.answered = self.answered.max(doubts);
        self.learn(epoch, now);
    }

    /// Whether what the cache shows may be believed.
    pub(crate) fn believes(&self) -> bool {
        self.answered == self.doubts
    }

    /// A call came back with this epoch. Says whether what it showed belongs to the present. An answer that was overtaken by a newer
    /// one is no reason to doubt: that would raise the epoch for everybody, and overtake again.
    pub(crate) fn saw(&mut self, epoch: u64, now: Instant) -> bool {
        let present = self.known.is_none_or(|known| epoch >= known.epoch);
        self.learn(epoch, now);
        present && self.believes()
    }

    /// A look that nothing can have overtaken found this epoch. An older one, or none, means that the server forgot.
    pub(crate) fn found(&mut self, epoch: Option<u64>, now: Instant) -> bool {
        let forgot = match (epoch, self.known) {
            (Some(epoch), Some(known)) => epoch < known.epoch,
            (None, _) => true,
            (Some(_), None) => false,
        };
        if let Some(epoch) = epoch {
            self.learn(epoch, now);
        }
        forgot && self.doubt()
    }

    /// A connection was made to this server process. Another one than before may have lost what the former knew.
    pub(crate) fn connected(&mut self, run: &str) -> bool {
        let before = self.run.replace(run.to_owned());
        before.is_some_and(|before| before != run) && self.doubt()
    }

    /// The epoch under which an order may be cached; `None` while anything in hand may be from before it.
    pub(crate) fn epoch_to_write(&self, settle: Duration, now: Instant) -> Option<u64> {
        let known = self.known.filter(|_| self.believes())?;
        (now.saturating_duration_since(known.since) >= settle).then_some(known.epoch)
    }

    fn learn(&mut self, epoch: u64, now: Instant) {
        if self.known.is_none_or(|known| epoch > known.epoch) {
            self.known = Some(Known { epoch, since: now });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_secs(10);

    fn trusting(epoch: u64, now: Instant) -> Trust {
        let mut trust = Trust::new();
        trust.raised(1, epoch, now);
        trust
    }

    #[test]
    fn a_fresh_process_believes_nothing_until_it_has_raised_the_epoch() {
        let now = Instant::now();
        let mut trust = Trust::new();
        assert!(!trust.believes() && !trust.saw(7, now));

        trust.raised(trust.open().expect("doubts"), 8, now);

        assert!(trust.believes() && trust.saw(8, now));
    }

    #[test]
    fn a_doubt_that_came_up_during_a_raise_outlives_it() {
        let now = Instant::now();
        let mut trust = Trust::new();
        let before = trust.open().expect("doubts");
        trust.doubt();

        trust.raised(before, 8, now);

        assert!(!trust.believes());
        trust.raised(trust.open().expect("doubts"), 9, now);
        assert!(trust.believes());
    }

    #[test]
    fn orders_are_cached_only_under_an_epoch_known_for_long_enough() {
        let begun = Instant::now();
        let mut trust = trusting(8, begun);
        assert_eq!(trust.epoch_to_write(SETTLE, begun), None);
        assert_eq!(trust.epoch_to_write(SETTLE, begun + SETTLE), Some(8));

        // Somebody else raised it: the time counts anew.
        assert!(trust.saw(9, begun + SETTLE));
        assert_eq!(trust.epoch_to_write(SETTLE, begun + SETTLE), None);
        assert_eq!(trust.epoch_to_write(SETTLE, begun + SETTLE * 2), Some(9));
    }

    #[test]
    fn an_overtaken_answer_is_not_believed_and_raises_no_doubt() {
        let now = Instant::now();
        let mut trust = trusting(9, now);

        assert!(!trust.saw(8, now));

        assert!(trust.believes());
    }

    #[test]
    fn a_server_that_forgot_or_was_replaced_is_doubted() {
        let now = Instant::now();
        for forget in [
            |trust: &mut Trust, now| trust.found(None, now),
            |trust: &mut Trust, now| trust.found(Some(8), now),
            |trust: &mut Trust, _| trust.connected("another"),
        ] {
            let mut trust = trusting(9, now);
            assert!(!trust.connected("one") && !trust.connected("one") && !trust.found(Some(9), now));
            assert!(forget(&mut trust, now) && !trust.believes());
        }
    }
}
