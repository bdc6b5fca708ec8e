//! Our lanes to the broker: a partition is pinned to one while it is owned. A claim belongs to the lane session that recorded it.
use std::sync::Arc;

use ports::Error;
use ports::broker::Broker;
use ports::partitions::{LaneId, PartitionNo};
use tokio::sync::Mutex;

/// The lanes of this instance, opened when first needed and anew when their session is over.
pub struct Lanes {
    broker: Arc<dyn Broker>,
    slots: Vec<Mutex<Option<LaneId>>>,
}

impl Lanes {
    /// So many lanes, none open yet.
    pub fn new(broker: Arc<dyn Broker>, lanes: u32) -> Self {
        Self { broker, slots: (0..lanes.max(1)).map(|_| Mutex::new(None)).collect() }
    }

    /// The session of this partition's lane, opened if there is none. One caller opens, the others wait for it.
    ///
    /// # Errors
    /// The broker's; nothing is open then.
    pub async fn session(&self, partition: PartitionNo) -> Result<LaneId, Error> {
        let slot = partition.0 as usize % self.slots.len();
        let mut open = self.slots[slot].lock().await;
        if let Some(lane) = &*open {
            return Ok(lane.clone());
        }
        let number = u32::try_from(slot).map_err(|_| Error::Broken("more lanes than numbers".into()))?;
        let lane = self.broker.open_lane(number).await?;
        Ok(open.insert(lane).clone())
    }

    /// This session is over: whoever needs the lane next opens a new one. Naming one that is over already changes nothing.
    pub async fn over(&self, lane: &LaneId) {
        for slot in &self.slots {
            let mut open = slot.lock().await;
            if open.as_ref() == Some(lane) {
                *open = None;
            }
        }
    }
}
