//! One transaction of a session: the records of some batches and a watermark for each, committed or aborted together.
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ports::Error;
use ports::broker::Record;
use ports::outbox::RowId;
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::error::map_code;
use crate::options::Options;
use crate::producer::abort_report::{AbortReport, find_causes};
use crate::producer::coordinator::RetryLimits;
use crate::producer::delivery_reports::DeliveryOutcome;
use crate::producer::partition_queues::{Chunk, PartitionQueues};
use crate::producer::produce::ChunkOutcome;
use crate::producer::sender::OUTAGE_WAIT;
use crate::producer::session_batch::SessionBatch;
use crate::producer::transactional_producer::{StepError, TransactionalProducer};
use crate::protocol::record_batch::RecordParts;

/// Bytes in a record batch for the key and the headers of a record with the largest value.
const KEY_AND_HEADERS_BYTES: usize = 64 * 1024;
/// Shortest time for a commit, also when the lease is about to end: an aborted commit costs a fence.
const COMMIT_TIME_MIN: Duration = Duration::from_millis(500);
/// Longest commit, in delivery timeouts. With the defaults it lasts as long as a lease.
const COMMIT_DELIVERY_TIMEOUTS: u32 = 3;

/// The limits of a transaction, and the topic partition of its watermarks.
pub(crate) struct TransactionContext<'a> {
    pub(crate) options: &'a Options,
    /// The full name of the watermark topic.
    pub(crate) watermark_topic: &'a Arc<str>,
    /// Its partition for the watermarks of all batches. There is only one, because every partition that a transaction touches adds latency.
    pub(crate) watermark_partition: u32,
    /// Set when another thread ends the session.
    pub(crate) is_ended: &'a AtomicBool,
}

/// The outcome of a transaction. After the last three the session cannot continue.
#[derive(Debug)]
pub(crate) enum TransactionEnd {
    /// All records are visible, at these positions by index.
    Committed(Vec<Option<DeliveryOutcome>>),
    /// Confirmed: no record is visible, now or later.
    Aborted(AbortReport),
    /// Aborted: no record will be visible. The coordinator has not completed the abort, so the session is over.
    AbortPending(AbortReport, String),
    /// The outcome is unknown, and the session is over.
    Unknown(String),
    /// This session committed nothing of it, and the session is over.
    SessionLost(String),
}

/// Publishes batches in one transaction.
pub(crate) fn publish(
    producer: &mut TransactionalProducer,
    batches: &[SessionBatch],
    context: &TransactionContext<'_>,
) -> TransactionEnd {
    let started = Instant::now();
    let lease = batches.iter().map(|batch| batch.deadline).min().unwrap_or(started);
    let deadline = lease.min(started + context.options.delivery_timeout);
    let indexes = batches.iter().map(SessionBatch::record_count).sum();
    let mut sending = SendProgress { outcomes: vec![None; indexes], named: vec![false; indexes], reached: false };
    let sent = match sending.send_all(producer, batches, context, deadline) {
        Err(StepError::Fenced(reason)) => return TransactionEnd::SessionLost(reason),
        Err(StepError::AbortPending(reason)) => return abort_pending(AbortReport::default(), reason),
        sent => sent,
    };
    if context.is_ended.load(Ordering::Relaxed) {
        return TransactionEnd::SessionLost("the session was ended".into());
    }
    let now = Instant::now();
    let mut abort = find_causes(&sending.outcomes, &sending.named, batches);
    abort.reached = sending.reached;
    abort.overdue = (0..).zip(batches).filter(|(_, batch)| batch.is_overdue(now)).map(|(index, _)| index).collect();
    match sent {
        Ok(SendResult::Sent) => {}
        Ok(SendResult::Refused(records)) => abort.refused.extend(records),
        Err(error) if abort.is_empty() => abort.cause = Some(error.into_cause()),
        // A request that ended with the lease of one batch is not the broker's failure.
        Err(_) => {}
    }
    if !abort.is_empty() {
        return abort_transaction(producer, context.options.connect_timeout, abort);
    }
    // A commit gets more time than the deliveries: a broker that returns from an outage still answers it, and a commit that is given up
    // costs a fence and a read of the watermark.
    let latest =
        lease.min(now + context.options.delivery_timeout * COMMIT_DELIVERY_TIMEOUTS).max(now + COMMIT_TIME_MIN);
    match producer.commit(retry_until(latest)) {
        Ok(()) => TransactionEnd::Committed(sending.outcomes),
        Err(StepError::Fenced(reason)) => TransactionEnd::SessionLost(reason),
        Err(StepError::Unknown(reason) | StepError::AbortPending(reason)) => TransactionEnd::Unknown(reason),
        Err(StepError::Failed(error)) => {
            abort.cause = Some(error);
            abort_transaction(producer, context.options.connect_timeout, abort)
        }
    }
}

