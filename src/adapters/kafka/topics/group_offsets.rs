//! Reads the offsets that a consumer group has committed, sets its first ones, and commits them again, without joining the group.
use std::time::{Duration, Instant};

use ports::Error;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use crate::connection::client_config;
use crate::error::map_err;
use crate::options::Options;

/// Longest wait for the group's coordinator.
const COORDINATOR_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause before a repeated attempt to set first offsets.
const REPEAT_PAUSE: Duration = Duration::from_millis(50);

/// The committed offsets of a group in partition order. The client belongs to this call: librdkafka binds a group id to a client.
pub(crate) fn committed_offsets(
    options: &Options,
    group: &str,
    topic: &str,
    partitions: u32,
) -> Result<Vec<Option<u64>>, Error> {
    let failed = |error: KafkaError| map_err(&error, "reading a group's offsets");
    let client: BaseConsumer = client_config::group_offset_reader(options, group).create().map_err(failed)?;
    let mut request = TopicPartitionList::new();
    for partition in 0..partitions {
        request.add_partition(topic, partition as i32);
    }
    let response = client.committed_offsets(request, COORDINATOR_TIMEOUT).map_err(failed)?;
    let committed = |partition| match response.find_partition(topic, partition as i32)?.offset() {
        Offset::Offset(offset) => u64::try_from(offset).ok(),
        _ => None,
    };
    Ok((0..partitions).map(committed).collect())
}

/// Commits the end of each partition in which the group has no offset. The group must have no member. A topic that was created a moment ago may
/// not have its leaders in the client's view yet, so a failure that may pass is repeated.
pub(crate) fn commit_ends(options: &Options, group: &str, topics: &[String]) -> Result<(), Error> {
    let started = Instant::now();
    loop {
        match try_commit_ends(options, group, topics) {
            Err(Error::Unreachable(_)) if started.elapsed() < COORDINATOR_TIMEOUT => std::thread::sleep(REPEAT_PAUSE),
            result => return result,
        }
    }
}

/// One attempt of [`commit_ends`].
fn try_commit_ends(options: &Options, group: &str, topics: &[String]) -> Result<(), Error> {
    let failed = |error: KafkaError| map_err(&error, "setting a group's first offsets");
    let client: BaseConsumer = client_config::group_offset_reader(options, group).create().map_err(failed)?;
    let committed = committed_in(&client, topics).map_err(failed)?;
    let mut ends = TopicPartitionList::new();
    for element in committed.elements().iter().filter(|element| !matches!(element.offset(), Offset::Offset(_))) {
        let (topic, partition) = (element.topic(), element.partition());
        let (_, end) = client.fetch_watermarks(topic, partition, COORDINATOR_TIMEOUT).map_err(failed)?;
        ends.add_partition_offset(topic, partition, Offset::Offset(end)).map_err(failed)?;
    }
    if ends.count() == 0 {
        return Ok(());
    }
    client.commit(&ends, CommitMode::Sync).map_err(failed)
}

/// Commits the offsets that the group has again, with which their retention begins anew. The broker refuses it while the group has members, which
/// keep the offsets themselves.
pub(crate) fn commit_again(options: &Options, group: &str, topics: &[String]) -> Result<(), Error> {
    let failed = |error: KafkaError| map_err(&error, "committing a group's offsets again");
    let client: BaseConsumer = client_config::group_offset_reader(options, group).create().map_err(failed)?;
    let committed = committed_in(&client, topics).map_err(failed)?;
    let mut known = TopicPartitionList::new();
    for element in committed.elements().iter().filter(|element| matches!(element.offset(), Offset::Offset(_))) {
        known.add_partition_offset(element.topic(), element.partition(), element.offset()).map_err(failed)?;
    }
    if known.count() == 0 {
        return Ok(());
    }
    client.commit(&known, CommitMode::Sync).map_err(failed)
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
