//! GroupConsumer: a consumer group in this instance, with the ports of its messages. `forwarding.rs` has its decisions on messages that failed.
use std::sync::Arc;
use std::time::Duration;

use outbox::topics::RETRY_DELAYS;
use ports::Error;
use ports::broker::Broker;
use ports::broker::consumer_groups::{AckOutcome, ConsumerGroups, GroupMember};
use ports::clock::Clock;
use ports::inbox::{Inbox, InboxOutcome};
use supervision::SupervisionBus;
use telemetry::Metrics;

use crate::consumer_actor::clock_skews::ClockSkews;
use crate::consumer_actor::decisions::{Decisions, EventMetricInput, split_retry_routes};
use crate::consumer_actor::message_log;

/// Shared by all members of a group in an instance.
pub struct GroupConsumer {
    /// Name of the consumer group.
    pub group: String,
    /// Topics of the group, retry topics included.
    pub topics: Vec<String>,
    /// Number of members in this instance.
    pub members: u32,
    /// The topic whose retry topics and dead letters are used.
    pub base: String,
    /// Name and value of a header that every forwarded message gets; `None` where no other group uses the same retry topics.
    pub added_header: Option<(&'static str, String)>,
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
    /// Writers of retry topics whose clock is ahead.
    pub clock_skews: ClockSkews,
    /// Stamps forwarded records and decides when a retry is due.
    pub clock: Arc<dyn Clock>,
    /// Counters of the consumers.
    pub metrics: Arc<Metrics>,
    /// The live stream, for dead letters.
    pub bus: SupervisionBus,
}

impl GroupConsumer {
    /// Makes a member of the group: number `number` of this instance.
    ///
    /// # Errors
    /// The broker cannot be reached, or accepts no member now.
    pub async fn join(&self, number: u32) -> Result<Arc<dyn GroupMember>, Error> {
        self.groups.join(&self.group, &self.topics, number, self.members).await
    }

    /// Whether the service stops: no further message is begun, and the decisions made so far are applied.
    pub fn is_stopping(&self) -> bool {
        self.bus.is_shutting_down()
    }

    /// Applies decisions in the order of their fields, the ends of retry routes last. Messages of partitions that the member has lost meanwhile
    /// are not acknowledged, and no retry route ends then: the partition's next member receives them again.
    ///
    /// # Errors
    /// Returns the error of a port. Messages that are not acknowledged then are delivered again; a retry route without its recorded end ends with
    /// the next message of its key.
    pub async fn apply(&self, decisions: Decisions, member: &dyn GroupMember) -> Result<(), Error> {
        let Decisions { processed, forward, mut retry_routes, acknowledge, metric_inputs, failed: _ } = decisions;
        if !processed.is_empty() {
            let outcomes = self.inbox.commit(&self.group, processed).await?;
            self.count_processed(&outcomes, &metric_inputs);
        }
        if !forward.is_empty() {
            self.append_forwards(forward, &mut retry_routes).await?;
        }
        let (entries, ends) = split_retry_routes(retry_routes);
        if !entries.is_empty() {
            self.inbox.update_retry_routes(&self.group, entries).await?;
        }
        if !acknowledge.is_empty() {
            let acknowledged = member.acknowledge(&acknowledge).await?;
            if acknowledged == AckOutcome::PartitionsLost {
                message_log::partitions_lost(&self.group);
                return Ok(());
            }
        }
        if ends.is_empty() { Ok(()) } else { self.inbox.update_retry_routes(&self.group, ends).await }
    }

    /// Counts new events with their age. A duplicate is only counted: its age says nothing about the consumer.
    fn count_processed(&self, outcomes: &[InboxOutcome], inputs: &[EventMetricInput]) {
        let now = self.clock.now();
        for (outcome, EventMetricInput { occurred_at, is_stale }) in outcomes.iter().zip(inputs) {
            match outcome {
                InboxOutcome::New => {
                    self.metrics.kafka_consumer_processed_count.inc();
                    self.metrics.kafka_consumer_lag_ms.record(now.since(*occurred_at));
                    self.metrics.region_conflict_rejected_count.inc_by(u64::from(*is_stale));
                }
                InboxOutcome::Duplicate => self.metrics.kafka_consumer_duplicate_count.inc(),
            }
        }
    }
}
