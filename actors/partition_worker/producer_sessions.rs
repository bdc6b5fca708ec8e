//! Sessions of this instance's transactional producers. A partition keeps one session while that lives; a claim belongs to the session
//! that recorded it.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ports::Error;
use ports::broker::Broker;
use ports::partitions::{PartitionNo, ProducerSessionId};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How partitions share producer slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProducerSlots {
    /// Partitions spread over this many slots: a failure in one slot disturbs no other. For a broker whose producers cost nothing.
    Spread(u32),
    /// All partitions use one of this many slots, and the next one once its session has ended. For a broker where each transaction has a
    /// price for every partition of a topic, whatever it carries. The next slot has another transactional id, so that fencing the ended
    /// session does not end the new one.
    Shared(u32),
}

/// The sessions, each opened on its first use and reopened after its end.
pub struct ProducerSessions {
    broker: Arc<dyn Broker>,
    slots: Vec<Mutex<Slot>>,
    assignment: ProducerSlots,
    /// The slot in use, where partitions share one.
    shared: AtomicUsize,
}

#[derive(Default)]
struct Slot {
    open: Option<ProducerSessionId>,
    /// Time and error of the last failed attempt to open.
    failed: Option<(Instant, Error)>,
}

impl ProducerSessions {
    /// All slots, none of them open yet.
    pub fn new(broker: Arc<dyn Broker>, assignment: ProducerSlots) -> Self {
        let (ProducerSlots::Spread(count) | ProducerSlots::Shared(count)) = assignment;
        let slots = (0..count.max(1)).map(|_| Mutex::default()).collect();
        Self { broker, slots, assignment, shared: AtomicUsize::new(0) }
    }

    fn slot_of(&self, partition: PartitionNo) -> usize {
        let number = match self.assignment {
            ProducerSlots::Spread(_) => partition.0 as usize,
            ProducerSlots::Shared(_) => self.shared.load(Relaxed),
        };
        number % self.slots.len()
    }

    /// The session of this partition's slot, opened if there is none. One caller opens; concurrent callers wait for it and share its
    /// failure, because one attempt after another would multiply the wait for a broker that is down.
    ///
    /// # Errors
    /// The broker's; the slot stays closed.
    pub async fn open(&self, partition: PartitionNo) -> Result<ProducerSessionId, Error> {
        let number = self.slot_of(partition);
        let requested = Instant::now();
        let mut slot = self.slots[number].lock().await;
        match &*slot {
            Slot { open: Some(session), .. } => return Ok(session.clone()),
            Slot { failed: Some((at, error)), .. } if *at > requested => return Err(error.clone()),
            Slot { .. } => {}
        }
        let number = u32::try_from(number).map_err(|_| Error::Broken("a producer slot's number exceeds u32".into()))?;
        match self.broker.open_session(number).await {
            Ok(session) => Ok(slot.open.insert(session).clone()),
            Err(error) => {
                slot.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Ends this session: the next use of its slot opens a new one. A session that has already ended changes nothing.
    pub async fn end(&self, session: &ProducerSessionId) {
        for slot in &self.slots {
            let mut slot = slot.lock().await;
            if slot.open.as_ref() == Some(session) {
                slot.open = None;
                self.shared.fetch_add(1, Relaxed);
            }
        }
    }
}
