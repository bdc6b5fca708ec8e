//! Reads the offsets that a consumer group has committed, sets its first ones, and renews their retention.
use std::sync::Arc;
use std::time::{Duration, Instant};

use ports::Error;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::{Offset, TopicPartitionList};

use crate::connection::broker_contact::BrokerContact;
use crate::connection::client_config;
use crate::error::map_err;
use crate::options::Options;
use crate::topics::group_members::GroupReader;
use crate::topics::partition_reader::{PartitionReader, partition_list};
use crate::topics::topic_kind::TopicKind;

/// Longest wait for the group's coordinator.
const COORDINATOR_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest wait for transactions that are open when a group is to begin at the end. A request over HTTP waits for it, and one that only ends needs
/// milliseconds. A transaction of another application may last longer: the group then begins before it.
const OPEN_TRANSACTIONS_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest time to join a group: the broker waits three seconds for more members by default.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Time of one poll of a member that waits for its partitions.
const POLL_TIME: Duration = Duration::from_millis(100);

/// Pause before a repeated attempt to set first offsets.
const REPEAT_PAUSE: Duration = Duration::from_millis(50);

/// The committed offsets of a group in partition order. The client belongs to this call: librdkafka binds a group id to a client.
pub(crate) fn committed_offsets(
    options: &Options,
    group: &str,
    topic: &str,
    partitions: u32,
) -> Result<Vec<Option<u64>>, Error> {
    let client_error = |error: KafkaError| map_err(&error, "reading a group's offsets");
    let client: BaseConsumer = client_config::group_offset_reader(options, group).create().map_err(client_error)?;
    let mut request = TopicPartitionList::new();
    for partition in 0..partitions {
        request.add_partition(topic, partition as i32);
    }
    let response = client.committed_offsets(request, COORDINATOR_TIMEOUT).map_err(client_error)?;
    let committed = |partition| match response.find_partition(topic, partition as i32)?.offset() {
        Offset::Offset(offset) => u64::try_from(offset).ok(),
        _ => None,
    };
    Ok((0..partitions).map(committed).collect())
}

/// Commits the end of each partition in which the group has no offset. The group must have no member. A topic that was created a moment ago may
/// not have its leaders in the client's view yet, so the attempt is repeated after a temporary failure.
pub(crate) fn commit_end_offsets(
    options: &Options,
    contact: &Arc<BrokerContact>,
    group: &str,
    topics: &[String],
) -> Result<(), Error> {
    let started = Instant::now();
    loop {
        match try_commit_ends(options, contact, group, topics) {
            Err(Error::Unreachable(_)) if started.elapsed() < COORDINATOR_TIMEOUT => std::thread::sleep(REPEAT_PAUSE),
            result => return result,
        }
    }
}

/// One attempt of [`commit_end_offsets`]. An event that was sent before belongs to no group that begins now, also where its transaction is only ending:
/// the end is the last stable offset once it has passed such transactions.
fn try_commit_ends(
    options: &Options,
    contact: &Arc<BrokerContact>,
    group: &str,
    topics: &[String],
) -> Result<(), Error> {
    let client_error = |error: KafkaError| map_err(&error, "setting a group's first offsets");
    let client: BaseConsumer = client_config::group_offset_reader(options, group).create().map_err(client_error)?;
    let committed = committed_in(&client, topics).map_err(client_error)?;
    let elements = committed.elements();
    let without_offset = elements.iter().filter(|element| !matches!(element.offset(), Offset::Offset(_)));
    let partitions: Vec<(String, u32)> =
        without_offset.map(|element| (element.topic().to_owned(), element.partition().unsigned_abs())).collect();
    if partitions.is_empty() {
        return Ok(());
    }
    let ends = PartitionReader::new(options, contact)
        .map_err(client_error)?
        .decided_ends(&partitions, OPEN_TRANSACTIONS_TIMEOUT)?;
    let ends = ends.iter().map(|((topic, partition), end)| (topic.as_str(), *partition, Offset::Offset(*end as i64)));
    client.commit(&partition_list(ends)?, CommitMode::Sync).map_err(client_error)
}

/// Joins the group and leaves it, if it has an offset and no member. The broker counts the retention of the offsets of a group that once had members
/// from the moment its last member left, so committing them again would not extend it (KIP-211). As long as a group has members, it keeps the offsets
/// of the topics to which they subscribe. A group that cannot be read is joined.
pub(crate) fn renew_retention(
    options: &Arc<Options>,
    contact: &Arc<BrokerContact>,
    group: &str,
    topics: &[String],
) -> Result<(), Error> {
    let members = GroupReader::new(options, contact).and_then(|reader| reader.read(group));
    if members.is_ok_and(|members| members.is_some_and(|members| !members.is_empty())) {
        return Ok(());
    }
    let client_error = |error: KafkaError| map_err(&error, "renewing the retention of a group's offsets");
    let reader: BaseConsumer = client_config::group_offset_reader(options, group).create().map_err(client_error)?;
    let committed = committed_in(&reader, topics).map_err(client_error)?;
    if !committed.elements().iter().any(|element| matches!(element.offset(), Offset::Offset(_))) {
        return Ok(());
    }
    // As the members of the group: a member that subscribes to topics of both kinds would make it mixed.
    let join = |(kind, topics): &(TopicKind, Vec<String>)| -> KafkaResult<BaseConsumer> {
        let member: BaseConsumer = kind.member_config(options, group).create()?;
        member.subscribe(&topics.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(member)
    };
    let members: Vec<_> = TopicKind::divide(topics).iter().map(join).collect::<Result<_, _>>().map_err(client_error)?;
    let started = Instant::now();
    while has_member_without_partition(&members).map_err(client_error)? {
        if started.elapsed() > JOIN_TIMEOUT {
            return Err(Error::Unreachable(format!("group {group} gave no partition within {JOIN_TIMEOUT:?}")));
        }
        // A message that comes with the assignment is not acknowledged.
        members.iter().for_each(|member| drop(member.poll(POLL_TIME)));
    }
    Ok(())
}

fn has_member_without_partition(members: &[BaseConsumer]) -> KafkaResult<bool> {
    for member in members {
        if member.assignment()?.count() == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Every partition of the topics with the offset that the client's group has committed in it.
fn committed_in(client: &BaseConsumer, topics: &[String]) -> Result<TopicPartitionList, KafkaError> {
    let mut request = TopicPartitionList::new();
    for topic in topics {
        let metadata = client.fetch_metadata(Some(topic), COORDINATOR_TIMEOUT)?;
        for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
            request.add_partition(topic, partition.id());
        }
    }
    client.committed_offsets(request, COORDINATOR_TIMEOUT)
}
