//! Console sessions. They are kept in memory only: after a restart operators log in again.
use std::sync::Arc;
use std::time::Duration;

use domain::Timestamp;
use parking_lot::Mutex;
use rand::RngCore;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::auth::identity::Identity;

/// Concurrent sessions; a further log-in ends the oldest one.
const SESSIONS_MAX: usize = 100;
/// A session without a request for this long has ended. Open pages refresh themselves.
const IDLE_MAX: Duration = Duration::from_secs(15 * 60);

/// All sessions, the oldest first.
#[derive(Default)]
pub(crate) struct ConsoleSessions(Mutex<Vec<SessionEntry>>);

struct SessionEntry {
    session: ConsoleSession,
    last_used: Timestamp,
    note: Option<String>,
}

/// A session of an operator.
#[derive(Clone)]
pub(crate) struct ConsoleSession {
    /// The hash of the session id: the memory contains no id that a reader could use.
    id_hash: [u8; 32],
    pub(crate) identity: Arc<Identity>,
    /// Every form of the session contains it, so that other sites cannot send forms.
    csrf_token: SecretString,
}

impl ConsoleSessions {
    /// Starts a session and returns its id, which is stored only as a hash.
    pub(crate) fn begin(&self, identity: Arc<Identity>, now: Timestamp) -> SecretString {
        let id = random_secret();
        let session = ConsoleSession { id_hash: hash(id.expose_secret()), identity, csrf_token: random_secret() };
        let mut all = self.0.lock();
        all.retain(|entry| now.since(entry.last_used) < IDLE_MAX);
        if all.len() >= SESSIONS_MAX {
            all.remove(0);
        }
        all.push(SessionEntry { session, last_used: now, note: None });
        id
    }

    /// The session with this id, if it has not ended. Counts as a use.
    pub(crate) fn find(
        &self,
        id: &str,
        now: Timestamp,
        is_valid: impl Fn(&Identity) -> bool,
    ) -> Option<ConsoleSession> {
        let mut all = self.0.lock();
        all.retain(|entry| now.since(entry.last_used) < IDLE_MAX && is_valid(&entry.session.identity));
        let id_hash = hash(id);
        let entry = all.iter_mut().find(|entry| entry.session.id_hash == id_hash)?;
        entry.last_used = now;
        Some(entry.session.clone())
    }

    /// Whether a session has not ended. Does not count as a use.
    pub(crate) fn is_active(
        &self,
        session: &ConsoleSession,
        now: Timestamp,
        is_valid: impl Fn(&Identity) -> bool,
    ) -> bool {
        let is_active =
            |entry: &SessionEntry| now.since(entry.last_used) < IDLE_MAX && is_valid(&entry.session.identity);
        self.0.lock().iter().any(|entry| entry.session.id_hash == session.id_hash && is_active(entry))
    }

    /// Ends a session. Idempotent.
    pub(crate) fn end(&self, session: &ConsoleSession) {
        self.0.lock().retain(|entry| entry.session.id_hash != session.id_hash);
    }

    /// Stores a note for the next page of the session.
    pub(crate) fn leave_note(&self, session: &ConsoleSession, note: String) {
        if let Some(entry) = self.0.lock().iter_mut().find(|entry| entry.session.id_hash == session.id_hash) {
            entry.note = Some(note);
        }
    }

    /// Removes and returns the stored note.
    pub(crate) fn take_note(&self, session: &ConsoleSession) -> Option<String> {
        self.0.lock().iter_mut().find(|entry| entry.session.id_hash == session.id_hash)?.note.take()
    }
}

impl ConsoleSession {
    pub(crate) fn csrf_token(&self) -> &str {
        self.csrf_token.expose_secret()
    }

    /// Whether a form's CSRF token is this session's, compared in constant time.
    pub(crate) fn has_csrf_token(&self, token: &str) -> bool {
        self.csrf_token.expose_secret().as_bytes().ct_eq(token.as_bytes()).into()
    }
}

fn hash(id: &str) -> [u8; 32] {
    Sha256::digest(id.as_bytes()).into()
}

/// 32 random bytes in hexadecimal digits.
fn random_secret() -> SecretString {
    let mut bytes = [0; 32];
    rand::rng().fill_bytes(&mut bytes);
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")).into()
}