/// Commits the registration of a transactional id in a transaction of its own; without a value it removes it from the compacted topic.
/// After an error the producer is of no use: its outcome may be unknown.
pub(crate) fn commit_registration(
    producer: &mut TransactionalProducer,
    (topic, partition): (&Arc<str>, u32),
    (key, value): (&str, Option<&str>),
    options: &Options,
) -> Result<(), Error> {
    let (deadline, action) = (Instant::now() + options.delivery_timeout, "registering a transactional id");
    let record = RecordParts {
        key: Some(key.as_bytes()),
        value: value.map(str::as_bytes),
        headers: None,
        timestamp: options.clock.wall().millis(),
    };
    producer.abort(retry_until(deadline)).map_err(StepError::into_cause)?;
    let target = (Arc::clone(topic), partition);
    if !producer.leaderless_after_wait(std::slice::from_ref(&target), deadline).is_empty() {
        return Err(unavailable(topic, partition));
    }
    let refused = producer.add_partitions(&[target], retry_until(deadline)).map_err(StepError::into_cause)?;
    if let Some((_, error)) = refused.into_iter().next() {
        return Err(error);
    }
    let chunk = Chunk { topic: Arc::clone(topic), partition, indexes: vec![0], records: vec![record] };
    match producer.produce(&[chunk], options.compression, deadline).pop() {
        Some(ChunkOutcome::Appended(_)) => producer.commit(retry_until(deadline)).map_err(StepError::into_cause),
        Some(ChunkOutcome::Refused { code, .. }) => Err(map_code(code, format!("{action}: {code}"))),
        Some(ChunkOutcome::NotSent(reason) | ChunkOutcome::Unanswered(reason)) => {
            Err(Error::Unreachable(format!("{action}: {reason}")))
        }
        None => Err(Error::Unreachable(action.to_owned())),
    }
}

fn retry_until(deadline: Instant) -> RetryLimits {
    RetryLimits { deadline, unreachable_max: Duration::MAX }
}

/// A record that is not sent in this transaction, by the index of its batch.
type RefusedRecord = (usize, RowId, Error);

/// Whether the records of a transaction went to the broker; none did if some must wait alone.
enum SendResult {
    /// The broker appended every record and every watermark.
    Sent,
    /// Nothing was sent: these are records of topics that the broker refuses, or of topic partitions that took none a moment ago.
    Refused(Vec<RefusedRecord>),
}

/// The records of a transaction while they are sent.
struct SendProgress {
    /// The broker's result for each record, by index; `None` for a record that was not sent or not answered.
    outcomes: Vec<Option<DeliveryOutcome>>,
    /// Whether a refusal names the record: it was alone in its chunk, or the broker said which records of the chunk are invalid.
    named: Vec<bool>,
    /// Whether any record may have reached the broker.
    reached: bool,
}

impl SendProgress {
    /// Sends everything, until the first failure; or nothing, if records have to wait alone.
    fn send_all(
        &mut self,
        producer: &mut TransactionalProducer,
        batches: &[SessionBatch],
        context: &TransactionContext<'_>,
        deadline: Instant,
    ) -> Result<SendResult, StepError> {
        let limits = RetryLimits { deadline, unreachable_max: OUTAGE_WAIT };
        // An earlier transaction that no record reached may still be open, and a repeated request that ended the last one may still arrive.
        producer.abort(limits)?;
        producer.expire_failed_topics();
        let topics = batches.iter().flat_map(SessionBatch::topics).chain([context.watermark_topic]);
        let refused = producer.cluster.load(topics.map(|topic| &**topic), deadline).map_err(StepError::Failed)?;
        if !refused.is_empty() {
            return Ok(SendResult::Refused(records_of_topics(refused, batches, context)?));
        }
        update_in_sync_counts(producer);
        let refused = unavailable_records(producer, batches, context)?;
        if !refused.is_empty() {
            return Ok(SendResult::Refused(refused));
        }
        let watermarks = watermark_texts(batches, &context.options.installation);
        let mut queues = partition_queues(producer, batches, &watermarks, context)?;
        let partitions = queues.partitions();
        if let Some((topic, partition)) = producer.leaderless_after_wait(&partitions, deadline).first() {
            update_in_sync_counts(producer);
            let refused = unavailable_records(producer, batches, context)?;
            let is_relay_outage = refused.is_empty();
            return if is_relay_outage {
                Err(StepError::Failed(unavailable(topic, *partition)))
            } else {
                Ok(SendResult::Refused(refused))
            };
        }
        let refused = producer.add_partitions(&partitions, limits)?;
        if !refused.is_empty() {
            return Ok(SendResult::Refused(records_of_topics(refused, batches, context)?));
        }
        let one_by_one = batches.iter().any(|batch| batch.sends_one_by_one);
        loop {
            let chunks = if one_by_one {
                queues.next_record()
            } else {
                queues.next_round(context.options.record_bytes_max + KEY_AND_HEADERS_BYTES)
            };
            if chunks.is_empty() {
                return Ok(SendResult::Sent);
            }
            let results = producer.produce(&chunks, context.options.compression, deadline);
            self.store(&chunks, results)?;
        }
    }

