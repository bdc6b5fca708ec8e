//! Sessions of this instance's transactional producers. Each claim names the session that publishes its batch; a session that has ended is
//! opened again by the next claim that needs it.
mod session_rotation;

use std::sync::Arc;

use parking_lot::Mutex as StateMutex;
use ports::Error;
use ports::broker::{Broker, BrokerFailure};
use ports::partitions::{PartitionNo, ProducerSessionId};
use tokio::sync::Mutex;
use tokio::time::Instant;

use session_rotation::{ClaimEnd, SelectedSession, SessionRotation};

/// Distribution of the claims over producer slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProducerSlots {
    /// Partitions spread over this many slots: a failure in one slot affects no other. For a broker whose producers cost nothing.
    Spread(u32),
    /// All partitions share two of this many producers, used in turn. For a broker where each transaction has a fixed cost for every partition that
    /// it touches. When a session ends, a producer that is not in use replaces it, or one of two spare slots: both have another
    /// transactional id.
    Shared(u32),
}

/// The sessions, each opened on its first use and reopened after its end.
pub struct ProducerSessions {
    broker: Arc<dyn Broker>,
    slots: Vec<Mutex<Slot>>,
    /// Which slots are used in turn; `None` spreads the partitions.
    rotation: Option<Arc<StateMutex<SessionRotation>>>,
}

#[derive(Default)]
struct Slot {
    open: Option<ProducerSessionId>,
    /// The last failed attempt to open, and when it failed.
    failed: Option<(Instant, BrokerFailure)>,
}

/// A claim's use of a producer session, until the broker has answered its batch or the value is dropped.
pub struct ProducerClaim {
    session: ProducerSessionId,
    claimed: Option<ClaimedSession>,
}

impl ProducerClaim {
    /// The session that the claim names.
    pub fn session(&self) -> &ProducerSessionId {
        &self.session
    }

    /// The claim's batch is sent to the broker now, perhaps not for the first time. Returns how many other claims of the session have not been sent.
    pub fn begin_publish(&mut self) -> u32 {
        self.claimed.as_mut().map_or(0, ClaimedSession::begin_publish)
    }
}

struct ClaimedSession {
    rotation: Arc<StateMutex<SessionRotation>>,
    index: usize,
    end: ClaimEnd,
}

impl ClaimedSession {
    fn begin_publish(&mut self) -> u32 {
        if self.end == ClaimEnd::Published {
            // The batch is sent again, without the rows that were refused: no other claim waits for it.
            return 0;
        }
        self.end = ClaimEnd::Published;
        self.rotation.lock().publish(self.index)
    }
}

impl Drop for ClaimedSession {
    fn drop(&mut self) {
        self.rotation.lock().end(self.index, self.end);
    }
}

impl ProducerSessions {
    /// All slots, none of them open yet.
    pub fn new(broker: Arc<dyn Broker>, assignment: ProducerSlots) -> Self {
        let (ProducerSlots::Spread(count) | ProducerSlots::Shared(count)) = assignment;
        let count = count.max(1) as usize;
        let (slots, rotation) = match assignment {
            ProducerSlots::Spread(_) => (count, None),
            ProducerSlots::Shared(_) => {
                let rotation = SessionRotation::new(count);
                (rotation.slots(), Some(Arc::new(StateMutex::new(rotation))))
            }
        };
        Self { broker, slots: (0..slots).map(|_| Mutex::default()).collect(), rotation }
    }

    /// Selects the session for a claim of this partition, and opens it if it is not open.
    ///
    /// # Errors
    /// Returns the broker's error; the slot stays closed.
    pub async fn claim(&self, partition: PartitionNo) -> Result<ProducerClaim, BrokerFailure> {
        let (slot, mut claimed) = match &self.rotation {
            None => (partition.0 as usize % self.slots.len(), None),
            Some(rotation) => {
                let SelectedSession { index, slot } = rotation.lock().claim();
                (slot, Some(ClaimedSession { rotation: Arc::clone(rotation), index, end: ClaimEnd::Unused }))
            }
        };
        match self.open(slot).await {
            Ok(session) => Ok(ProducerClaim { session, claimed }),
            Err(failure) => {
                if let Some(claimed) = &mut claimed {
                    claimed.end = ClaimEnd::NotOpened;
                    claimed.rotation.lock().replace(slot);
                }
                Err(failure)
            }
        }
    }

    /// The session of this slot, opened if there is none. One caller opens; concurrent callers wait for it and share its failure, because
    /// one attempt after another would multiply the wait for a broker that is down.
    async fn open(&self, number: usize) -> Result<ProducerSessionId, BrokerFailure> {
        let requested = Instant::now();
        let mut slot = self.slots[number].lock().await;
        match &*slot {
            Slot { open: Some(session), .. } => return Ok(session.clone()),
            Slot { failed: Some((at, failure)), .. } if *at > requested => return Err(failure.clone()),
            Slot { .. } => {}
        }
        let number = u32::try_from(number).map_err(|_| Error::Broken("a producer slot's number exceeds u32".into()))?;
        match self.broker.open_session(number).await {
            Ok(session) => Ok(slot.open.insert(session).clone()),
            Err(error) => {
                let failure = BrokerFailure::from(error);
                slot.failed = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }

    /// Ends this session: the next use of its slot opens a new one. A session that has already ended changes nothing.
    pub async fn end(&self, session: &ProducerSessionId) {
        for (number, slot) in self.slots.iter().enumerate() {
            let mut slot = slot.lock().await;
            if slot.open.as_ref() == Some(session) {
                slot.open = None;
                if let Some(rotation) = &self.rotation {
                    rotation.lock().replace(number);
                }
            }
        }
    }

    /// Ends all sessions: the next use of each slot opens a new one.
    pub async fn end_all(&self) {
        for slot in &self.slots {
            slot.lock().await.open = None;
        }
    }
}
