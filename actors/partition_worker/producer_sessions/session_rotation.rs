//! SessionRotation: selects the producer session of the next claim. While the broker ends the transaction of one, new claims gather for the other.
/// How many sessions are used in turn. The coordinator still writes the markers of a transaction when the next one of the same id begins;
/// two ids hide that delay from each other, and a third would only split the claims into more transactions.
const ACTIVE_SESSIONS: usize = 2;
/// Spare slots. One of them replaces a producer whose transactional id is blocked: while a partition accepts no transaction marker, the broker cannot
/// complete the transaction and refuses its transactional id.
const SPARE_SLOTS: usize = 2;

/// The claims and batches of the sessions in use. Pure: the order of the calls is its only time.
#[derive(Debug)]
pub struct SessionRotation {
    sessions: Vec<ActiveSession>,
    slots: usize,
    calls: u64,
}

/// One session in use.
#[derive(Debug, Default)]
struct ActiveSession {
    /// The slot of the session.
    slot: usize,
    /// Claims that name the session and whose batch has not gone to the broker yet.
    gathering: u32,
    /// Batches at the broker.
    publishing: u32,
    /// The call that began the present transaction, or ended the last one.
    changed: u64,
}

/// The session that a claim uses.
#[derive(Clone, Copy, Debug)]
pub struct SelectedSession {
    /// Position among the sessions in use; it stays when the session gets another slot.
    pub index: usize,
    /// The producer slot of the session.
    pub slot: usize,
}

/// The end of a claim, as the rotation counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimEnd {
    /// It found no rows, or its batch was not published.
    Unused,
    /// The broker has answered its batch.
    Published,
    /// Its session could not be opened.
    NotOpened,
}

impl SessionRotation {
    /// A rotation of this many producers, all of them idle, and the slots that replace them.
    pub fn new(producers: usize) -> Self {
        let sessions = (0..producers.min(ACTIVE_SESSIONS))
            .map(|slot| ActiveSession { slot, ..ActiveSession::default() })
            .collect();
        Self { sessions, slots: producers + SPARE_SLOTS, calls: 0 }
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Selects the session of a new claim. Claims that are made together stay together: a session with claims and no transaction comes first,
    /// then an idle one (the one whose markers had the most time), then the one whose transaction began first.
    pub fn claim(&mut self) -> SelectedSession {
        let rank = |session: &ActiveSession| match session {
            ActiveSession { publishing: 0, gathering: 1.., changed, .. } => (0, *changed),
            ActiveSession { publishing: 0, changed, .. } => (1, *changed),
            ActiveSession { changed, .. } => (2, *changed),
        };
        let index =
            self.sessions.iter().enumerate().min_by_key(|(_, session)| rank(session)).map_or(0, |(index, _)| index);
        self.sessions[index].gathering += 1;
        SelectedSession { index, slot: self.sessions[index].slot }
    }

    /// A claim's batch goes to the broker. Returns how many other claims of the session have not gone yet.
    pub fn publish(&mut self, index: usize) -> u32 {
        self.calls += 1;
        let session = &mut self.sessions[index];
        session.gathering -= 1;
        session.publishing += 1;
        if session.publishing == 1 {
            session.changed = self.calls;
        }
        session.gathering
    }

    /// A claim has ended. Every claim ends exactly once.
    pub fn end(&mut self, index: usize, end: ClaimEnd) {
        self.calls += 1;
        let session = &mut self.sessions[index];
        match end {
            ClaimEnd::Unused | ClaimEnd::NotOpened => session.gathering -= 1,
            ClaimEnd::Published => session.publishing -= 1,
        }
        // A session that cannot be opened goes to the end of the queue, so that the other one is tried.
        if end == ClaimEnd::NotOpened || (end == ClaimEnd::Published && session.publishing == 0) {
            session.changed = self.calls;
        }
    }

    /// The session of this slot has ended, or cannot be opened: it continues with the next slot that is not in use.
    pub fn replace(&mut self, slot: usize) {
        let in_use: Vec<usize> =
            self.sessions.iter().map(|session| session.slot).filter(|used| *used != slot).collect();
        let next = (1..=self.slots).map(|step| (slot + step) % self.slots).find(|next| !in_use.contains(next));
        if let (Some(session), Some(next)) = (self.sessions.iter_mut().find(|session| session.slot == slot), next) {
            session.slot = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims for all of `count` partitions; returns the indexes of their sessions.
    fn claims(rotation: &mut SessionRotation, count: usize) -> Vec<usize> {
        (0..count).map(|_| rotation.claim().index).collect()
    }

    #[test]
    fn claims_made_together_share_a_session_and_the_next_ones_take_the_other() {
        let mut rotation = SessionRotation::new(2);
        assert_eq!(claims(&mut rotation, 3), [0, 0, 0]);

        assert_eq!([0; 3].map(|index| rotation.publish(index)), [2, 1, 0], "claims that are still to come");
        assert_eq!(claims(&mut rotation, 2), [1, 1]);
        rotation.end(0, ClaimEnd::Published);
        rotation.end(0, ClaimEnd::Published);
        assert_eq!(claims(&mut rotation, 1), [1], "claims gather for it");
        rotation.end(0, ClaimEnd::Published);

        assert_eq!(rotation.publish(1), 2);
        assert_eq!(claims(&mut rotation, 1), [0], "idle again");
    }

    #[test]
    fn idle_sessions_alternate() {
        let mut rotation = SessionRotation::new(2);
        let mut used = Vec::new();
        for _ in 0..4 {
            let index = rotation.claim().index;
            rotation.publish(index);
            rotation.end(index, ClaimEnd::Published);
            used.push(index);
        }
        assert_eq!(used, [0, 1, 0, 1]);
    }

    #[test]
    fn claim_without_rows_does_not_advance_the_rotation() {
        let mut rotation = SessionRotation::new(2);
        for _ in 0..3 {
            let index = rotation.claim().index;
            assert_eq!(index, 0);
            rotation.end(index, ClaimEnd::Unused);
        }
    }

    #[test]
    fn while_both_publish_claims_go_to_the_transaction_that_began_first() {
        let mut rotation = SessionRotation::new(2);
        for expected in [0, 1] {
            assert_eq!(rotation.claim().index, expected);
            rotation.publish(expected);
        }
        assert_eq!(rotation.claim().index, 0);
        rotation.end(1, ClaimEnd::Published);
        assert_eq!(rotation.claim().index, 1, "idle now");
    }

    #[test]
    fn session_that_cannot_be_opened_leaves_the_next_claim_to_the_other() {
        let mut rotation = SessionRotation::new(2);
        let index = rotation.claim().index;
        rotation.end(index, ClaimEnd::NotOpened);
        assert_ne!(rotation.claim().index, index);
    }

    #[test]
    fn ended_session_is_replaced_by_a_slot_that_is_not_in_use() {
        let slots =
            |rotation: &SessionRotation| rotation.sessions.iter().map(|session| session.slot).collect::<Vec<_>>();
        let mut rotation = SessionRotation::new(2);
        rotation.replace(0);
        assert_eq!(slots(&rotation), [2, 1]);
        rotation.replace(1);
        assert_eq!(slots(&rotation), [2, 3]);
        rotation.replace(0);
        assert_eq!(slots(&rotation), [2, 3], "no session in use has this slot");
        rotation.replace(3);
        assert_eq!(slots(&rotation), [2, 0]);

        let mut single = SessionRotation::new(1);
        for next in [1, 2, 0] {
            single.replace(slots(&single)[0]);
            assert_eq!(slots(&single), [next], "one producer at a time");
        }
    }
}
