//! The metadata of a topic that any client can read: its number of partitions, which of them have a leader, and whether the broker refuses it.
use std::collections::BTreeMap;
use std::time::Duration;

use ports::Error;
use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::error::{is_topic_failure, map_code, map_err};

/// The number of partitions of an existing topic; never zero.
pub(crate) fn partition_count<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    timeout: Duration,
) -> Result<u32, Error> {
    let action = format!("reading the metadata of topic {topic}");
    let metadata = client.fetch_metadata(Some(topic), timeout).map_err(|error| map_err(&error, &action))?;
    let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
        return Err(Error::Unreachable(format!("{action}: the broker returned none")));
    };
    if let Some(code) = found.error() {
        let code = Code::from(code);
        return Err(map_code(code, format!("{action}: {code}")));
    }
    match u32::try_from(found.partitions().len()) {
        Ok(0) | Err(_) => Err(Error::Unreachable(format!("{action}: the topic has no partitions yet"))),
        Ok(partitions) => Ok(partitions),
    }
}

/// Whether each partition of a topic has a leader; or the code with which the broker refuses the topic.
///
/// # Errors
/// No broker has answered in time.
pub(crate) fn leader_presence<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    timeout: Duration,
) -> Result<Result<BTreeMap<u32, bool>, Code>, Error> {
    match client.fetch_metadata(Some(topic), timeout) {
        Ok(metadata) => {
            let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
                return Ok(Ok(BTreeMap::new()));
            };
            let has_leader =
                found.partitions().iter().map(|partition| (partition.id().unsigned_abs(), partition.leader() >= 0));
            Ok(found.error().map_or_else(|| Ok(has_leader.collect()), |code| Err(Code::from(code))))
        }
        Err(error) => match error.rdkafka_error_code() {
            Some(code) if is_topic_failure(code) => Ok(Err(code)),
            _ => Err(map_err(&error, &format!("reading the metadata of topic {topic}"))),
        },
    }
}
