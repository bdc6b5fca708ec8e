//! One round of Produce requests: everything for one broker in one request, the brokers at the same time.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::options::Compression;
use crate::producer::partition_queues::Chunk;
use crate::producer::sender::OUTAGE_WAIT;
use crate::producer::transactional_producer::{TransactionalProducer, topic_name};
use crate::protocol::connection::CallError;
use crate::protocol::record_batch;
use crate::protocol::response_code::{is_partition_unavailable, is_retriable, produce_error_code};

/// All in-sync replicas must have the records.
const ACKS_ALL: i16 = -1;
/// How long the leader waits for them. Below the time after which a broker counts as lost.
const REPLICATION_TIMEOUT_MS: i32 = 8_000;
/// How long a partition may be without a leader or enough replicas before the transaction is aborted: a new topic has both within a second.
const TRANSITION_MAX: Duration = Duration::from_secs(3);
/// Pause before the leader is looked up again.
const TRANSITION_PAUSE: Duration = Duration::from_millis(30);
/// Age of the metadata of a topic with a failed partition: the partition may work again.
const FAILED_METADATA_MAX_AGE: Duration = Duration::from_secs(1);

/// Outcome of a chunk.
#[derive(Debug)]
pub(crate) enum ChunkOutcome {
    /// The broker has appended its records from this offset on.
    Appended(u64),
    /// The broker refuses them. `invalid` has the indexes of the invalid ones where it named them.
    Refused { code: Code, invalid: Vec<usize> },
    /// The chunk was not sent, in this attempt or an earlier one.
    NotSent(String),
    /// It was sent, and there is no answer.
    Unanswered(String),
}

/// A chunk in the form in which it is sent, again if its partition has just moved to another leader.
struct EncodedChunk<'a> {
    topic: &'a Arc<str>,
    partition: u32,
    batch: Bytes,
    /// It was sent: a leader may append a batch before it answers that it leads the partition no more.
    was_sent: bool,
}

impl TransactionalProducer {
    /// Marks the metadata of topics with failed partitions to be read again soon.
    pub(crate) fn expire_failed_topics(&mut self) {
        for (topic, failed_at) in self.unavailable.failures() {
            self.cluster.expire(&topic, failed_at, FAILED_METADATA_MAX_AGE);
        }
    }

    /// Waits for the leaders of these partitions, and returns those that still have none. Such a partition must not be added to a transaction: the
    /// coordinator could not complete it. Does not wait if all partitions without a leader are already known to be unavailable.
    pub(crate) fn leaderless_after_wait(
        &mut self,
        partitions: &[(Arc<str>, u32)],
        deadline: Instant,
    ) -> Vec<(Arc<str>, u32)> {
        let wait_until = deadline.min(Instant::now() + TRANSITION_MAX);
        loop {
            let is_leaderless =
                |(topic, partition): &&(Arc<str>, u32)| self.cluster.leader(topic, *partition).is_none();
            let leaderless: Vec<_> = partitions.iter().filter(is_leaderless).cloned().collect();
            let all_failed = leaderless.iter().all(|(topic, partition)| self.unavailable.has_failed(topic, *partition));
            let now = Instant::now();
            if all_failed || now + TRANSITION_PAUSE >= wait_until {
                let failed = leaderless.iter();
                failed.for_each(|(topic, partition)| self.unavailable.insert(topic, *partition, None, now));
                return leaderless;
            }
            std::thread::sleep(TRANSITION_PAUSE);
            let topics = || leaderless.iter().map(|(topic, _)| &**topic);
            topics().for_each(|topic| self.cluster.expire(topic, now, Duration::ZERO));
            // A topic that is still unknown has no leader in the next attempt.
            drop(self.cluster.load(topics(), wait_until));
        }
    }

