//! A broker, and its topics, with a flaw.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::topics::{TopicReader, TopicView};
use ports::broker::{Batch, Broker, Position, PublishOutcome, Record};
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, ProducerSessionId, Token};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenBroker {
    pub(crate) inner: Arc<dyn Broker>,
    pub(crate) flaw: Flaw,
}

impl BrokenBroker {
    fn alter(&self, row: RowId, record: &mut Record) {
        match self.flaw {
            Flaw::DropsHeaders => record.headers.clear(),
            Flaw::ScattersKeys => record.key = format!("{}-{row}", record.key).into(),
            _ => {}
        }
    }

    /// Appends the records one by one, without those that the real broker refuses.
    async fn append_each(&self, records: Vec<(RowId, Record)>) -> Vec<(RowId, Position)> {
        let mut appended = Vec::new();
        for (row, record) in records {
            if let Ok(positions) = self.inner.append(vec![record]).await {
                appended.extend(positions.into_iter().map(|position| (row, position)));
            }
        }
        appended
    }
}

#[async_trait]
impl Broker for BrokenBroker {
    async fn open_session(&self, slot: u32) -> Result<ProducerSessionId, Error> {
        self.inner.open_session(slot).await
    }
    async fn publish(&self, session: &ProducerSessionId, mut batch: Batch) -> PublishOutcome {
        batch.records.iter_mut().for_each(|(row, record)| self.alter(*row, record));
        if self.flaw == Flaw::CommitsAfterLease {
            batch.time_left = Duration::from_secs(3_600);
        }
        match (self.inner.publish(session, batch.clone()).await, self.flaw) {
            (PublishOutcome::SessionLost(_), Flaw::PublishesAfterFence) => {
                PublishOutcome::Committed(self.append_each(batch.records).await)
            }
            (
                aborted @ (PublishOutcome::RowsRefused(_) | PublishOutcome::Aborted { .. }),
                Flaw::ShowsAbortedRecords,
            ) => {
                self.append_each(batch.records).await;
                aborted
            }
            (published, _) => published,
        }
    }
    async fn watermark(
        &self,
        partition: PartitionNo,
        fenced: Option<&ProducerSessionId>,
    ) -> Result<Option<Token>, Error> {
        let watermark = self.inner.watermark(partition, fenced).await?;
        Ok(watermark.filter(|_| self.flaw != Flaw::HidesWatermark))
    }
    async fn fence(&self, session: &ProducerSessionId) -> Result<(), Error> {
        self.inner.fence(session).await
    }
    async fn fence_all(&self) -> Result<BTreeMap<PartitionNo, Token>, Error> {
        match self.flaw {
            Flaw::FencesNoSessionInAll => {
                let mut watermarks = BTreeMap::new();
                for partition in (0..8).map(PartitionNo) {
                    watermarks.extend(self.inner.watermark(partition, None).await?.map(|token| (partition, token)));
                }
                Ok(watermarks)
            }
            Flaw::ReturnsNoWatermarkOfAll => self.inner.fence_all().await.map(|_| BTreeMap::new()),
            _ => self.inner.fence_all().await,
        }
    }
    async fn append(&self, records: Vec<Record>) -> Result<Vec<Position>, Error> {
        let result = self.inner.append(records.clone()).await;
        if result.is_err() && self.flaw == Flaw::AppendsPartially {
            self.append_each((0..).zip(records).collect()).await;
        }
        result
    }
    fn record_bytes_max(&self) -> usize {
        self.inner.record_bytes_max()
    }
}

pub(crate) struct BrokenTopics {
    pub(crate) inner: Arc<dyn TopicReader>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl TopicReader for BrokenTopics {
    async fn list(&self) -> Result<Vec<TopicView>, Error> {
        let mut views = self.inner.list().await?;
        if self.flaw == Flaw::ListsUnsorted {
            views.reverse();
        }
        Ok(views)
    }
    async fn read(&self, topic: &str, partition: u32, offset: u64, limit: u32) -> Result<Vec<ConsumerRecord>, Error> {
        let offset = if self.flaw == Flaw::ReadIgnoresOffset { 0 } else { offset };
        let limit = if self.flaw == Flaw::ReadIgnoresLimit { 10_000 } else { limit };
        self.inner.read(topic, partition, offset, limit).await
    }
    async fn group_offsets(&self, group: &str, topic: &str) -> Result<Vec<Option<u64>>, Error> {
        let group = if self.flaw == Flaw::GroupOffsetsOfAnotherGroup { "another" } else { group };
        self.inner.group_offsets(group, topic).await
    }
}
