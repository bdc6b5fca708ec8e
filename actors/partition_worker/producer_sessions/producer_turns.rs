//! Which of the producer sessions in use takes the next claim. While the broker ends the transaction of one, new claims gather for the other.
/// How many sessions are used in turn. The coordinator still writes the markers of a transaction when the next one of the same id begins;
/// two ids hide that delay from each other, and a third would only split the claims into more transactions.
const TURNS: usize = 2;
/// Spare slots. One of them replaces a producer whose transactional id is blocked: while a partition accepts no transaction marker, the broker cannot
/// complete the transaction and refuses its transactional id.
const SPARE_SLOTS: usize = 2;

/// The claims and batches of the sessions in use. Pure: the order of the calls is its only time.
#[derive(Debug)]
pub struct ProducerTurns {
    turns: Vec<Turn>,
    slots: usize,
    calls: u64,
}

/// One session in use.
#[derive(Debug, Default)]
struct Turn {
    /// The slot of the session.
    slot: usize,
    /// Claims that name the session and whose batch has not gone to the broker yet.
    gathering: u32,
    /// Batches at the broker.
    publishing: u32,
    /// The call that began the present transaction, or ended the last one.
    changed: u64,
}

/// How a claim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// It found no rows, or its batch was not published.
    Unused,
    /// The broker has answered its batch.
    Published,
    /// Its session could not be opened.
    NotOpened,
}

impl ProducerTurns {
    /// Turns of this many producers, all of them idle, and the slots that replace them.
    pub fn new(producers: usize) -> Self {
        let turns = (0..producers.min(TURNS)).map(|slot| Turn { slot, ..Turn::default() }).collect();
        Self { turns, slots: producers + SPARE_SLOTS, calls: 0 }
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Selects the turn of a new claim, and returns it with its slot. Claims that are made together stay together: a session with claims and
    /// no transaction comes first, then an idle one (the one whose markers had the most time), then the one whose transaction began first.
    pub fn claim(&mut self) -> (usize, usize) {
        let rank = |turn: &Turn| match turn {
            Turn { publishing: 0, gathering: 1.., changed, .. } => (0, *changed),
            Turn { publishing: 0, changed, .. } => (1, *changed),
            Turn { changed, .. } => (2, *changed),
        };
        let at = self.turns.iter().enumerate().min_by_key(|(_, turn)| rank(turn)).map_or(0, |(at, _)| at);
        self.turns[at].gathering += 1;
        (at, self.turns[at].slot)
    }

    /// A claim's batch goes to the broker. Returns how many other claims of the session have not gone yet.
    pub fn publish(&mut self, at: usize) -> u32 {
        self.calls += 1;
        let turn = &mut self.turns[at];
        turn.gathering -= 1;
        turn.publishing += 1;
        if turn.publishing == 1 {
            turn.changed = self.calls;
        }
        turn.gathering
    }

    /// A claim has ended. Every claim ends exactly once.
    pub fn end(&mut self, at: usize, end: TurnEnd) {
        self.calls += 1;
        let turn = &mut self.turns[at];
        match end {
            TurnEnd::Unused | TurnEnd::NotOpened => turn.gathering -= 1,
            TurnEnd::Published => turn.publishing -= 1,
        }
        // A session that cannot be opened goes to the end of the queue, so that the other one is tried.
        if end == TurnEnd::NotOpened || (end == TurnEnd::Published && turn.publishing == 0) {
            turn.changed = self.calls;
        }
    }

    /// The session of this slot has ended, or cannot be opened: its turn goes on with the next slot that is not in use.
    pub fn replace(&mut self, slot: usize) {
        let in_use: Vec<usize> = self.turns.iter().map(|turn| turn.slot).filter(|used| *used != slot).collect();
        let next = (1..=self.slots).map(|step| (slot + step) % self.slots).find(|next| !in_use.contains(next));
        if let (Some(turn), Some(next)) = (self.turns.iter_mut().find(|turn| turn.slot == slot), next) {
            turn.slot = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims for all of `count` partitions; returns their turns.
    fn claims(turns: &mut ProducerTurns, count: usize) -> Vec<usize> {
        (0..count).map(|_| turns.claim().0).collect()
    }

    #[test]
    fn claims_made_together_share_a_session_and_the_next_ones_take_the_other() {
        let mut turns = ProducerTurns::new(2);
        assert_eq!(claims(&mut turns, 3), [0, 0, 0]);

        assert_eq!([0; 3].map(|at| turns.publish(at)), [2, 1, 0], "claims that are still to come");
        assert_eq!(claims(&mut turns, 2), [1, 1]);
        turns.end(0, TurnEnd::Published);
        turns.end(0, TurnEnd::Published);
        assert_eq!(claims(&mut turns, 1), [1], "claims gather for it");
        turns.end(0, TurnEnd::Published);

        assert_eq!(turns.publish(1), 2);
        assert_eq!(claims(&mut turns, 1), [0], "idle again");
    }

    #[test]
    fn idle_sessions_alternate() {
        let mut turns = ProducerTurns::new(2);
        let mut used = Vec::new();
        for _ in 0..4 {
            let (at, _) = turns.claim();
            turns.publish(at);
            turns.end(at, TurnEnd::Published);
            used.push(at);
        }
        assert_eq!(used, [0, 1, 0, 1]);
    }

    #[test]
    fn claim_without_rows_does_not_use_up_a_turn() {
        let mut turns = ProducerTurns::new(2);
        for _ in 0..3 {
            let (at, _) = turns.claim();
            assert_eq!(at, 0);
            turns.end(at, TurnEnd::Unused);
        }
    }

    #[test]
    fn while_both_publish_claims_go_to_the_transaction_that_began_first() {
        let mut turns = ProducerTurns::new(2);
        for expected in [0, 1] {
            assert_eq!(turns.claim().0, expected);
            turns.publish(expected);
        }
        assert_eq!(turns.claim().0, 0);
        turns.end(1, TurnEnd::Published);
        assert_eq!(turns.claim().0, 1, "idle now");
    }

    #[test]
    fn session_that_cannot_be_opened_leaves_the_next_claim_to_the_other() {
        let mut turns = ProducerTurns::new(2);
        let (at, _) = turns.claim();
        turns.end(at, TurnEnd::NotOpened);
        assert_ne!(turns.claim().0, at);
    }

    #[test]
    fn ended_session_is_replaced_by_a_slot_that_is_not_in_use() {
        let slots = |turns: &ProducerTurns| turns.turns.iter().map(|turn| turn.slot).collect::<Vec<_>>();
        let mut turns = ProducerTurns::new(2);
        turns.replace(0);
        assert_eq!(slots(&turns), [2, 1]);
        turns.replace(1);
        assert_eq!(slots(&turns), [2, 3]);
        turns.replace(0);
        assert_eq!(slots(&turns), [2, 3], "no session in use has this slot");
        turns.replace(3);
        assert_eq!(slots(&turns), [2, 0]);

        let mut single = ProducerTurns::new(1);
        for next in [1, 2, 0] {
            single.replace(slots(&single)[0]);
            assert_eq!(slots(&single), [next], "one producer at a time");
        }
    }
}
