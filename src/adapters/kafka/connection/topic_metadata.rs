//! The number of a topic's partitions, as any client reads it.
use std::time::Duration;

use ports::Error;
use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::error::{map_code, map_err};

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