    /// Sends chunks whose partitions belong to the transaction; returns their outcomes in the same order. A chunk that a broker refuses
    /// because it does not lead the partition goes to the new leader, under the same sequence numbers. The wait ends when every partition that
    /// is left has failed since it last took records.
    pub(crate) fn produce(
        &mut self,
        chunks: &[Chunk<'_>],
        compression: Compression,
        deadline: Instant,
    ) -> Vec<ChunkOutcome> {
        let mut encoded: Vec<EncodedChunk<'_>> = chunks.iter().map(|chunk| self.encode(chunk, compression)).collect();
        let mut outcomes: Vec<Option<ChunkOutcome>> = chunks.iter().map(|_| None).collect();
        let wait_until = deadline.min(Instant::now() + TRANSITION_MAX);
        let may_have_new_leader =
            |outcome: &Option<ChunkOutcome>| outcome.as_ref().is_some_and(ChunkOutcome::is_retriable);
        loop {
            self.produce_once(&mut encoded, &mut outcomes, deadline);
            let with_moving_leader =
                || encoded.iter().zip(&outcomes).filter(|(_, outcome)| may_have_new_leader(outcome));
            for (chunk, outcome) in with_moving_leader() {
                match outcome {
                    // The leader has answered: it stays in use while no broker returns newer metadata.
                    Some(outcome) if outcome.lacks_replicas() => {
                        self.cluster.expire(chunk.topic, Instant::now(), Duration::ZERO);
                    }
                    _ => self.cluster.remove(chunk.topic),
                }
            }
            let is_final = |outcome: &Option<ChunkOutcome>| {
                !may_have_new_leader(outcome) && !matches!(outcome, Some(ChunkOutcome::Appended(_)))
            };
            if with_moving_leader().all(|(chunk, _)| self.unavailable.has_failed(chunk.topic, chunk.partition))
                || outcomes.iter().any(is_final)
                || Instant::now() + TRANSITION_PAUSE >= wait_until
            {
                break;
            }
            std::thread::sleep(TRANSITION_PAUSE);
            outcomes.iter_mut().filter(|outcome| may_have_new_leader(outcome)).for_each(|outcome| *outcome = None);
            let topics = encoded.iter().map(|chunk| &**chunk.topic);
            // A topic that is still unknown has no leader in the next attempt.
            drop(self.cluster.load(topics, wait_until));
        }
        let missing = || ChunkOutcome::Unanswered("the response does not contain the partition".into());
        let outcomes: Vec<ChunkOutcome> = outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing)).collect();
        self.record_availability(chunks, &outcomes);
        outcomes
    }

    fn record_availability(&mut self, chunks: &[Chunk<'_>], outcomes: &[ChunkOutcome]) {
        let refused = chunks.iter().zip(outcomes).filter(|(_, outcome)| outcome.lacks_replicas());
        let began = Instant::now();
        // How many replicas are in sync now. Where no broker answers, a later attempt reads it.
        drop(self.cluster.load(refused.map(|(chunk, _)| &*chunk.topic), began + OUTAGE_WAIT));
        let now = Instant::now();
        for (chunk, outcome) in chunks.iter().zip(outcomes) {
            let (topic, partition) = (&chunk.topic, chunk.partition);
            match outcome {
                ChunkOutcome::Appended(_) if self.unavailable.is_empty() => {}
                ChunkOutcome::Appended(_) => {
                    self.unavailable.remove(topic, partition, self.cluster.in_sync(topic, partition));
                }
                outcome if outcome.lacks_replicas() => match self.cluster.in_sync_since(topic, partition, began) {
                    Some(too_few) => self.unavailable.insert(topic, partition, Some(too_few), now),
                    None => self.unavailable.insert_uncounted(topic, partition, now),
                },
                ChunkOutcome::Refused { code, .. } if is_partition_unavailable(*code) => {
                    self.unavailable.insert(topic, partition, None, now);
                }
                _ => {}
            }
        }
    }

    fn encode<'a>(&mut self, chunk: &'a Chunk<'_>, compression: Compression) -> EncodedChunk<'a> {
        let producer = self.take_sequence(&chunk.topic, chunk.partition, chunk.records.len());
        let batch = record_batch::encode(&chunk.records, producer, compression);
        EncodedChunk { topic: &chunk.topic, partition: chunk.partition, batch, was_sent: false }
    }

    /// Sends the chunks without an outcome once.
    fn produce_once(
        &mut self,
        chunks: &mut [EncodedChunk<'_>],
        outcomes: &mut [Option<ChunkOutcome>],
        deadline: Instant,
    ) {
        let mut in_flight = Vec::new();
        for (address, indexes) in self.by_leader(chunks, outcomes) {
            let request = self.request(chunks, &indexes);
            match self.cluster.send(&address, &request, deadline) {
                Ok(sent) => {
                    indexes.iter().for_each(|index| chunks[*index].was_sent = true);
                    in_flight.push((address, indexes, sent));
                }
                Err(error) => set_failed(outcomes, chunks, &indexes, &error),
            }
        }
        for (address, indexes, sent) in in_flight {
            match self.cluster.receive(&address, sent, deadline) {
                Ok(response) => {
                    for index in indexes {
                        outcomes[index] = partition_response(&response, &chunks[index]).map(chunk_outcome);
                    }
                }
                Err(error) => set_failed(outcomes, chunks, &indexes, &error),
            }
        }
        for (chunk, outcome) in chunks.iter().zip(outcomes) {
            // A connection that failed may mean that the partition has another leader now.
            if matches!(outcome, Some(ChunkOutcome::NotSent(_) | ChunkOutcome::Unanswered(_))) {
                self.cluster.remove(chunk.topic);
            }
        }
    }

    /// The indexes of the chunks for each broker. A chunk without a leader gets its outcome.
    fn by_leader(
        &self,
        chunks: &[EncodedChunk<'_>],
        outcomes: &mut [Option<ChunkOutcome>],
    ) -> BTreeMap<String, Vec<usize>> {
        let mut indexes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, chunk) in
            chunks.iter().enumerate().filter(|(index, _)| outcomes[*index].is_none()).collect::<Vec<_>>()
        {
            match self.cluster.leader(chunk.topic, chunk.partition) {
                Some(leader) => indexes.entry(leader.to_owned()).or_default().push(index),
                None => {
                    outcomes[index] =
                        Some(ChunkOutcome::Refused { code: Code::LeaderNotAvailable, invalid: Vec::new() });
                }
            }
        }
        indexes
    }

    fn request(&self, chunks: &[EncodedChunk<'_>], indexes: &[usize]) -> ProduceRequest {
        let mut topics: Vec<TopicProduceData> = Vec::new();
        for chunk in indexes.iter().map(|index| &chunks[*index]) {
            let data = PartitionProduceData::default()
                .with_index(chunk.partition as i32)
                .with_records(Some(chunk.batch.clone()));
            match topics.iter_mut().find(|topic| topic.name.as_str() == &**chunk.topic) {
                Some(topic) => topic.partition_data.push(data),
                None => {
                    let topic = TopicProduceData::default().with_name(topic_name(chunk.topic));
                    topics.push(topic.with_partition_data(vec![data]));
                }
            }
        }
        ProduceRequest::default()
            .with_transactional_id(Some(self.transactional_id()))
            .with_acks(ACKS_ALL)
            .with_timeout_ms(REPLICATION_TIMEOUT_MS)
            .with_topic_data(topics)
    }
}

impl ChunkOutcome {
    /// Whether the partition may take the chunk in a moment.
    fn is_retriable(&self) -> bool {
        matches!(self, ChunkOutcome::Refused { code, .. } if is_retriable(*code))
    }

    /// Whether the partition's leader answered that too few replicas are in sync.
    fn lacks_replicas(&self) -> bool {
        matches!(self, ChunkOutcome::Refused { code: Code::NotEnoughReplicas, .. })
    }
}

fn set_failed(
    outcomes: &mut [Option<ChunkOutcome>],
    chunks: &[EncodedChunk<'_>],
    indexes: &[usize],
    error: &CallError,
) {
    for index in indexes {
        outcomes[*index] = Some(match error {
            CallError::NotSent(reason) | CallError::Refused(reason) if !chunks[*index].was_sent => {
                ChunkOutcome::NotSent(reason.clone())
            }
            CallError::NotSent(reason) | CallError::Refused(reason) | CallError::Unanswered(reason) => {
                ChunkOutcome::Unanswered(reason.clone())
            }
        });
    }
}

fn partition_response<'a>(
    response: &'a ProduceResponse,
    chunk: &EncodedChunk<'_>,
) -> Option<&'a PartitionProduceResponse> {
    let topic = response.responses.iter().find(|topic| topic.name.as_str() == &**chunk.topic)?;
    topic.partition_responses.iter().find(|partition| partition.index == chunk.partition as i32)
}

fn chunk_outcome(response: &PartitionProduceResponse) -> ChunkOutcome {
    match produce_error_code(response.error_code, response.error_message.as_deref()) {
        None => ChunkOutcome::Appended(response.base_offset.unsigned_abs()),
        Some(code) => {
            let invalid = response.record_errors.iter().filter_map(|error| usize::try_from(error.batch_index).ok());
            ChunkOutcome::Refused { code, invalid: invalid.collect() }
        }
    }
}
