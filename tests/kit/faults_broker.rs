//! A broker that plays a script.
use std::sync::Arc;

use async_trait::async_trait;
use ports::Error;
use ports::broker::{Batch, Broker, Position, Published, Record};
use ports::partitions::{PartitionNo, ProducerSessionId, Token};

use crate::faults::{Call, Mishap, Script};

/// Around a real broker: what the script does not spoil is as real as the broker inside.
pub struct FaultyBroker {
    real: Arc<dyn Broker>,
    script: Script,
}

impl FaultyBroker {
    /// This broker under this script.
    pub fn around(real: Arc<dyn Broker>, script: Script) -> Self {
        Self { real, script }
    }
}

#[async_trait]
impl Broker for FaultyBroker {
    async fn open_session(&self, slot: u32) -> Result<ProducerSessionId, Error> {
        self.script.around(Call::OpenLane, self.real.open_session(slot)).await
    }

    async fn publish(&self, lane: &ProducerSessionId, batch: Batch) -> Published {
        let refused: Vec<_> = batch
            .records
            .iter()
            .filter(|(_, record)| self.script.refuses(record))
            .map(|(row, _)| (*row, Error::Rejected(format!("injected: row {row} is refused"))))
            .collect();
        match self.script.meet(Call::Publish).await {
            None if refused.is_empty() => self.real.publish(lane, batch).await,
            None => Published::Aborted { refused, cause: None, reached: true },
            Some(Mishap::UnknownDone) => match self.real.publish(lane, batch).await {
                Published::Committed(_) => Published::Unknown("injected: the answer was lost".to_owned()),
                other => other,
            },
            Some(Mishap::UnknownNotDone) => Published::Unknown("injected: the batch was lost".to_owned()),
            Some(Mishap::LaneLost) => match self.real.fence(lane).await {
                Ok(()) => Published::SessionLost(format!("injected: {lane} was fenced")),
                Err(error) => Published::Unknown(error.to_string()),
            },
            Some(Mishap::Unreachable | Mishap::Slow(_) | Mishap::Hang | Mishap::Panic) => {
                let cause = Error::Unreachable("injected: no broker".to_owned());
                Published::Aborted { refused: Vec::new(), cause: Some(cause), reached: false }
            }
        }
    }

    async fn watermark(&self, partition: PartitionNo) -> Result<Option<Token>, Error> {
        self.script.around(Call::Watermark, self.real.watermark(partition)).await
    }

    async fn fence(&self, lane: &ProducerSessionId) -> Result<(), Error> {
        self.script.around(Call::Fence, self.real.fence(lane)).await
    }

    async fn append(&self, records: Vec<Record>) -> Result<Vec<Position>, Error> {
        if let Some(record) = records.iter().find(|record| self.script.refuses(record)) {
            return Err(Error::Rejected(format!("injected: a record of {} is refused", record.key)));
        }
        self.script.around(Call::Append, self.real.append(records)).await
    }

    async fn sweep(&self, limit: u32) -> Result<u64, Error> {
        self.real.sweep(limit).await
    }

    fn record_bytes_max(&self) -> usize {
        self.real.record_bytes_max()
    }
}
