//! Our lanes to the broker: a partition is pinned to one while that one's session lives. A claim belongs to the lane session that recorded it.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ports::Error;
use ports::broker::Broker;
use ports::partitions::{PartitionNo, ProducerSessionId};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How partitions share lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// Spread over so many: trouble of one disturbs no other. For a broker whose lanes cost nothing.
    Apart(u32),
    /// All on one of so many, and on the next once its session is over. For a broker where each transaction costs something for every
    /// partition of a topic, whatever it carries. The next one has an id of its own, so that who fences the last one does not end it.
    Together(u32),
}

/// The lanes of this instance, opened when first needed and anew when their session is over.
pub struct Lanes {
    broker: Arc<dyn Broker>,
    slots: Vec<Mutex<Slot>>,
    pinning: Pinning,
    /// The slot that is at work, where partitions share one.
    at_work: AtomicUsize,
}

#[derive(Default)]
struct Slot {
    open: Option<ProducerSessionId>,
    /// When an attempt to open last failed, and how.
    failed: Option<(Instant, Error)>,
}

impl Lanes {
    /// Lanes, none open yet.
    pub fn new(broker: Arc<dyn Broker>, pinning: Pinning) -> Self {
        let (Pinning::Apart(lanes) | Pinning::Together(lanes)) = pinning;
        let slots = (0..lanes.max(1)).map(|_| Mutex::default()).collect();
        Self { broker, slots, pinning, at_work: AtomicUsize::new(0) }
    }

    fn slot_of(&self, partition: PartitionNo) -> usize {
        let number = match self.pinning {
            Pinning::Apart(_) => partition.0 as usize,
            Pinning::Together(_) => self.at_work.load(Relaxed),
        };
        number % self.slots.len()
    }

    /// The session of this partition's lane, opened if there is none. One caller opens, the others wait for it, and share its failure:
    /// one after another they would wait for a broker that is away.
    ///
    /// # Errors
    /// The broker's; nothing is open then.
    pub async fn session(&self, partition: PartitionNo) -> Result<ProducerSessionId, Error> {
        let slot = self.slot_of(partition);
        let asked = Instant::now();
        let mut held = self.slots[slot].lock().await;
        match &*held {
            Slot { open: Some(lane), .. } => return Ok(lane.clone()),
            Slot { failed: Some((at, error)), .. } if *at > asked => return Err(error.clone()),
            Slot { .. } => {}
        }
        let number = u32::try_from(slot).map_err(|_| Error::Broken("more lanes than numbers".into()))?;
        match self.broker.open_session(number).await {
            Ok(lane) => Ok(held.open.insert(lane).clone()),
            Err(error) => {
                held.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// This session is over: whoever needs the lane next opens a new one. Naming one that is over already changes nothing.
    pub async fn over(&self, lane: &ProducerSessionId) {
        for slot in &self.slots {
            let mut held = slot.lock().await;
            if held.open.as_ref() == Some(lane) {
                held.open = None;
                self.at_work.fetch_add(1, Relaxed);
            }
        }
    }
}
