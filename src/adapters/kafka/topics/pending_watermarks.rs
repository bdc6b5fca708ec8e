//! Queries for watermarks that wait for their answer: one read serves all that are ready, and those that wait for a transaction delay no other.
//! A read that fails answers also the queries that arrived while it lasted: another one would cost each of them its whole timeout again.
use std::time::{Duration, Instant};

use ports::Error;
use ports::partitions::Token;
use tokio::sync::oneshot;

use crate::connection::shared_failure::SharedFailure;
use crate::options::Options;
use crate::topics::partition_reader::{PartitionOffsets, PartitionReader};
use crate::topics::watermark_cache::{InstallationRecords, WatermarkCache};

/// Longest wait for an open transaction: the broker writes its control records within milliseconds of a fence.
const OPEN_TRANSACTIONS_TIMEOUT: Duration = Duration::from_secs(5);

/// A query that is answered from the watermark topic.
pub(crate) struct WatermarkQuery {
    requested_at: Instant,
    awaited: AwaitedPartitions,
    reply: WatermarkReply,
}

/// The partitions of the watermark topic in which every transaction must be decided before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AwaitedPartitions {
    /// The answer waits for no transaction.
    None,
    /// The partition with the watermarks of one producer session.
    One(u32),
    /// Every partition of the topic.
    All,
}

/// Where the answer goes. Sending fails when the caller was dropped, which loses nothing.
pub(crate) enum WatermarkReply {
    /// The watermark of an outbox partition.
    Watermark { outbox_partition: u32, sender: oneshot::Sender<Result<Option<Token>, Error>> },
    /// All watermarks, and the transactional ids that are registered.
    Installation(oneshot::Sender<Result<InstallationRecords, Error>>),
}

/// The queries without an answer, and the cached content of the topic.
#[derive(Default)]
pub(crate) struct PendingWatermarks {
    cache: WatermarkCache,
    queries: Vec<PendingQuery>,
    /// The last read that failed.
    failure: SharedFailure,
}

struct PendingQuery {
    query: WatermarkQuery,
    deadline: Instant,
    /// The ends of the awaited partitions, open transactions included, at a moment after the query's arrival.
    high: Option<PartitionOffsets>,
    is_decided: bool,
}

impl WatermarkQuery {
    /// A query that begins now.
    pub(crate) fn new(awaited: AwaitedPartitions, reply: WatermarkReply) -> Self {
        Self { requested_at: Instant::now(), awaited, reply }
    }
}

impl PendingQuery {
    /// The partitions of the watermark topic that it waits for. A topic of an earlier version may have fewer than a session's id says.
    fn awaited(&self, topic: &str, partitions: u32) -> Vec<(String, u32)> {
        let awaited = match self.query.awaited {
            AwaitedPartitions::None => 0..0,
            AwaitedPartitions::One(partition) if partition < partitions => partition..partition + 1,
            AwaitedPartitions::One(_) => 0..0,
            AwaitedPartitions::All => 0..partitions,
        };
        awaited.map(|partition| (topic.to_owned(), partition)).collect()
    }
}

impl WatermarkReply {
    fn is_closed(&self) -> bool {
        match self {
            WatermarkReply::Watermark { sender, .. } => sender.is_closed(),
            WatermarkReply::Installation(sender) => sender.is_closed(),
        }
    }

    fn send(self, records: Result<&WatermarkCache, Error>) {
        match self {
            WatermarkReply::Watermark { outbox_partition, sender } => {
                drop(sender.send(records.map(|cache| cache.highest(outbox_partition))));
            }
            WatermarkReply::Installation(sender) => drop(sender.send(records.map(WatermarkCache::all))),
        }
    }
}

impl PendingWatermarks {
    /// Adds queries; the next [`PendingWatermarks::read`] serves them. Those that arrived before the last failure of a read get that failure.
    pub(crate) fn add(&mut self, queries: Vec<WatermarkQuery>) {
        let deadline = Instant::now() + OPEN_TRANSACTIONS_TIMEOUT;
        for query in queries {
            match self.failure.since(query.requested_at) {
                Ok(()) => self.queries.push(PendingQuery { query, deadline, high: None, is_decided: false }),
                Err(error) => query.reply.send(Err(error)),
            }
        }
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
    /// reached it, they are all committed or aborted. Other ids that write to the partition may continue: their later records do not count.
    fn decide(&mut self, reader: &PartitionReader, topic: &str, partitions: u32) -> Result<(), Error> {
        let names = |queries: &mut dyn Iterator<Item = &PendingQuery>| {
            let mut names: Vec<(String, u32)> =
                queries.flat_map(|pending| pending.awaited(topic, partitions)).collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        let high = reader.high_ends(&names(&mut self.queries.iter().filter(|pending| pending.high.is_none())))?;
        let stable_names = names(&mut self.queries.iter().filter(|pending| !pending.is_decided));
        let stable = reader.stable_ends(&stable_names)?;
        for pending in self.queries.iter_mut().filter(|pending| !pending.is_decided) {
            let awaited = pending.awaited(topic, partitions);
            let high = pending.high.get_or_insert_with(|| high.clone());
            pending.is_decided = awaited
                .iter()
                .all(|name| high.get(name).is_some_and(|high| stable.get(name).is_some_and(|stable| stable >= high)));
        }
        Ok(())
    }

    /// Answers the queries that are ready or overdue; all of them when the read failed.
    pub(crate) fn answer(&mut self, read: &Result<(), Error>, topic: &str) {
        if let Err(error) = read {
            self.failure.record(error);
        }
        let now = Instant::now();
        let is_finished = |pending: &mut PendingQuery| read.is_err() || pending.is_decided || now > pending.deadline;
        for PendingQuery { query, is_decided, .. } in self.queries.extract_if(.., is_finished) {
            let records = match (read, query.awaited) {
                (Err(error), _) => Err(error.clone()),
                (Ok(()), AwaitedPartitions::One(partition)) if !is_decided => {
                    Err(Error::Unreachable(format!("a transaction on {topic}-{partition} is still open")))
                }
                (Ok(()), AwaitedPartitions::All) if !is_decided => {
                    Err(Error::Unreachable(format!("a transaction on {topic} is still open")))
                }
                (Ok(()), _) => Ok(&self.cache),
            };
            query.reply.send(records);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Reply = oneshot::Receiver<Result<Option<Token>, Error>>;

    fn query() -> (WatermarkQuery, Reply) {
        let (sender, reply) = oneshot::channel();
        let watermark = WatermarkReply::Watermark { outbox_partition: 0, sender };
        (WatermarkQuery::new(AwaitedPartitions::None, watermark), reply)
    }

    #[test]
    fn queries_that_arrived_during_a_failed_read_share_its_failure() {
        let mut pending = PendingWatermarks::default();
        let (read, mut read_reply) = query();
        let (waiting, mut waiting_reply) = query();

        pending.add(vec![read]);
        pending.answer(&Err(Error::Unreachable("away".into())), "watermarks");
        pending.add(vec![waiting]);

        for reply in [&mut read_reply, &mut waiting_reply] {
            assert!(matches!(reply.try_recv(), Ok(Err(Error::Unreachable(_)))));
        }
        let (later, mut later_reply) = query();
        pending.add(vec![later]);
        assert!(
            pending.is_waiting() && later_reply.try_recv().is_err(),
            "a read that began earlier says nothing about it"
        );
        pending.answer(&Ok(()), "watermarks");
    }
}
