//! The broker of the reference: a topic partition is a list, and a session is valid while its slot names it.
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use ports::Error;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::topics::{TopicReader, TopicView};
use ports::broker::{Batch, Broker, BrokerFailure, Position, PublishOutcome, Record};
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, ProducerSessionId, Token};

use crate::murmur2::topic_partition;
use crate::reference::state::{Reference, State};

/// The number of partitions of each topic.
const TOPIC_PARTITIONS: u32 = 4;
const RECORD_BYTES_MAX: usize = 64 * 1024;

impl State {
    fn append(&mut self, record: Record) -> Position {
        let topic = Arc::clone(&record.topic);
        let partitions = self.topic(&topic);
        let partition = topic_partition(record.key.as_bytes(), TOPIC_PARTITIONS);
        let log = &mut partitions[partition as usize];
        log.push(record);
        Position { topic, partition, offset: log.len() as u64 - 1 }
    }

    pub(crate) fn topic(&mut self, topic: &str) -> &mut Vec<Vec<Record>> {
        self.topics.entry(topic.to_owned()).or_insert_with(|| (0..TOPIC_PARTITIONS).map(|_| Vec::new()).collect())
    }

    fn publish(&mut self, session: &ProducerSessionId, batch: Batch) -> PublishOutcome {
        if !self.sessions.values().any(|valid| valid == session) {
            return PublishOutcome::SessionLost(BrokerFailure::unknown(format!("{session} was fenced")));
        }
        if batch.time_left.is_zero() {
            let cause = Error::Unreachable(format!("batch {}: its lease has expired", batch.token));
            return PublishOutcome::Aborted { cause: cause.into(), reached: false };
        }
        let refused: Vec<(RowId, Error)> = batch
            .records
            .iter()
            .filter(|(_, record)| record.value.len() > RECORD_BYTES_MAX)
            .map(|(row, _)| (*row, Error::Rejected(format!("row {row} is too large"))))
            .collect();
        if !refused.is_empty() {
            return PublishOutcome::RowsRefused(refused);
        }
        let watermark = self.watermarks.entry(batch.partition).or_default();
        *watermark = batch.token.max(*watermark);
        PublishOutcome::Committed(batch.records.into_iter().map(|(row, record)| (row, self.append(record))).collect())
    }
}

#[async_trait]
impl Broker for Reference {
    async fn open_session(&self, slot: u32) -> Result<ProducerSessionId, Error> {
        let mut state = self.state.lock();
        state.sessions_opened += 1;
        let session = ProducerSessionId(format!("session-{slot}-{}", state.sessions_opened).into());
        state.sessions.insert(slot, session.clone());
        Ok(session)
    }

    async fn publish(&self, session: &ProducerSessionId, batch: Batch) -> PublishOutcome {
        self.state.lock().publish(session, batch)
    }

    async fn watermark(
        &self,
        partition: PartitionNo,
        _fenced: Option<&ProducerSessionId>,
    ) -> Result<Option<Token>, Error> {
        Ok(self.state.lock().watermarks.get(&partition).copied())
    }

    async fn fence(&self, session: &ProducerSessionId) -> Result<(), Error> {
        self.state.lock().sessions.retain(|_, valid| valid != session);
        Ok(())
    }

    async fn fence_all(&self) -> Result<BTreeMap<PartitionNo, Token>, Error> {
        let mut state = self.state.lock();
        state.sessions.clear();
        Ok(state.watermarks.iter().map(|(partition, token)| (*partition, *token)).collect())
    }

    async fn append(&self, records: Vec<Record>) -> Result<Vec<Position>, Error> {
        if let Some(record) = records.iter().find(|record| record.value.len() > RECORD_BYTES_MAX) {
            return Err(Error::Rejected(format!("a record of {} for {} is too large", record.key, record.topic)));
        }
        let mut state = self.state.lock();
        Ok(records.into_iter().map(|record| state.append(record)).collect())
    }

    fn record_bytes_max(&self) -> usize {
        RECORD_BYTES_MAX
    }
}

#[async_trait]
impl TopicReader for Reference {
    async fn list(&self) -> Result<Vec<TopicView>, Error> {
        let state = self.state.lock();
        let view = |(name, logs): (&String, &Vec<Vec<Record>>)| TopicView {
            name: name.clone(),
            partitions: logs.iter().map(|log| 0..log.len() as u64).collect(),
        };
        Ok(state.topics.iter().map(view).collect())
    }

    async fn read(&self, topic: &str, partition: u32, offset: u64, limit: u32) -> Result<Vec<ConsumerRecord>, Error> {
        let state = self.state.lock();
        let log = state.topics.get(topic).and_then(|logs| logs.get(partition as usize));
        let records = (0..).zip(log.into_iter().flatten()).filter(|(at, _)| *at >= offset).take(limit as usize);
        Ok(records.map(|(at, record)| consumer_record(record, partition, at)).collect())
    }

    async fn group_offsets(&self, group: &str, topic: &str) -> Result<Vec<Option<u64>>, Error> {
        let state = self.state.lock();
        let partitions = state.topics.get(topic).map_or(0, Vec::len) as u32;
        let group = state.groups.get(group);
        let next = |partition| group?.get(&(topic.to_owned(), partition)).copied();
        Ok((0..partitions).map(next).collect())
    }
}

pub(crate) fn consumer_record(record: &Record, partition: u32, offset: u64) -> ConsumerRecord {
    let position = Position { topic: Arc::clone(&record.topic), partition, offset };
    ConsumerRecord { position, record: record.clone() }
}
