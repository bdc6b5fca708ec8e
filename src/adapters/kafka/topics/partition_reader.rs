//! Reads topic partitions outside any consumer group: their offsets and their committed records.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ports::Error;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::BorrowedMessage;
use rdkafka::{Message, Offset, TopicPartitionList};

use crate::connection::broker_contact::{BrokerContact, ContactContext};
use crate::connection::client_config;
use crate::connection::topic_metadata::partition_count;
use crate::error::{is_temporary, map_err};
use crate::options::Options;

/// Longest wait for one request; a request for many partitions goes to each broker once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two checks whether open transactions have ended.
pub(crate) const OPEN_TRANSACTIONS_PAUSE: Duration = Duration::from_millis(3);
/// Longest wait for new leaders: an idle broker needs one second, a busy one more.
const LEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two tries to reach them.
const LEADER_PAUSE: Duration = Duration::from_millis(10);
/// Longest wait for one metadata request about them.
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout of one poll for messages.
const POLL_TIMEOUT: Duration = Duration::from_millis(20);

/// One offset for each topic partition.
pub(crate) type PartitionOffsets = BTreeMap<(String, u32), u64>;

/// Two clients: one sees only committed records, the other also those of open transactions.
pub(crate) struct PartitionReader {
    committed: BaseConsumer<ContactContext>,
    uncommitted: BaseConsumer<ContactContext>,
    contact: Arc<BrokerContact>,
}

/// The part of a partition to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadSpan {
    pub(crate) partition: u32,
    pub(crate) from: u64,
    /// Every committed record below this offset is read.
    pub(crate) end: u64,
}

/// Whether a read continues after a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadControl {
    Continue,
    Stop,
}

impl PartitionReader {
    pub(crate) fn new(options: &Options, contact: &Arc<BrokerContact>) -> KafkaResult<Self> {
        let context = ContactContext(Arc::clone(contact));
        let (committed, uncommitted) =
            (client_config::partition_reader(options), client_config::uncommitted_offsets(options));
        Ok(Self {
            committed: BaseConsumer::from_config_and_context(&committed, context.clone())?,
            uncommitted: BaseConsumer::from_config_and_context(&uncommitted, context)?,
            contact: Arc::clone(contact),
        })
    }

    /// Serves the callbacks (logs and errors) that librdkafka has queued, without waiting.
    pub(crate) fn serve_events(&self) {
        while self.committed.poll(Duration::ZERO).is_some() {}
        while self.uncommitted.poll(Duration::ZERO).is_some() {}
    }

    /// The first offset that each partition still has.
    pub(crate) fn start_offsets(&self, partitions: &[(String, u32)]) -> Result<PartitionOffsets, Error> {
        self.offsets(&self.committed, partitions, Offset::Beginning)
    }

    /// The end of each partition, open transactions included.
    pub(crate) fn high_ends(&self, partitions: &[(String, u32)]) -> Result<PartitionOffsets, Error> {
        self.offsets(&self.uncommitted, partitions, Offset::End)
    }

    /// The last stable offset of each partition: every transaction below it has ended.
    pub(crate) fn stable_ends(&self, partitions: &[(String, u32)]) -> Result<PartitionOffsets, Error> {
        self.offsets(&self.committed, partitions, Offset::End)
    }

    /// The last stable offsets, once every transaction that was open at the time of the call has ended, or when `timeout` has passed. The
    /// high watermarks are read first and the last stable offsets afterwards: where these have caught up, nothing below is undecided.
    pub(crate) fn decided_ends(
        &self,
        partitions: &[(String, u32)],
        timeout: Duration,
    ) -> Result<PartitionOffsets, Error> {
        let deadline = Instant::now() + timeout;
        let high = self.high_ends(partitions)?;
        loop {
            let ends = self.stable_ends(partitions)?;
            if Instant::now() > deadline || partitions.iter().all(|name| ends.get(name) >= high.get(name)) {
                return Ok(ends);
            }
            std::thread::sleep(OPEN_TRANSACTIONS_PAUSE);
        }
    }

    /// Repeats the request until every partition has an offset: a new topic appears in the metadata before its brokers lead it.
    fn offsets(
        &self,
        client: &BaseConsumer<ContactContext>,
        partitions: &[(String, u32)],
        target: Offset,
    ) -> Result<PartitionOffsets, Error> {
        let deadline = Instant::now() + LEADER_TIMEOUT;
        loop {
            match self.offsets_once(client, partitions, target) {
                Ok(offsets) if offsets.len() == partitions.len() => return Ok(offsets),
                Err(error) if Instant::now() > deadline || !is_temporary(&error) || self.contact.is_unreachable() => {
                    return Err(error);
                }
                Ok(_) if Instant::now() > deadline => {
                    return Err(Error::Unreachable("the brokers returned no offset for some partitions".into()));
                }
                Ok(_) => {}
                // The client asks the leaders that it knows, and refreshes them once a minute. This request refreshes them now; its result
                // shows in the next try.
                Err(_) => {
                    drop(partitions.first().map(|(topic, _)| client.fetch_metadata(Some(topic), METADATA_TIMEOUT)))
                }
            }
            std::thread::sleep(LEADER_PAUSE);
        }
    }

