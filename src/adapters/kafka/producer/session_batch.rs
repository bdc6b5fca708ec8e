//! A batch on its way through a session: its records, its deadline, and the channel for its result.
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::Timestamp;
use ports::broker::{Batch, Position, PublishOutcome, Record};
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, Token};
use tokio::sync::oneshot;

use crate::producer::delivery_reports::DeliveryOutcome;

/// How far a record's timestamp may be ahead: the difference of clocks that NTP keeps.
const TIMESTAMP_LEAD_MAX: Duration = Duration::from_secs(60);

/// A batch that a session publishes, with or without a watermark.
pub(crate) struct SessionBatch {
    pub(crate) records: Vec<(RowId, Record)>,
    /// The watermark that is committed in the same transaction as the records.
    pub(crate) watermark: Option<(PartitionNo, Token)>,
    /// No record may be committed after this moment.
    pub(crate) deadline: Instant,
    /// Bytes of the records' values.
    pub(crate) bytes: usize,
    /// The broker refused a request with several of its records: they are now sent one by one, so that a refusal names the invalid one.
    pub(crate) sends_one_by_one: bool,
    /// How many other batches of the session are expected soon.
    pub(crate) expected_batches: u32,
    reply: oneshot::Sender<PublishOutcome>,
}

impl SessionBatch {
    /// A claimed batch. Its remaining lease time counts from now.
    pub(crate) fn from_claim(batch: Batch, reply: oneshot::Sender<PublishOutcome>) -> Self {
        let Batch { partition, token, records, time_left, expected_batches } = batch;
        Self { expected_batches, ..Self::new(records, Some((partition, token)), Instant::now() + time_left, reply) }
    }

    /// Records without a watermark.
    pub(crate) fn from_append(
        records: Vec<(RowId, Record)>,
        deadline: Instant,
        reply: oneshot::Sender<PublishOutcome>,
    ) -> Self {
        Self::new(records, None, deadline, reply)
    }

    fn new(
        records: Vec<(RowId, Record)>,
        watermark: Option<(PartitionNo, Token)>,
        deadline: Instant,
        reply: oneshot::Sender<PublishOutcome>,
    ) -> Self {
        let bytes = records.iter().map(|(_, record)| record.value.len()).sum();
        Self { records, watermark, deadline, bytes, sends_one_by_one: false, expected_batches: 0, reply }
    }

    /// Replaces timestamps that are more than [`TIMESTAMP_LEAD_MAX`] (60 s) in the future with the current time: the broker refuses a timestamp that
    /// is far ahead (`message.timestamp.after.max.ms`, an hour since Kafka 4.0).
    pub(crate) fn limit_timestamps(&mut self, now: Timestamp) {
        let latest = now.plus(TIMESTAMP_LEAD_MAX);
        for (_, record) in self.records.iter_mut().filter(|(_, record)| record.timestamp > latest) {
            record.timestamp = now;
        }
    }

    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.deadline <= now
    }

    /// Number of records that its transaction writes: its own and the watermark.
    pub(crate) fn record_count(&self) -> usize {
        self.records.len() + usize::from(self.watermark.is_some())
    }

    /// The topics of its records.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &Arc<str>> {
        self.records.iter().map(|(_, record)| &record.topic)
    }

    /// The positions of its delivered records. `first` is the index of its first record.
    pub(crate) fn positions(&self, outcomes: &[Option<DeliveryOutcome>], first: usize) -> Vec<(RowId, Position)> {
        let indexes = (first..).zip(&self.records);
        let position = |(index, (row, record)): (usize, &(RowId, Record))| {
            let (partition, offset) = outcomes.get(index).copied().flatten()?.ok()?;
            Some((*row, Position { topic: record.topic.clone(), partition, offset }))
        };
        indexes.filter_map(position).collect()
    }

    /// Sends the result to the caller. When the caller was dropped, the relay resolves the batch by its watermark.
    pub(crate) fn finish(self, result: PublishOutcome) {
        drop(self.reply.send(result));
    }
}
