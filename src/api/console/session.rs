//! Who is logged in. Sessions live in memory: a service that starts anew asks its operators for their tokens again, and nothing of theirs
//! ever stood on a disk.
use std::sync::Arc;
use std::time::Duration;

use domain::Timestamp;
use parking_lot::Mutex;
use rand::RngCore;
use sha2::{Digest, Sha256};

use crate::auth::Identity;

/// Most sessions at once; beyond them the oldest leaves. Operators are few.
const SESSIONS_MAX: usize = 100;
/// A session that asks for nothing for so long has ended. A page that is looked at asks by itself.
const IDLE_MAX: Duration = Duration::from_secs(15 * 60);

/// Every session, the oldest first.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Vec<Kept>>);

/// What is kept of a session: its id's hash, so that who reads our memory cannot come in.
struct Kept {
    session: Session,
    seen: Timestamp,
    note: Option<String>,
}

/// A session, in a request's hands.
#[derive(Clone)]
pub(crate) struct Session {
    name: [u8; 32],
    /// Whose it is.
    pub(crate) identity: Arc<Identity>,
    /// What its forms carry, so that no other site can send them.
    pub(crate) mark: Arc<str>,
}

impl Sessions {
    /// Begins a session and tells its id, which is told to nobody else and kept nowhere.
    pub(crate) fn begin(&self, identity: Arc<Identity>, now: Timestamp) -> String {
        let id = secret();
        let session = Session { name: name(&id), identity, mark: secret().into() };
        let mut all = self.0.lock();
        all.retain(|kept| now.since(kept.seen) < IDLE_MAX);
        if all.len() >= SESSIONS_MAX {
            all.remove(0);
        }
        all.push(Kept { session, seen: now, note: None });
        id
    }

    /// The session of this id, if it has not ended. Asking for it keeps it from idling.
    pub(crate) fn find(&self, id: &str, now: Timestamp, holds: impl Fn(&Identity) -> bool) -> Option<Session> {
        let mut all = self.0.lock();
        all.retain(|kept| now.since(kept.seen) < IDLE_MAX && holds(&kept.session.identity));
        let name = name(id);
        let kept = all.iter_mut().find(|kept| kept.session.name == name)?;
        kept.seen = now;
        Some(kept.session.clone())
    }

    /// Whether a session has not ended. Asking this keeps nobody from idling.
    pub(crate) fn lives(&self, session: &Session, now: Timestamp, holds: impl Fn(&Identity) -> bool) -> bool {
        let lasts = |kept: &Kept| now.since(kept.seen) < IDLE_MAX && holds(&kept.session.identity);
        self.0.lock().iter().any(|kept| kept.session.name == session.name && lasts(kept))
    }

    /// Ends a session. Harmless when it has ended.
    pub(crate) fn end(&self, session: &Session) {
        self.0.lock().retain(|kept| kept.session.name != session.name);
    }

    /// Leaves a note for the next page that the session is shown.
    pub(crate) fn leave_note(&self, session: &Session, note: String) {
        if let Some(kept) = self.0.lock().iter_mut().find(|kept| kept.session.name == session.name) {
            kept.note = Some(note);
        }
    }

    /// The note that was left; it is told once.
    pub(crate) fn take_note(&self, session: &Session) -> Option<String> {
        self.0.lock().iter_mut().find(|kept| kept.session.name == session.name)?.note.take()
    }
}

impl Session {
    /// Whether a form carries this session's mark. Hashes are compared, so that the time it takes tells nothing of the mark.
    pub(crate) fn is_marked(&self, mark: &str) -> bool {
        name(mark) == name(&self.mark)
    }
}

fn name(id: &str) -> [u8; 32] {
    Sha256::digest(id.as_bytes()).into()
}

/// 32 bytes that nobody can guess, in hexadecimal digits.
fn secret() -> String {
    let mut bytes = [0; 32];
    rand::rng().fill_bytes(&mut bytes);
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