    /// A request for offsets by timestamp also takes the ends of the log, and is one request for any number of partitions.
    fn offsets_once(
        &self,
        client: &BaseConsumer<ContactContext>,
        partitions: &[(String, u32)],
        target: Offset,
    ) -> Result<PartitionOffsets, Error> {
        if partitions.is_empty() {
            return Ok(PartitionOffsets::new());
        }
        let action = "reading partition offsets";
        let request = partition_list(partitions.iter().map(|(topic, partition)| (topic.as_str(), *partition, target)))?;
        let response =
            client.offsets_for_times(request, REQUEST_TIMEOUT).map_err(|error| map_offset_err(&error, action))?;
        self.contact.record_response();
        let mut offsets = PartitionOffsets::new();
        for element in response.elements() {
            element.error().map_err(|error| map_offset_err(&error, action))?;
            // A partition without an answer still carries the requested end.
            let Offset::Offset(offset) = element.offset() else { continue };
            offsets.insert((element.topic().to_owned(), element.partition().unsigned_abs()), offset.unsigned_abs());
        }
        Ok(offsets)
    }

    /// Reads partitions of one topic, each from its offset to its end, until `on_message` stops the read. A message behind the end may be among
    /// them. A broker that has just become the leader may report the end of a partition below the one that its predecessor reported: KIP-207
    /// protects requests for offsets from that, not fetches. So a partition ends where the client's position has reached the wanted end.
    ///
    /// # Errors
    /// [`Error::Unreachable`] also when an end is not reached until `deadline`.
    pub(crate) fn read(
        &self,
        topic: &str,
        spans: &[ReadSpan],
        deadline: Instant,
        mut on_message: impl FnMut(&BorrowedMessage<'_>) -> ReadControl,
    ) -> Result<(), Error> {
        if spans.is_empty() {
            return Ok(());
        }
        let action = format!("reading topic {topic}");
        let start = spans.iter().map(|span| (topic, span.partition, Offset::Offset(span.from as i64)));
        self.committed.assign(&partition_list(start)?).map_err(|error| map_err(&error, &action))?;
        let unread = spans.iter().map(|span| (span.partition, span.end)).collect();
        let result = self.read_assigned(topic, unread, deadline, &action, &mut on_message);
        self.committed.unassign().map_err(|error| map_err(&error, &action))?;
        result
    }

    /// `unread` has the wanted end of each partition.
    fn read_assigned(
        &self,
        topic: &str,
        mut unread: BTreeMap<u32, u64>,
        deadline: Instant,
        action: &str,
        on_message: &mut impl FnMut(&BorrowedMessage<'_>) -> ReadControl,
    ) -> Result<(), Error> {
        while !unread.is_empty() {
            if Instant::now() > deadline {
                return Err(Error::Unreachable(format!("{action}: the end was not reached in time")));
            }
            match self.committed.poll(POLL_TIMEOUT) {
                // A message that was appended after the end of its partition was reached.
                Some(Ok(message)) if !unread.contains_key(&message.partition().unsigned_abs()) => {}
                Some(Ok(message)) => match on_message(&message) {
                    ReadControl::Continue => {}
                    ReadControl::Stop => return Ok(()),
                },
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    let partition = partition.unsigned_abs();
                    if let Some(end) = unread.get(&partition)
                        && self.has_reached(topic, partition, *end)?
                    {
                        unread.remove(&partition);
                    }
                }
                // The reader has a group id and uses no group: librdkafka asks for its coordinator nevertheless.
                Some(Err(error)) if error.rdkafka_error_code() == Some(Code::GroupAuthorizationFailed) => {}
                Some(Err(error)) => match map_err(&error, action) {
                    // The client retries by itself, until the deadline.
                    error if is_temporary(&error) => {}
                    other => return Err(other),
                },
                None => {}
            }
        }
        Ok(())
    }

    /// Whether the client has passed on every record and control record below `end`. Before the first, the broker may have deleted them all.
    fn has_reached(&self, topic: &str, partition: u32, end: u64) -> Result<bool, Error> {
        let positions = self.committed.position().map_err(|error| map_err(&error, "reading positions"))?;
        let position = positions.find_partition(topic, partition as i32).map(|element| element.offset());
        if let Some(Offset::Offset(position)) = position {
            return Ok(position.unsigned_abs() >= end);
        }
        let name = (topic.to_owned(), partition);
        Ok(self.start_offsets(std::slice::from_ref(&name))?.get(&name).is_some_and(|start| *start >= end))
    }

    /// The number of a topic's partitions.
    pub(crate) fn partition_count(&self, topic: &str) -> Result<u32, Error> {
        partition_count(self.uncommitted.client(), topic, REQUEST_TIMEOUT)
    }

    /// All topics of the cluster, with their numbers of partitions.
    pub(crate) fn topics(&self) -> Result<BTreeMap<String, u32>, Error> {
        let metadata = self.uncommitted.fetch_metadata(None, REQUEST_TIMEOUT);
        let metadata = metadata.map_err(|error| {
            self.serve_events();
            self.contact.map_err(&error, "reading the list of topics")
        })?;
        self.contact.record_response();
        let size =
            |topic: &rdkafka::metadata::MetadataTopic| (topic.name().to_owned(), topic.partitions().len() as u32);
        Ok(metadata.topics().iter().map(size).collect())
    }
}

/// The port's error. A partition that only the client does not know may be one of a new topic, so a later request may succeed.
fn map_offset_err(error: &KafkaError, action: &str) -> Error {
    match error.rdkafka_error_code() {
        Some(Code::UnknownPartition) => Error::Unreachable(format!("{action}: {error}")),
        _ => map_err(error, action),
    }
}

pub(crate) fn partition_list<'a>(
    partitions: impl Iterator<Item = (&'a str, u32, Offset)>,
) -> Result<TopicPartitionList, Error> {
    let mut list = TopicPartitionList::new();
    for (topic, partition, offset) in partitions {
        let added = list.add_partition_offset(topic, partition as i32, offset);
        added.map_err(|error| map_err(&error, "building a list of partitions"))?;
    }
    Ok(list)
}
