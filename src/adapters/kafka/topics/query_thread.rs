//! A thread that reads topics on request. One read serves all waiting requests for watermarks.
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use ports::Error;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::topics::TopicView;
use tokio::sync::oneshot;

use crate::connection::blocking_call::client_stopped;
use crate::connection::broker_contact::BrokerContact;
use crate::connection::client_replacement::ClientReplacement;
use crate::connection::message::consumer_record;
use crate::connection::open_error::KafkaOpenError;
use crate::options::Options;
use crate::topics::group_offsets::committed_offsets;
use crate::topics::partition_reader::{
    OPEN_TRANSACTIONS_PAUSE, PartitionOffsets, PartitionReader, ReadControl, ReadSpan,
};
use crate::topics::pending_watermarks::{PendingWatermarks, WatermarkQuery};

/// Most queries that may wait: more than an outbox has partitions.
const QUERIES_MAX: usize = 4096;
/// How often an idle thread serves its clients' callbacks.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Longest read for an operator.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for an open transaction. One of another application may last long; the read then ends before it.
const OPEN_TRANSACTIONS_TIMEOUT: Duration = Duration::from_millis(500);
/// Most bytes of values that one read returns.
const READ_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most records that one read returns.
const READ_RECORDS_MAX: u32 = 10_000;

type QueryReply<T> = oneshot::Sender<Result<T, Error>>;

/// A read of topics; the reply fails when the caller was dropped, which loses nothing.
pub(crate) enum TopicQuery {
    /// A watermark, or all of them.
    Watermark(WatermarkQuery),
    /// The installation's topics, with the first and end offset of each partition.
    List { reply: QueryReply<Vec<TopicView>> },
    /// At most `limit` records of a topic partition, from `offset` on.
    Read { topic: String, partition: u32, offset: u64, limit: u32, reply: QueryReply<Vec<ConsumerRecord>> },
    /// The offsets at which a group continues, in partition order.
    GroupOffsets { group: String, topic: String, reply: QueryReply<Vec<Option<u64>>> },
}

/// A handle to the thread, which ends when the handle is dropped.
pub(crate) struct QueryThread {
    queries: SyncSender<TopicQuery>,
}

impl QueryThread {
    pub(crate) fn start(
        options: Arc<Options>,
        contact: Arc<BrokerContact>,
        thread_name: &str,
    ) -> Result<Self, KafkaOpenError> {
        let (queries, received) = sync_channel(QUERIES_MAX);
        let reader =
            PartitionReader::new(&options, &contact).map_err(|error| KafkaOpenError::Options(error.to_string()))?;
        let (watermarks, replacement) = (PendingWatermarks::default(), ClientReplacement::default());
        let runner = QueryRunner { options, contact, reader, watermarks, replacement };
        std::thread::Builder::new().name(thread_name.into()).spawn(move || runner.run(&received))?;
        Ok(Self { queries })
    }

    /// Sends a query and waits for its result.
    pub(crate) async fn request<T>(&self, query: impl FnOnce(QueryReply<T>) -> TopicQuery) -> Result<T, Error> {
        let (reply, result) = oneshot::channel();
        let sent = self.queries.try_send(query(reply));
        sent.map_err(|_| Error::Overloaded("the queue of topic reads is full".into()))?;
        result.await.unwrap_or_else(|_| Err(client_stopped()))
    }
}

struct QueryRunner {
    options: Arc<Options>,
    contact: Arc<BrokerContact>,
    reader: PartitionReader,
    watermarks: PendingWatermarks,
    replacement: ClientReplacement,
}

