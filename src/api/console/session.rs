//! Console sessions. They are kept in memory; after a restart a session continues from its ticket.
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use domain::Timestamp;
use parking_lot::Mutex;
use rand::RngCore;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::auth::identity::Identity;
use crate::console::session_ticket::{Ticket, TicketKey, hexadecimal};

/// Concurrent sessions; a further log-in ends the oldest one.
const SESSIONS_MAX: usize = 100;
/// A session without a request for this long has ended. Open pages refresh themselves.
const IDLE_MAX: Duration = Duration::from_secs(15 * 60);

/// A session ends at the latest this long after its log-in, however long its token is valid: a day's work. It bounds the time for which a
/// session continues whose token was signed with a key that the key set has withdrawn.
const SESSION_AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// Time after which a session in use gets a new ticket.
const TICKET_AGE_MAX: Duration = Duration::from_secs(60);

/// All sessions, and the key of their tickets.
pub(crate) struct ConsoleSessions {
    key: TicketKey,
    started: Timestamp,
    table: Mutex<SessionTable>,
}

#[derive(Default)]
struct SessionTable {
    /// Sessions by the time of their log-in, the oldest first.
    entries: Vec<SessionEntry>,
    /// Hashes of the ids of ended sessions: their tickets count no more.
    ended: HashSet<[u8; 32]>,
}

struct SessionEntry {
    session: ConsoleSession,
    last_used: Timestamp,
    /// `None` before its first ticket.
    ticket_written: Option<Timestamp>,
    flash: Option<String>,
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
    /// No sessions. Tickets are signed with a key derived from `secret` and the fingerprint of the keys of tokens; only tickets from before
    /// `started` count.
    pub(crate) fn new(secret: Option<&SecretString>, token_keys: &[u8; 32], started: Timestamp) -> Self {
        Self { key: TicketKey::new(secret, token_keys), started, table: Mutex::default() }
    }

    /// Starts a session and returns its id, which is stored only as a hash.
    pub(crate) fn begin(&self, identity: &Identity, now: Timestamp) -> SecretString {
        let id = random_secret();
        let latest = now.plus(SESSION_AGE_MAX).millis() as f64 / 1000.0;
        let identity = Arc::new(Identity { expires: identity.expires.min(latest), ..identity.clone() });
        let mut table = self.table.lock();
        if now.since(self.started) >= IDLE_MAX {
            // Every ticket of the earlier process is too old.
            table.ended.clear();
        }
        table.add(ConsoleSession::new(id.expose_secret(), identity), now);
        id
    }

    /// The session with this id, if it has not ended. Counts as a use.
    pub(crate) fn find(
        &self,
        id: &str,
        now: Timestamp,
        is_valid: impl Fn(&Identity) -> bool,
    ) -> Option<ConsoleSession> {
        let table = &mut *self.table.lock();
        table.retain(|entry| now.since(entry.last_used) < IDLE_MAX && is_valid(&entry.session.identity));
        let id_hash = hash(id);
        let entry = table.entries.iter_mut().find(|entry| entry.session.id_hash == id_hash)?;
        entry.last_used = now;
        Some(entry.session.clone())
    }

    /// Continues a session of an earlier process from its ticket. Counts as a use.
    pub(crate) fn resume(
        &self,
        id: &str,
        ticket: &str,
        now: Timestamp,
        is_valid: impl Fn(&Identity) -> bool,
    ) -> Option<ConsoleSession> {
        let ticket = self.key.verify(ticket)?;
        let (written, id_hash) = (ticket.written(), hash(id));
        if !ticket.belongs_to(&id_hash) || written >= self.started || now.since(written) >= IDLE_MAX {
            return None;
        }
        let identity = ticket.into_identity().filter(|identity| is_valid(identity))?;
        let mut table = self.table.lock();
        if table.ended.contains(&id_hash) {
            return None;
        }
        let session = ConsoleSession::new(id, identity);
        table.add(session.clone(), now);
        Some(session)
    }

    /// A new ticket of the session, if it has none or its last one is too old.
    pub(crate) fn due_ticket(&self, session: &ConsoleSession, now: Timestamp) -> Option<String> {
        let mut table = self.table.lock();
        let entry = table.entry(session)?;
        if entry.ticket_written.is_some_and(|written| now.since(written) < TICKET_AGE_MAX) {
            return None;
        }
        entry.ticket_written = Some(now);
        self.key.sign(&Ticket::new(&session.id_hash, &session.identity, now))
    }

    /// Whether a session has not ended. Does not count as a use.
    pub(crate) fn is_active(
        &self,
        session: &ConsoleSession,
        now: Timestamp,
        is_valid: impl Fn(&Identity) -> bool,
    ) -> bool {
        let is_active =
            |entry: &mut SessionEntry| now.since(entry.last_used) < IDLE_MAX && is_valid(&entry.session.identity);
        self.table.lock().entry(session).is_some_and(is_active)
    }

    /// Ends a session. Idempotent.
    pub(crate) fn end(&self, session: &ConsoleSession) {
        self.table.lock().retain(|entry| entry.session.id_hash != session.id_hash);
    }

    /// Stores a flash message, which the next page of the session shows once.
    pub(crate) fn set_flash(&self, session: &ConsoleSession, flash: String) {
        if let Some(entry) = self.table.lock().entry(session) {
            entry.flash = Some(flash);
        }
    }

    /// Removes and returns the flash message.
    pub(crate) fn take_flash(&self, session: &ConsoleSession) -> Option<String> {
        self.table.lock().entry(session)?.flash.take()
    }
}

impl SessionTable {
    fn add(&mut self, session: ConsoleSession, now: Timestamp) {
        self.retain(|entry| now.since(entry.last_used) < IDLE_MAX);
        if self.entries.len() >= SESSIONS_MAX {
            let oldest = self.entries[0].session.id_hash;
            self.retain(|entry| entry.session.id_hash != oldest);
        }
        self.entries.push(SessionEntry { session, last_used: now, ticket_written: None, flash: None });
    }

    fn entry(&mut self, session: &ConsoleSession) -> Option<&mut SessionEntry> {
        self.entries.iter_mut().find(|entry| entry.session.id_hash == session.id_hash)
    }

    /// Ends the sessions that are not kept, and remembers them.
    fn retain(&mut self, keep: impl Fn(&SessionEntry) -> bool) {
        let ended = self.entries.iter().filter(|entry| !keep(entry)).map(|entry| entry.session.id_hash);
        self.ended.extend(ended);
        self.entries.retain(keep);
    }
}

impl ConsoleSession {
    /// The CSRF token is derived from the id, so that forms of an open page stay valid when the session continues from its ticket.
    fn new(id: &str, identity: Arc<Identity>) -> Self {
        let token = Sha256::new().chain_update("form\0").chain_update(id).finalize();
        let csrf_token = hexadecimal(&token).into();
        Self { id_hash: hash(id), identity, csrf_token }
    }

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
    hexadecimal(&bytes).into()
}
