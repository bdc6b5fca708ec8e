//! GroupConsumer: a consumer group in this instance, with the ports of its messages. `forwarding.rs` has its actions on messages that failed.
use std::sync::Arc;
use std::time::Duration;

use outbox::topics::RETRY_DELAYS;
use ports::Error;
use ports::broker::consumer_groups::{ConsumerGroups, GroupMember};
use ports::broker::{Broker, Header};
use ports::clock::Clock;
use ports::inbox::Inbox;
use supervision::SupervisionBus;
use telemetry::Metrics;

/// Shared by all members of a group in an instance.
pub struct GroupConsumer {
    /// Name of the consumer group.
    pub group: String,
    /// Topics of the group, retry topics included.
    pub topics: Vec<String>,
    /// Number of members in this instance.
    pub members: u32,
    /// The topic whose retry topics and dead letters are used; `None` for that of each message.
    pub base: Option<String>,
    /// Header of every forwarded message.
    pub mark: Option<Header>,
    /// Most keys of a poll whose messages are processed at the same time; those of one key follow each other.
    pub parallel_keys: usize,
    /// How long a message waits in each retry topic.
    pub retry_delays: [Duration; RETRY_DELAYS.len()],
    /// Source of the messages.
    pub groups: Arc<dyn ConsumerGroups>,
    /// Takes the records for retry topics and dead letters.
    pub broker: Arc<dyn Broker>,
    /// Keys whose messages wait for an earlier one, and the events that were already consumed.
    pub inbox: Arc<dyn Inbox>,
    /// Stamps forwarded records and decides when a retry is due.
    pub clock: Arc<dyn Clock>,
    /// Counters of the consumers.
    pub metrics: Arc<Metrics>,
    /// The live stream, for dead letters.
    pub events: SupervisionBus,
}

impl GroupConsumer {
    /// Makes a member of the group: number `number` of this instance.
    ///
    /// # Errors
    /// The broker cannot be reached, or accepts no member now.
    pub async fn join(&self, number: u32) -> Result<Arc<dyn GroupMember>, Error> {
        self.groups.join(&self.group, &self.topics, number, self.members).await
    }
}
