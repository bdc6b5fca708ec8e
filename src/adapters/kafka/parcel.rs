//! A batch as a lane carries it: what is to be sent, until when, and whom to tell.
use std::time::Instant;

use ports::broker::{Batch, Position, Published, Record};
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, Token};
use tokio::sync::oneshot;

use crate::deliveries::Sheet;

/// A batch on its way, with or without a watermark.
pub(crate) struct Parcel {
    pub(crate) records: Vec<(RowId, Record)>,
    /// The watermark that stands or falls with the records.
    pub(crate) mark: Option<(PartitionNo, Token)>,
    /// Past this nothing of it may be committed.
    pub(crate) until: Instant,
    /// Bytes of its values.
    pub(crate) bytes: usize,
    /// Its records travel one by one, so that a refusal names the guilty one.
    pub(crate) suspect: bool,
    answer: oneshot::Sender<Published>,
}

impl Parcel {
    /// A claimed batch; its time is counted from now.
    pub(crate) fn of_batch(batch: Batch, answer: oneshot::Sender<Published>) -> Self {
        let Batch { partition, token, records, time_left } = batch;
        let mark = Some((partition, token));
        Self::new(records, mark, Instant::now() + time_left, answer)
    }

    /// Records of which no watermark tells.
    pub(crate) fn of_records(records: Vec<Record>, until: Instant, answer: oneshot::Sender<Published>) -> Self {
        Self::new((0..).zip(records).collect(), None, until, answer)
    }

    fn new(
        records: Vec<(RowId, Record)>,
        mark: Option<(PartitionNo, Token)>,
        until: Instant,
        answer: oneshot::Sender<Published>,
    ) -> Self {
        let bytes = records.iter().map(|(_, record)| record.value.len()).sum();
        Self { records, mark, until, bytes, suspect: false, answer }
    }

    pub(crate) fn is_late(&self, now: Instant) -> bool {
        self.until <= now
    }

    /// How many lines it takes in the table of deliveries.
    pub(crate) fn lines(&self) -> usize {
        self.records.len() + usize::from(self.mark.is_some())
    }

    /// Where its records stand that were taken; `first` is its first line.
    pub(crate) fn positions(&self, sheet: &Sheet, first: usize) -> Vec<(RowId, Position)> {
        let lines = (first..).zip(&self.records);
        let stands = |(line, (row, record)): (usize, &(RowId, Record))| {
            let (partition, offset) = sheet.outcome(line)?.ok()?;
            Some((*row, Position { topic: record.topic.clone(), partition, offset }))
        };
        lines.filter_map(stands).collect()
    }

    /// Tells what became of it. A caller that no longer listens finds it out another way.
    pub(crate) fn answer(self, published: Published) {
        drop(self.answer.send(published));
    }
}
