//! A broker under a fault script.
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use ports::Error;
use ports::broker::{Batch, Broker, BrokerFailure, Position, PublishOutcome, Record};
use ports::partitions::{InstanceId, PartitionNo, ProducerSessionId, Token};

use crate::faults::script::{Call, FaultScript, InjectedFault};

/// A broker with injected faults: every other call reaches the wrapped broker.
pub struct FaultyBroker {
    inner: Arc<dyn Broker>,
    script: FaultScript,
}

impl FaultyBroker {
    /// Wraps a broker with a fault script.
    pub fn wrap(inner: Arc<dyn Broker>, script: FaultScript) -> Self {
        Self { inner, script }
    }
}

#[async_trait]
impl Broker for FaultyBroker {
    async fn open_session(&self, slot: u32) -> Result<ProducerSessionId, Error> {
        self.script.apply(Call::OpenSession, self.inner.open_session(slot)).await
    }

    async fn publish(&self, session: &ProducerSessionId, batch: Batch) -> PublishOutcome {
        let refused: Vec<_> = batch
            .records
            .iter()
            .filter(|(_, record)| self.script.refuses(record))
            .map(|(row, _)| (*row, Error::Rejected(format!("injected: row {row} is refused"))))
            .collect();
        match self.script.next_fault(Call::Publish).await {
            None if refused.is_empty() => self.inner.publish(session, batch).await,
            None => PublishOutcome::RowsRefused(refused),
            Some(InjectedFault::UnknownDone) => match self.inner.publish(session, batch).await {
                PublishOutcome::Committed(_) => {
                    PublishOutcome::Unknown(BrokerFailure::unknown("injected: the reply was lost"))
                }
                other => other,
            },
            Some(InjectedFault::UnknownNotDone) => {
                PublishOutcome::Unknown(BrokerFailure::unknown("injected: the batch was lost"))
            }
            Some(InjectedFault::SessionLost) => match self.inner.fence(session).await {
                Ok(()) => {
                    PublishOutcome::SessionLost(BrokerFailure::unknown(format!("injected: {session} was fenced")))
                }
                Err(error) => PublishOutcome::Unknown(BrokerFailure::unknown(error.to_string())),
            },
            Some(
                InjectedFault::Unreachable
                | InjectedFault::LostByStore
                | InjectedFault::Slow(_)
                | InjectedFault::SlowReply(_)
                | InjectedFault::Hang
                | InjectedFault::Panic,
            ) => {
                let cause = Error::Unreachable("injected: the broker is unreachable".to_owned());
                PublishOutcome::Aborted { cause: cause.into(), reached: false }
            }
        }
    }

    async fn watermark(
        &self,
        partition: PartitionNo,
        fenced: Option<&ProducerSessionId>,
    ) -> Result<Option<Token>, Error> {
        self.script.apply(Call::Watermark, self.inner.watermark(partition, fenced)).await
    }

    async fn fence(&self, session: &ProducerSessionId) -> Result<(), Error> {
        self.script.apply(Call::Fence, self.inner.fence(session)).await
    }

    async fn fence_all(&self) -> Result<BTreeMap<PartitionNo, Token>, Error> {
        self.script.apply(Call::FenceAll, self.inner.fence_all()).await
    }

    async fn remove_sessions(&self, members: &[InstanceId], limit: u32) -> Result<u32, Error> {
        self.inner.remove_sessions(members, limit).await
    }

    async fn append(&self, records: Vec<Record>) -> Result<Vec<Position>, Error> {
        if let Some(record) = records.iter().find(|record| self.script.refuses(record)) {
            return Err(Error::Rejected(format!("injected: a record of {} is refused", record.key)));
        }
        self.script.apply(Call::Append, self.inner.append(records)).await
    }

    async fn recovered(&self) {
        self.script.broker_recovered().await;
    }

    async fn sweep(&self, limit: u32) -> Result<u64, Error> {
        self.inner.sweep(limit).await
    }

    fn record_bytes_max(&self) -> usize {
        self.inner.record_bytes_max()
    }
}