    /// Stores the outcomes of some chunks.
    ///
    /// # Errors
    /// The first failure; the remaining records need not be sent.
    fn store(&mut self, chunks: &[Chunk<'_>], results: Vec<ChunkOutcome>) -> Result<(), StepError> {
        let mut failure = Ok(());
        for (chunk, result) in chunks.iter().zip(results) {
            self.reached |= !matches!(result, ChunkOutcome::NotSent(_));
            let error = match result {
                ChunkOutcome::Appended(first) => {
                    for (offset, index) in (first..).zip(&chunk.indexes) {
                        self.outcomes[*index] = Some(Ok((chunk.partition, offset)));
                    }
                    continue;
                }
                ChunkOutcome::Refused { code, invalid } => {
                    for (in_chunk, index) in chunk.indexes.iter().enumerate() {
                        let is_valid = !invalid.is_empty() && !invalid.contains(&in_chunk);
                        self.outcomes[*index] = Some(Err(if is_valid { Code::InvalidDifferentRecord } else { code }));
                        self.named[*index] = chunk.indexes.len() == 1 || !invalid.is_empty();
                    }
                    map_code(code, format!("sending to {}/{}: {code}", chunk.topic, chunk.partition))
                }
                ChunkOutcome::NotSent(reason) | ChunkOutcome::Unanswered(reason) => {
                    Error::Unreachable(format!("sending to {}/{}: {reason}", chunk.topic, chunk.partition))
                }
            };
            if failure.is_ok() {
                failure = Err(StepError::Failed(error));
            }
        }
        failure
    }
}

/// The records of topics that the broker refuses, so that they wait alone: a topic of another service that was never created is not the relay's
/// outage.
///
/// # Errors
/// One of the refused topics is the installation's own, which is an outage.
fn records_of_topics(
    refused: Vec<(String, Error)>,
    batches: &[SessionBatch],
    context: &TransactionContext<'_>,
) -> Result<Vec<RefusedRecord>, StepError> {
    let own = context.options.own_topics();
    let refused: HashMap<String, Error> = refused.into_iter().collect();
    if let Some((_, error)) = refused.iter().find(|(topic, _)| own.contains(topic)) {
        return Err(StepError::Failed(error.clone()));
    }
    let of_batch = |(index, batch): (usize, &SessionBatch)| {
        let record = |(row, record): &(RowId, Record)| Some((index, *row, refused.get(&*record.topic)?.clone()));
        batch.records.iter().filter_map(record).collect::<Vec<_>>()
    };
    Ok(batches.iter().enumerate().flat_map(of_batch).collect())
}

/// Updates the counts of in-sync replicas of the partitions that took no records from the present metadata.
fn update_in_sync_counts(producer: &TransactionalProducer) {
    let (cluster, unavailable) = (&producer.cluster, &producer.unavailable);
    let since = |topic: &str, partition, since| cluster.in_sync_since(topic, partition, since);
    unavailable.count_in_sync(since, Instant::now());
    unavailable.lower_in_sync_counts(|topic, partition| cluster.in_sync(topic, partition));
}

/// The records of topic partitions that took none a moment ago; none of them if the watermarks' own partition is one: that is an outage of the
/// relay.
fn unavailable_records(
    producer: &TransactionalProducer,
    batches: &[SessionBatch],
    context: &TransactionContext<'_>,
) -> Result<Vec<RefusedRecord>, StepError> {
    let now = Instant::now();
    let is_refused = |topic: &Arc<str>, partition| {
        let in_sync = producer.cluster.in_sync(topic, partition);
        producer.unavailable.is_refused(topic, partition, in_sync, now)
    };
    let mut refused = Vec::new();
    if producer.unavailable.is_empty() || is_refused(context.watermark_topic, context.watermark_partition) {
        return Ok(refused);
    }
    for (index, batch) in batches.iter().enumerate() {
        for (row, record) in &batch.records {
            let partition = topic_partition(producer, record)?;
            if is_refused(&record.topic, partition) {
                refused.push((index, *row, unavailable(&record.topic, partition)));
            }
        }
    }
    Ok(refused)
}

/// The records and watermarks of some batches by topic partition. The indexes of a batch are in the order of its records; its watermark is last.
fn partition_queues<'a>(
    producer: &TransactionalProducer,
    batches: &'a [SessionBatch],
    watermarks: &'a [Option<(String, String)>],
    context: &TransactionContext<'_>,
) -> Result<PartitionQueues<'a>, StepError> {
    let (mut queues, mut indexes) = (PartitionQueues::default(), 0..);
    let timestamp = context.options.clock.wall().millis();
    for (batch, watermark) in batches.iter().zip(watermarks) {
        for ((_, record), index) in batch.records.iter().zip(&mut indexes) {
            let parts = RecordParts {
                key: record.key_bytes(),
                value: record.value_bytes(),
                headers: Some(&record.headers),
                timestamp: record.timestamp.millis(),
            };
            queues.push(&record.topic, topic_partition(producer, record)?, index, parts);
        }
        if let (Some((key, value)), Some(index)) = (watermark, watermark.as_ref().and_then(|_| indexes.next())) {
            let parts =
                RecordParts { key: Some(key.as_bytes()), value: Some(value.as_bytes()), headers: None, timestamp };
            queues.push_watermark(context.watermark_topic, context.watermark_partition, index, parts);
        }
    }
    Ok(queues)
}