impl QueryRunner {
    fn run(mut self, queries: &Receiver<TopicQuery>) {
        loop {
            let pause = if self.watermarks.is_waiting() { OPEN_TRANSACTIONS_PAUSE } else { IDLE_POLL_INTERVAL };
            match queries.recv_timeout(pause) {
                Ok(first) => self.answer(std::iter::once(first).chain(queries.try_iter()).collect()),
                Err(RecvTimeoutError::Timeout) if self.watermarks.is_waiting() => self.answer_watermarks(),
                Err(RecvTimeoutError::Timeout) => self.reader.serve_events(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn answer(&mut self, queries: Vec<TopicQuery>) {
        let mut watermarks = Vec::new();
        for query in queries {
            match query {
                TopicQuery::Watermark(query) => watermarks.push(query),
                TopicQuery::List { reply } => {
                    let (started, topics) = (Instant::now(), self.list());
                    self.replace_failing_reader(started, &topics);
                    drop(reply.send(topics));
                }
                TopicQuery::Read { topic, partition, offset, limit, reply } => {
                    let (started, records) = (Instant::now(), self.read(&topic, partition, offset, limit));
                    self.replace_failing_reader(started, &records);
                    drop(reply.send(records));
                }
                TopicQuery::GroupOffsets { group, topic, reply } => {
                    drop(reply.send(self.group_offsets(&group, &topic)))
                }
            }
        }
        self.watermarks.add(watermarks);
        if self.watermarks.is_waiting() {
            self.answer_watermarks();
        }
    }

    fn answer_watermarks(&mut self) {
        let started = Instant::now();
        let mut read = self.watermarks.read(&self.reader, &self.options);
        // During an outage that every client sees, the new reader would fail as slowly: the next query uses it.
        if self.replace_failing_reader(started, &read) && !self.contact.is_unreachable() {
            read = self.watermarks.read(&self.reader, &self.options);
        }
        self.watermarks.answer(&read, &self.options.watermark_topic());
    }

    /// Replaces a reader that has reached no broker for long, because the reader itself may have failed; returns whether it did.
    fn replace_failing_reader<T>(&mut self, started: Instant, result: &Result<T, Error>) -> bool {
        // A client that has lost its brokers returns errors about unknown partitions too. Only a rejected read proves that a broker answered.
        let reached = matches!(result, Ok(_) | Err(Error::Rejected(_)));
        let create = || PartitionReader::new(&self.options, &self.contact);
        let reader = self.replacement.record_call(reached, started, create);
        reader.map(|reader| self.reader = reader).is_some()
    }

    fn list(&self) -> Result<Vec<TopicView>, Error> {
        let own = |(name, _): &(String, u32)| self.is_own(name);
        let topics: Vec<(String, u32)> = self.reader.topics()?.into_iter().filter(own).collect();
        let partitions =
            |(name, size): &(String, u32)| (0..*size).map(|partition| (name.clone(), partition)).collect::<Vec<_>>();
        let names: Vec<(String, u32)> = topics.iter().flat_map(partitions).collect();
        let (starts, ends) = (self.reader.start_offsets(&names)?, self.ends(&names)?);
        let range = |name: &(String, u32)| {
            let start = starts.get(name).copied().unwrap_or(0);
            start..ends.get(name).copied().unwrap_or(start)
        };
        let view = |(name, size): (String, u32)| {
            let partitions = (0..size).map(|partition| range(&(name.clone(), partition))).collect();
            TopicView { name, partitions }
        };
        Ok(topics.into_iter().map(view).collect())
    }

    /// Whether a topic has the installation's prefix, or is one of its additional topics, and is none of Kafka's own.
    fn is_own(&self, name: &str) -> bool {
        let is_additional = || self.options.additional_topics.iter().any(|topic| topic == name);
        (name.starts_with(&self.options.topic_prefix) || is_additional()) && !name.starts_with("__")
    }

    /// A broker confirms a commit before the control records are in every partition: waits a short time for the transactions that were
    /// committed before this call.
    fn ends(&self, names: &[(String, u32)]) -> Result<PartitionOffsets, Error> {
        self.reader.decided_ends(names, OPEN_TRANSACTIONS_TIMEOUT)
    }

    /// Number of partitions of a topic.
    fn size(&self, topic: &str) -> Result<u32, Error> {
        let topics = self.reader.topics()?;
        topics.get(topic).copied().ok_or_else(|| {
            let own: Vec<&str> = topics.keys().filter(|name| self.is_own(name)).map(String::as_str).collect();
            Error::Rejected(format!("there is no topic {topic}; there are: {}", own.join(", ")))
        })
    }

    fn group_offsets(&self, group: &str, topic: &str) -> Result<Vec<Option<u64>>, Error> {
        committed_offsets(&self.options, group, topic, self.size(topic)?)
    }

    fn read(&self, topic: &str, partition: u32, offset: u64, limit: u32) -> Result<Vec<ConsumerRecord>, Error> {
        let size = self.size(topic)?;
        if partition >= size {
            let message = format!("topic {topic} has {size} partitions; there is no partition {partition}");
            return Err(Error::Rejected(message));
        }
        let name = [(topic.to_owned(), partition)];
        let start = self.reader.start_offsets(&name)?.get(&name[0]).copied().unwrap_or(0);
        let end = self.ends(&name)?.get(&name[0]).copied().unwrap_or(0);
        let (from, limit) = (offset.max(start), limit.min(READ_RECORDS_MAX) as usize);
        if from >= end || limit == 0 {
            return Ok(Vec::new());
        }
        let (shared, mut bytes, mut found): (Arc<str>, usize, Vec<ConsumerRecord>) = (topic.into(), 0, Vec::new());
        self.reader.read(topic, &[ReadSpan { partition, from, end }], Instant::now() + READ_TIMEOUT, |message| {
            let message = consumer_record(message, &shared);
            bytes += message.record.value.len();
            found.push(message);
            let is_full = found.len() >= limit || bytes >= READ_BYTES_MAX;
            if is_full { ReadControl::Stop } else { ReadControl::Continue }
        })?;
        Ok(found)
    }
}
