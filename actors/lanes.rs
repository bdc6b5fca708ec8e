//! Our lanes to the broker: a partition is pinned to one while it is owned. A claim belongs to the lane session that recorded it.
use std::sync::Arc;

use ports::Error;
use ports::broker::Broker;
use ports::partitions::{LaneId, PartitionNo};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The lanes of this instance, opened when first needed and anew when their session is over.
pub struct Lanes {
    broker: Arc<dyn Broker>,
    slots: Vec<Mutex<Slot>>,
}

#[derive(Default)]
struct Slot {
    open: Option<LaneId>,
    /// When an attempt to open last failed, and how.
    failed: Option<(Instant, Error)>,
}

impl Lanes {
    /// So many lanes, none open yet.
    pub fn new(broker: Arc<dyn Broker>, lanes: u32) -> Self {
        Self { broker, slots: (0..lanes.max(1)).map(|_| Mutex::default()).collect() }
    }

    /// The session of this partition's lane, opened if there is none. One caller opens, the others wait for it, and share its failure:
    /// one after another they would wait for a broker that is away.
    ///
    /// # Errors
    /// The broker's; nothing is open then.
    pub async fn session(&self, partition: PartitionNo) -> Result<LaneId, Error> {
        let slot = partition.0 as usize % self.slots.len();
        let asked = Instant::now();
        let mut held = self.slots[slot].lock().await;
        match &*held {
            Slot { open: Some(lane), .. } => return Ok(lane.clone()),
            Slot { failed: Some((at, error)), .. } if *at > asked => return Err(error.clone()),
            Slot { .. } => {}
        }
        let number = u32::try_from(slot).map_err(|_| Error::Broken("more lanes than numbers".into()))?;
        match self.broker.open_lane(number).await {
            Ok(lane) => Ok(held.open.insert(lane).clone()),
            Err(error) => {
                held.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// This session is over: whoever needs the lane next opens a new one. Naming one that is over already changes nothing.
    pub async fn over(&self, lane: &LaneId) {
        for slot in &self.slots {
            let mut held = slot.lock().await;
            if held.open.as_ref() == Some(lane) {
                held.open = None;
            }
        }
    }
}
