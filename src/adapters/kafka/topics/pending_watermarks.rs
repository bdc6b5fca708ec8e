//! Queries for watermarks that wait for their answer: one read serves all that are ready, and those that wait for a transaction delay no other.
use std::time::{Duration, Instant};

use ports::Error;
use ports::partitions::Token;
use tokio::sync::oneshot;

use crate::options::Options;
use crate::topics::partition_reader::PartitionReader;
use crate::topics::watermark_cache::WatermarkCache;

/// Longest wait for an open transaction: the broker writes its control records within milliseconds of a fence.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// A query for the watermark of an outbox partition.
pub(crate) struct WatermarkQuery {
    pub(crate) outbox_partition: u32,
    /// The partition of the watermark topic in which every transaction must be decided first, if there is one to wait for.
    pub(crate) awaited: Option<u32>,
    /// Fails to send when the caller was dropped, which loses nothing.
    pub(crate) reply: oneshot::Sender<Result<Option<Token>, Error>>,
}

/// The queries without an answer, and what is known of the topic.
#[derive(Default)]
pub(crate) struct PendingWatermarks {
    cache: WatermarkCache,
    queries: Vec<PendingQuery>,
}

struct PendingQuery {
    query: WatermarkQuery,
    deadline: Instant,
    /// The end of the awaited partition, open transactions included, at a moment after the query's arrival.
    high: Option<u64>,
    is_decided: bool,
}

impl PendingWatermarks {
    /// Adds queries; the next [`PendingWatermarks::read`] serves them.
    pub(crate) fn add(&mut self, queries: Vec<WatermarkQuery>) {
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        let pending = |query| PendingQuery { query, deadline, high: None, is_decided: false };
        self.queries.extend(queries.into_iter().map(pending));
    }

    /// Whether a query waits for a transaction.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.queries.is_empty()
    }

    /// Determines which queries can be answered, and reads what they need.
    pub(crate) fn read(&mut self, reader: &PartitionReader, options: &Options) -> Result<(), Error> {
        self.queries.retain(|pending| !pending.query.reply.is_closed());
        if self.queries.is_empty() {
            return Ok(());
        }
        let topic = options.watermark_topic();
        let partitions = reader.partition_count(&topic)?;
        self.decide(reader, &topic, partitions)?;
        if self.queries.iter().any(|pending| pending.is_decided) {
            self.cache.refresh(reader, options, partitions)?;
        }
        Ok(())
    }

    /// A transaction that ended before a query arrived has all its records below the end at that moment. Once the last stable offset has
    /// reached it, they are all committed or aborted. Other ids that write to the partition may go on: their later records do not count.
    fn decide(&mut self, reader: &PartitionReader, topic: &str, partitions: u32) -> Result<(), Error> {
        let awaited = |pending: &PendingQuery| pending.query.awaited.filter(|awaited| *awaited < partitions);
        let names = |queries: &mut dyn Iterator<Item = &PendingQuery>| {
            let mut names: Vec<(String, u32)> =
                queries.filter_map(awaited).map(|partition| (topic.to_owned(), partition)).collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        let high = reader.high_ends(&names(&mut self.queries.iter().filter(|pending| pending.high.is_none())))?;
        let stable_names = names(&mut self.queries.iter().filter(|pending| !pending.is_decided));
        let stable = reader.stable_ends(&stable_names)?;
        for pending in &mut self.queries {
            let Some(partition) = awaited(pending) else {
                pending.is_decided = true;
                continue;
            };
            let name = (topic.to_owned(), partition);
            pending.high = pending.high.or(high.get(&name).copied());
            pending.is_decided |= pending.high.is_some_and(|high| stable.get(&name).is_some_and(|end| *end >= high));
        }
        Ok(())
    }

    /// Answers the queries that are ready or overdue; all of them when the read failed.
    pub(crate) fn answer(&mut self, read: &Result<(), Error>, topic: &str) {
        let now = Instant::now();
        let ends = |pending: &mut PendingQuery| read.is_err() || pending.is_decided || now > pending.deadline;
        for PendingQuery { query, is_decided, .. } in self.queries.extract_if(.., ends) {
            let result = match (read, query.awaited) {
                (Err(error), _) => Err(error.clone()),
                (Ok(()), Some(partition)) if !is_decided => {
                    Err(Error::Unreachable(format!("a transaction on {topic}-{partition} is still open")))
                }
                (Ok(()), _) => Ok(self.cache.highest(query.outbox_partition)),
            };
            drop(query.reply.send(result));
        }
    }
}
