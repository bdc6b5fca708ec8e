//! Reads the offsets that a consumer group has committed, without joining the group.
use std::time::Duration;

use ports::Error;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use crate::connection::client_config;
use crate::error::map_err;
use crate::options::Options;

/// Longest wait for the group's coordinator.
const COORDINATOR_TIMEOUT: Duration = Duration::from_secs(10);

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
