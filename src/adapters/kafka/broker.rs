//! `Broker`: batches go through lanes, records without a watermark through a lane of their own.
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use ports::Error;
use ports::broker::{Batch, Broker, Position, Published, Record};
use ports::partitions::{PartitionNo, ProducerSessionId, Token};
use tokio::sync::oneshot;

use crate::look::Ask;
use crate::open::{Kafka, aside};
use crate::parcel::Parcel;

/// The slot of the lane that appends.
const APPEND: &str = "append";

#[async_trait]
impl Broker for Kafka {
    async fn open_session(&self, slot: u32) -> Result<ProducerSessionId, Error> {
        self.inner.keeper.ready().await?;
        let inner = Arc::clone(&self.inner);
        aside("kafka-open-lane", move || inner.lanes.open(&slot.to_string())).await
    }

    async fn publish(&self, lane: &ProducerSessionId, batch: Batch) -> Published {
        let (answer, told) = oneshot::channel();
        self.inner.lanes.hand_over(lane, Parcel::of_batch(batch, answer));
        told.await
            .unwrap_or_else(|_| Published::SessionLost(format!("the session {lane} ended in the middle of its work")))
    }

    async fn watermark(&self, partition: PartitionNo) -> Result<Option<Token>, Error> {
        self.inner.keeper.ready().await?;
        self.inner.watermarks.ask(|answer| Ask::Watermark { partition: partition.0, answer }).await
    }

    async fn fence(&self, lane: &ProducerSessionId) -> Result<(), Error> {
        self.inner.keeper.ready().await?;
        let (inner, lane) = (Arc::clone(&self.inner), lane.clone());
        aside("kafka-fence", move || inner.lanes.fence(&lane)).await
    }

    async fn append(&self, records: Vec<Record>) -> Result<Vec<Position>, Error> {
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let lane = self.append_lane().await?;
        let (answer, told) = oneshot::channel();
        let until = Instant::now() + self.inner.options.deliver_within;
        self.inner.lanes.hand_over(&lane, Parcel::of_records(records, until, answer));
        match told.await.unwrap_or_else(|_| Published::Unknown("the lane that appends ended".into())) {
            Published::Committed(rows) => Ok(rows.into_iter().map(|(_, position)| position).collect()),
            Published::Aborted { refused, cause, .. } => {
                let first = refused.into_iter().next().map(|(_, error)| error);
                Err(first.or(cause).unwrap_or_else(|| Error::Unreachable("an append was aborted".into())))
            }
            Published::Partial { .. } => Err(Error::Unknown("only some of the records could be appended".into())),
            Published::Unknown(said) | Published::SessionLost(said) => Err(Error::Unknown(said)),
        }
    }

    fn record_bytes_max(&self) -> usize {
        self.inner.options.record_bytes_max
    }
}

impl Kafka {
    /// The living lane that appends, opened if there is none. One caller opens, the others wait for it.
    async fn append_lane(&self) -> Result<ProducerSessionId, Error> {
        let mut open = self.inner.append.lock().await;
        if let Some(lane) = &*open
            && self.inner.lanes.lives(lane)
        {
            return Ok(lane.clone());
        }
        self.inner.keeper.ready().await?;
        let inner = Arc::clone(&self.inner);
        let lane = aside("kafka-open-append", move || inner.lanes.open(APPEND)).await?;
        Ok(open.insert(lane).clone())
    }
}
