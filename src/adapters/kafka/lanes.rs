//! Lanes: a slot's sessions, of which one lives at most. A transactional id outlives its sessions; a session's name is never used again.
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ports::Error;
use ports::broker::Published;
use ports::partitions::ProducerSessionId;
use rdkafka::error::KafkaError;
use rdkafka::producer::Producer;

use crate::contact::Contact;
use crate::lane::Lane;
use crate::options::{Guarantee, Options};
use crate::parcel::Parcel;
use crate::post::Post;
use crate::sizes::Sizes;
use crate::{client, error};

/// Between two tries of a fence that met somebody else's.
const FENCE_PAUSE: Duration = Duration::from_millis(50);
/// Separates a transactional id from the name of a session under it.
const EXACTLY_ONCE: char = '#';
/// The same, of a session that has no transactions and so nothing that a broker could fence.
const AT_LEAST_ONCE: char = '~';

/// The living sessions of this process.
pub(crate) struct Lanes {
    options: Arc<Options>,
    contact: Arc<Contact>,
    sessions: Mutex<HashMap<ProducerSessionId, Session>>,
    dead: Mutex<Dead>,
}

/// Sessions of which nothing can commit any more: their names are never used again, so what is known of them stays true. Each batch that
/// one left open asks for its fence, and must not end the session that took its place.
#[derive(Default)]
struct Dead {
    known: HashSet<ProducerSessionId>,
    /// Sessions of ours that were ended and whose id was not taken since.
    ended: Vec<(String, ProducerSessionId)>,
}

/// Most dead sessions that are remembered. One that was forgotten is fenced once more, which costs its successor a session.
const DEAD_MAX: usize = 4_096;

impl Dead {
    /// The id was taken: whatever had it before is dead.
    fn taken(&mut self, base: &str) {
        if self.known.len() >= DEAD_MAX {
            self.known.clear();
        }
        let (gone, left) = std::mem::take(&mut self.ended).into_iter().partition(|(ended, _)| ended == base);
        self.ended = left;
        let gone: Vec<(String, ProducerSessionId)> = gone;
        self.known.extend(gone.into_iter().map(|(_, lane)| lane));
    }
}

struct Session {
    base: String,
    queue: SyncSender<Parcel>,
    over: Arc<AtomicBool>,
}

impl Lanes {
    pub(crate) fn new(options: Arc<Options>, contact: Arc<Contact>) -> Self {
        Self { options, contact, sessions: Mutex::default(), dead: Mutex::default() }
    }

    /// Opens a session of this slot; whatever session had its id before, ours or another process's, is dead then. Blocks.
    pub(crate) fn open(&self, slot: &str) -> Result<ProducerSessionId, Error> {
        let base = format!("{}-{slot}", self.options.lane_base());
        self.end(|session| session.base == base, "another session of its slot was opened");
        let post = match self.options.guarantee {
            Guarantee::ExactlyOnce => self.take(&base)?,
            Guarantee::AtLeastOnce => self.post(&client::sending(&self.options))?,
        };
        let mark = match self.options.guarantee {
            Guarantee::ExactlyOnce => EXACTLY_ONCE,
            Guarantee::AtLeastOnce => AT_LEAST_ONCE,
        };
        let id = ProducerSessionId(format!("{base}{mark}{:016x}", nonce()).into());
        let (queue, parcels) = sync_channel(self.options.queue);
        let over = Arc::new(AtomicBool::new(false));
        let lane = Lane {
            post,
            watermarks: self.options.watermarks(),
            options: Arc::clone(&self.options),
            over: Arc::clone(&over),
            committed: HashMap::new(),
            skips: false,
            hiccups: 0,
            sizes: Sizes::new(self.options.compression),
            vain_since: None,
            held: None,
        };
        std::thread::Builder::new()
            .name(format!("kafka-lane-{slot}"))
            .spawn(move || lane.run(&parcels))
            .map_err(|error| Error::Overloaded(format!("no thread for lane {slot}: {error}")))?;
        self.sessions.lock().insert(id.clone(), Session { base, queue, over });
        Ok(id)
    }

