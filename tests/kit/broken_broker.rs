//! Brokers that are wrong on purpose.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::broker::{Batch, Broker, Position, Published, Record};
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, ProducerSessionId, Token};
use ports::source::{ConsumerGroups, Delivery, GroupMember, Lag};
use ports::topics::{TopicReader, TopicView};

use crate::broken::Flaw;

pub(crate) struct BrokenBroker {
    pub(crate) real: Arc<dyn Broker>,
    pub(crate) flaw: Flaw,
}

impl BrokenBroker {
    fn bend(&self, row: RowId, record: &mut Record) {
        match self.flaw {
            Flaw::DropsHeaders => record.headers.clear(),
            Flaw::ScattersKeys => record.key = format!("{}-{row}", record.key).into(),
            _ => {}
        }
    }

    /// Past whatever the real broker refuses.
    async fn smuggle(&self, records: Vec<(RowId, Record)>) -> Vec<(RowId, Position)> {
        let mut gone = Vec::new();
        for (row, record) in records {
            if let Ok(positions) = self.real.append(vec![record]).await {
                gone.extend(positions.into_iter().map(|position| (row, position)));
            }
        }
        gone
    }
}

#[async_trait]
impl Broker for BrokenBroker {
    async fn open_session(&self, slot: u32) -> Result<ProducerSessionId, Error> {
        self.real.open_session(slot).await
    }
    async fn publish(&self, lane: &ProducerSessionId, mut batch: Batch) -> Published {
        batch.records.iter_mut().for_each(|(row, record)| self.bend(*row, record));
        if self.flaw == Flaw::OutlivesItsLease {
            batch.time_left = Duration::from_secs(3_600);
        }
        match (self.real.publish(lane, batch.clone()).await, self.flaw) {
            (Published::SessionLost(_), Flaw::PublishesBehindTheFence) => {
                Published::Committed(self.smuggle(batch.records).await)
            }
            (aborted @ Published::Aborted { .. }, Flaw::ShowsWhatWasAborted) => {
                self.smuggle(batch.records).await;
                aborted
            }
            (published, _) => published,
        }
    }
    async fn watermark(&self, partition: PartitionNo) -> Result<Option<Token>, Error> {
        let watermark = self.real.watermark(partition).await?;
        Ok(watermark.filter(|_| self.flaw != Flaw::ForgetsTheWatermark))
    }
    async fn fence(&self, lane: &ProducerSessionId) -> Result<(), Error> {
        self.real.fence(lane).await
    }
    async fn append(&self, records: Vec<Record>) -> Result<Vec<Position>, Error> {
        let answer = self.real.append(records.clone()).await;
        if answer.is_err() && self.flaw == Flaw::AppendsHalf {
            self.smuggle((0..).zip(records).collect()).await;
        }
        answer
    }
    fn record_bytes_max(&self) -> usize {
        self.real.record_bytes_max()
    }
}

pub(crate) struct BrokenSources {
    pub(crate) real: Arc<dyn ConsumerGroups>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl ConsumerGroups for BrokenSources {
    async fn join(
        &self,
        group: &str,
        topics: &[String],
        member: u32,
        members: u32,
    ) -> Result<Arc<dyn GroupMember>, Error> {
        let real = self.real.join(group, topics, member, members).await?;
        Ok(Arc::new(BrokenSource { real, flaw: self.flaw }))
    }
}

struct BrokenSource {
    real: Arc<dyn GroupMember>,
    flaw: Flaw,
}

#[async_trait]
impl GroupMember for BrokenSource {
    async fn poll(&self, limit: u32, patience: Duration) -> Result<Vec<Delivery>, Error> {
        let limit = if self.flaw == Flaw::IgnoresTheLimit { 1_000 } else { limit };
        let deliveries = self.real.poll(limit, patience).await?;
        if self.flaw == Flaw::AcknowledgesWhatItHandsOut {
            let upto: Vec<Position> = deliveries.iter().map(|delivery| delivery.position.clone()).collect();
            self.real.acknowledge(&upto).await?;
        }
        Ok(deliveries)
    }
    async fn acknowledge(&self, upto: &[Position]) -> Result<(), Error> {
        self.real.acknowledge(upto).await
    }
    async fn rewind(&self) -> Result<(), Error> {
        if self.flaw == Flaw::NeverRewinds { Ok(()) } else { self.real.rewind().await }
    }
    async fn pause(&self, from: &Position, resume_after: Duration) -> Result<(), Error> {
        if self.flaw == Flaw::NeverPauses { Ok(()) } else { self.real.pause(from, resume_after).await }
    }
    async fn lag(&self) -> Result<Vec<Lag>, Error> {
        if self.flaw == Flaw::HasNoLag { Ok(Vec::new()) } else { self.real.lag().await }
    }
}

pub(crate) struct BrokenTopics {
    pub(crate) real: Arc<dyn TopicReader>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl TopicReader for BrokenTopics {
    async fn list(&self) -> Result<Vec<TopicView>, Error> {
        let mut views = self.real.list().await?;
        if self.flaw == Flaw::ListsInAnyOrder {
            views.reverse();
        }
        Ok(views)
    }
    async fn read(&self, topic: &str, partition: u32, offset: u64, limit: u32) -> Result<Vec<Delivery>, Error> {
        let offset = if self.flaw == Flaw::ReadsFromTheStart { 0 } else { offset };
        let limit = if self.flaw == Flaw::ReadsWithoutEnd { 10_000 } else { limit };
        self.real.read(topic, partition, offset, limit).await
    }
}