/// Key and value of each batch's watermark record; none for a batch without one.
fn watermark_texts(batches: &[SessionBatch], installation: &str) -> Vec<Option<(String, String)>> {
    let text = |batch: &SessionBatch| {
        batch.watermark.map(|(partition, token)| (partition.to_string(), format!("{token} {installation}")))
    };
    batches.iter().map(text).collect()
}

/// The topic partition of a record. Those without a key share the partition of the empty key.
fn topic_partition(producer: &TransactionalProducer, record: &Record) -> Result<u32, StepError> {
    let no_partitions = || Error::Unreachable(format!("topic {} has no partitions yet", record.topic));
    let count = producer.cluster.partition_count(&record.topic).ok_or_else(no_partitions);
    let count = count.map_err(StepError::Failed)?;
    Ok(::outbox::partition::topic_partition(record.key_bytes().unwrap_or_default(), count))
}

fn unavailable(topic: &str, partition: u32) -> Error {
    Error::Unreachable(format!("{topic}/{partition} takes no records: it has no leader, or too few replicas in sync"))
}

/// Confirms the abort. Where no record reached the broker there is nothing to abort: the next transaction ends what may be open.
fn abort_transaction(producer: &mut TransactionalProducer, timeout: Duration, report: AbortReport) -> TransactionEnd {
    if !report.reached {
        return TransactionEnd::Aborted(report);
    }
    match producer.abort(retry_until(Instant::now() + timeout)) {
        Ok(()) => TransactionEnd::Aborted(report),
        Err(StepError::AbortPending(reason)) => abort_pending(report, reason),
        Err(StepError::Fenced(reason)) => TransactionEnd::SessionLost(reason),
        // The broker is unreachable: whether it has aborted the transaction is unknown until it returns.
        Err(StepError::Unknown(reason)) => TransactionEnd::Unknown(reason),
        Err(StepError::Failed(error)) => TransactionEnd::Unknown(error.to_string()),
    }
}

/// The coordinator accepted the abort and cannot complete it, usually because a partition accepts no transaction marker. The other batches of the
/// transaction cannot be sent again by this producer.
fn abort_pending(mut report: AbortReport, reason: String) -> TransactionEnd {
    if report.cause.is_none() {
        let message = format!("the transaction was aborted, but the broker has not completed the abort: {reason}");
        (report.cause, report.reached) = (Some(Error::Unreachable(message)), false);
    }
    TransactionEnd::AbortPending(report, reason)
}