    /// Whether this is a living session of ours.
    pub(crate) fn lives(&self, lane: &ProducerSessionId) -> bool {
        self.sessions.lock().get(lane).is_some_and(|session| !session.over.load(Ordering::Relaxed))
    }

    /// Hands a parcel to a session, or answers it at once.
    pub(crate) fn hand_over(&self, lane: &ProducerSessionId, parcel: Parcel) {
        let mut sessions = self.sessions.lock();
        let queue =
            sessions.get(lane).filter(|session| !session.over.load(Ordering::Relaxed)).map(|session| &session.queue);
        let Some(queue) = queue else {
            if let Some(session) = sessions.remove(lane) {
                self.dead.lock().ended.push((session.base, lane.clone()));
            }
            drop(sessions);
            return parcel.answer(Published::SessionLost(format!("{lane} is not the living session of its slot")));
        };
        match queue.try_send(parcel) {
            Ok(()) => {}
            Err(TrySendError::Disconnected(parcel)) => {
                parcel.answer(Published::SessionLost(format!("the session {lane} is over")));
            }
            Err(TrySendError::Full(parcel)) => {
                let cause = Some(Error::Overloaded(format!("the queue of {lane} is full")));
                parcel.answer(Published::Aborted { refused: Vec::new(), cause, reached: false });
            }
        }
    }

    /// Ends a session of ours, if it is one, and has the broker abort what its id still has open. Blocks.
    pub(crate) fn fence(&self, lane: &ProducerSessionId) -> Result<(), Error> {
        if self.dead.lock().known.contains(lane) {
            return Ok(());
        }
        let end = lane.0.rfind([EXACTLY_ONCE, AT_LEAST_ONCE]).unwrap_or(lane.0.len());
        let (base, session) = lane.0.split_at(end);
        let needs_broker = !session.starts_with(AT_LEAST_ONCE);
        self.end(|session| session.base == base, "it was fenced");
        if !needs_broker {
            return Ok(());
        }
        self.take(base)?;
        self.dead.lock().known.insert(lane.clone());
        Ok(())
    }

    fn end(&self, which: impl Fn(&Session) -> bool, why: &str) {
        self.sessions.lock().retain(|lane, session| {
            let ends = which(session);
            if ends {
                session.over.store(true, Ordering::Relaxed);
                self.dead.lock().ended.push((session.base.clone(), lane.clone()));
                tracing::debug!(event = "lane_ended", lane = %lane, why, "a lane's session was ended");
            }
            !ends
        });
    }

    fn post(&self, config: &rdkafka::ClientConfig) -> Result<Post, Error> {
        Post::open(config, &self.contact, &self.options.topic(&self.options.events), self.options.connect_within)
    }

    /// A producer to which the id belongs from now on. Being fenced while trying is no success: somebody else's producer may be the one
    /// that was to be stopped.
    fn take(&self, id: &str) -> Result<Post, Error> {
        let until = Instant::now() + self.options.deliver_within;
        let doing = format!("taking the transactional id {id}");
        let mut last = None;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(last.unwrap_or(Error::Unreachable(doing)));
            }
            let post = self.post(&client::transacting(&self.options, id))?;
            match post.producer.init_transactions(left.min(self.options.connect_within)) {
                Ok(()) => {
                    self.dead.lock().taken(id);
                    return Ok(post);
                }
                Err(KafkaError::Transaction(error)) if error.is_fatal() || error.is_retriable() => {
                    last = Some(Error::Unreachable(format!("{doing}: {error}")));
                }
                Err(error) => return Err(error::of(&error, &doing)),
            }
            std::thread::sleep(FENCE_PAUSE);
        }
    }
}

/// A number that nobody else draws: the standard library seeds each state from the system's entropy.
fn nonce() -> u64 {
    RandomState::new().build_hasher().finish()
}
