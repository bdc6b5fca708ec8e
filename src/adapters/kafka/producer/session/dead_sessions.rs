//! Sessions that can commit nothing any more. The ids of sessions are never reused, so this stays true. The relay requests a fence for each batch
//! that a dead session left open, and such a fence must not end the session's successor.
use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use ports::partitions::ProducerSessionId;

use crate::producer::session_id::{self, SessionIdParts, WatermarkPartition};

/// Most fenced sessions that are remembered. A forgotten one is fenced again, which ends its successor.
const FENCED_MAX: usize = 4_096;

/// The dead sessions that this process knows. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct DeadSessions(Arc<Mutex<DeadSessionSets>>);

#[derive(Default)]
struct DeadSessionSets {
    fenced: HashSet<ProducerSessionId>,
    /// Ended sessions whose transactional id no later producer has initialised yet.
    ended: Vec<(String, ProducerSessionId)>,
}

impl DeadSessionSets {
    fn clear_fenced_if_full(&mut self) {
        if self.fenced.len() >= FENCED_MAX {
            self.fenced.clear();
        }
    }
}

impl DeadSessions {
    pub(crate) fn is_fenced(&self, session: &ProducerSessionId) -> bool {
        self.0.lock().fenced.contains(session)
    }

    /// Records that the session can commit nothing more: a later producer has initialised its transactional id, or the broker has confirmed the abort
    /// of its last transaction.
    pub(crate) fn insert_fenced(&self, session: ProducerSessionId) {
        let mut dead = self.0.lock();
        dead.clear_fenced_if_full();
        dead.fenced.insert(session);
    }

    /// Records that this process ended the session. The broker may still commit what the session sent, until a later producer initialises its
    /// transactional id. A session without transactions is not recorded, because no producer initialises an id for it.
    pub(crate) fn insert_ended(&self, session: ProducerSessionId) {
        let SessionIdParts { transactional_id, watermarks } = session_id::parse(&session);
        if watermarks != WatermarkPartition::None {
            let transactional_id = transactional_id.to_owned();
            self.0.lock().ended.push((transactional_id, session));
        }
    }

    /// Records that a new producer initialised this transactional id, which fences all ended sessions of it.
    pub(crate) fn record_initialisation(&self, transactional_id: &str) {
        let dead = &mut *self.0.lock();
        dead.clear_fenced_if_full();
        let fenced = dead.ended.extract_if(.., |(ended, _)| ended == transactional_id);
        dead.fenced.extend(fenced.map(|(_, session)| session));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_session_is_recorded_until_its_transactional_id_is_initialised() {
        let dead = DeadSessions::default();
        let [session, other] = ["t-1", "t-2"].map(|id| session_id::new(id, Some(7)));
        dead.insert_ended(session.clone());
        dead.insert_ended(other.clone());
        dead.record_initialisation("t-1");

        assert!(dead.is_fenced(&session) && !dead.is_fenced(&other));
        assert_eq!(dead.0.lock().ended.len(), 1);
    }

    #[test]
    fn ended_session_without_transactions_is_not_recorded() {
        let dead = DeadSessions::default();
        dead.insert_ended(session_id::new("t-1", None));

        assert!(dead.0.lock().ended.is_empty());
    }
}
