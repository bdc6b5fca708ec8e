//! Sessions that can commit nothing any more. The ids of sessions are never reused, so this stays true. The relay requests a fence for each batch
//! that a dead session left open, and such a fence must not end the session's successor.
use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use ports::partitions::ProducerSessionId;

/// Most fenced sessions that are remembered. A forgotten one is fenced again, which ends its successor.
const FENCED_MAX: usize = 4_096;

/// The dead sessions that this process knows. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct DeadSessions(Arc<Mutex<KnownDead>>);

#[derive(Default)]
struct KnownDead {
    fenced: HashSet<ProducerSessionId>,
    /// Ended sessions whose transactional id no later producer has initialised yet.
    ended: Vec<(String, ProducerSessionId)>,
}

impl KnownDead {
    fn make_room(&mut self) {
        if self.fenced.len() >= FENCED_MAX {
            self.fenced.clear();
        }
    }
}

impl DeadSessions {
    pub(crate) fn is_fenced(&self, session: &ProducerSessionId) -> bool {
        self.0.lock().fenced.contains(session)
    }

    /// A later producer has initialised the session's transactional id, or the broker has confirmed the end of its last transaction.
    pub(crate) fn insert_fenced(&self, session: ProducerSessionId) {
        let mut dead = self.0.lock();
        dead.make_room();
        dead.fenced.insert(session);
    }

    /// This process has ended the session; the broker may still commit what it has sent.
    pub(crate) fn insert_ended(&self, transactional_id: String, session: ProducerSessionId) {
        self.0.lock().ended.push((transactional_id, session));
    }

    /// A new producer has initialised the transactional id, and thereby fenced all earlier ones.
    pub(crate) fn initialised(&self, transactional_id: &str) {
        let dead = &mut *self.0.lock();
        dead.make_room();
        let fenced = dead.ended.extract_if(.., |(ended, _)| ended == transactional_id);
        dead.fenced.extend(fenced.map(|(_, session)| session));
    }
}
