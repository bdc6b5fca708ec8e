//! TopicPipeline: one poll of a consumer of another service's topic. Poll → call the endpoint → forward what failed → acknowledge.
use std::sync::Arc;
use std::time::Duration;

use app::consume::chain::{ATTEMPTS_MAX, ChainOutcome};
use app::consume::event_handler::HandlerFault;
use app::consume::intake::IntakeFailure;
use app::consume::spring_headers;
use app::consume::topic_chain::TopicChain;
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use outbox::topics::RETRY_DELAYS;
use ports::Error;
use ports::broker::Broker;
use ports::broker::consumer_groups::{ConsumerGroups, Delivery, GroupMember};
use ports::clock::Clock;
use ports::inbox::Inbox;
use supervision::SupervisionBus;
use telemetry::Metrics;
use tracing::Instrument;

use crate::consumer_actor::forwarding::{Decisions, Forwarding, by_key};
use crate::consumer_actor::message_log;
use crate::consumer_actor::work::ConsumerWork;

/// The group that holds the offsets of a topic's consumers.
pub fn group(topic: &str) -> String {
    format!("posthaste-{topic}")
}

/// The consumers of a topic as the configuration describes them.
#[derive(Clone)]
pub struct TopicConsumers {
    /// Full name of the topic.
    pub topic: String,
    /// Number of members in this instance.
    pub members: u32,
    /// What receives the events.
    pub chain: TopicChain,
}

/// Shared by the consumers of one topic in an instance.
pub struct TopicPipeline {
    /// Name of the consumer group.
    pub group: String,
    /// The topic and its retry topics.
    pub topics: Vec<String>,
    /// Number of members in this instance.
    pub members: u32,
    /// What receives the events.
    pub chain: TopicChain,
    /// Source of the events.
    pub groups: Arc<dyn ConsumerGroups>,
    /// Receives the events for retry topics and dead letters.
    pub broker: Arc<dyn Broker>,
    /// Keys whose events wait for an earlier one.
    pub inbox: Arc<dyn Inbox>,
    /// Most events of one poll.
    pub batch: u32,
    /// Most keys of a poll whose events are sent at the same time; those of one key follow each other.
    pub parallel_keys: usize,
    /// How long an event waits in each retry topic.
    pub retry_delays: [Duration; RETRY_DELAYS.len()],
    /// Stamps forwarded events, and decides when a retry is due.
    pub clock: Arc<dyn Clock>,
    /// Counters of the consumers.
    pub metrics: Arc<Metrics>,
    /// The live stream, for dead letters.
    pub events: SupervisionBus,
}

#[async_trait(?Send)]
impl ConsumerWork for TopicPipeline {
    fn group(&self) -> &str {
        &self.group
    }

    async fn run_once(
        &self,
        member: Option<Arc<dyn GroupMember>>,
        number: u32,
        timeout: Duration,
    ) -> Result<Arc<dyn GroupMember>, Error> {
        let member = match member {
            Some(member) => member,
            None => self.groups.join(&self.group, &self.topics, number, self.members).await?,
        };
        let deliveries = member.poll(self.batch, timeout).await?;
        if !deliveries.is_empty() {
            let processed = self.process(&*member, &deliveries).await;
            // After an error no event of the poll is acknowledged: the processing of each has failed.
            self.metrics.kafka_consumer_errors.inc_by(*processed.as_ref().unwrap_or(&(deliveries.len() as u64)));
            processed?;
        }
        Ok(member)
    }
}

impl TopicPipeline {
    fn forwarding(&self) -> Forwarding<'_> {
        Forwarding {
            group: &self.group,
            base: None,
            mark: None,
            retry_delays: &self.retry_delays,
            broker: &*self.broker,
            inbox: &*self.inbox,
            clock: &*self.clock,
            metrics: &self.metrics,
            events: &self.events,
        }
    }

    /// Sends the events of one poll. Returns the number of those that failed.
    async fn process(&self, member: &dyn GroupMember, deliveries: &[Delivery]) -> Result<u64, Error> {
        let _in_hand = message_log::in_hand(deliveries);
        let forwarding = self.forwarding();
        let (due, _) = forwarding.due(member, deliveries, |_| true).await?;
        let keys = stream::iter(by_key(due)).map(|messages| self.send_all(messages));
        let decided: Vec<Decisions> = keys.buffered(self.parallel_keys.max(1)).try_collect().await?;
        let mut decisions = Decisions::default();
        decided.into_iter().for_each(|of_key| decisions.append(of_key));
        forwarding.apply(&mut decisions).await?;
        if !decisions.acknowledge.is_empty() {
            member.acknowledge(&decisions.acknowledge).await?;
        }
        Ok(decisions.failed)
    }

    /// Sends the events of one key, one after the other.
    async fn send_all(&self, messages: Vec<&Delivery>) -> Result<Decisions, Error> {
        let mut decisions = Decisions::default();
        for message in messages {
            self.send(message, &mut decisions).instrument(message_log::span(message)).await?;
            decisions.acknowledge.push(message.position.clone());
        }
        Ok(decisions)
    }

    async fn send(&self, message: &Delivery, decisions: &mut Decisions) -> Result<(), Error> {
        let (forwarding, ordered) = (self.forwarding(), true);
        let stage = spring_headers::attempts_made(&message.record).unwrap_or(0);
        if forwarding.wait_for_earlier(message, ordered, stage, decisions).await? {
            return Ok(());
        }
        let attempt = stage.saturating_add(1);
        match self.chain.run(&message.record, attempt).await {
            ChainOutcome::Handled { fallback_after, .. } => {
                if let Some(fault) = fallback_after {
                    self.metrics.kafka_consumer_fallback_count.inc();
                    message_log::handled_by_fallback(message, &failure(fault));
                }
                self.metrics.kafka_consumer_processed_count.inc();
                forwarding.leave_detour(message, ordered, decisions);
            }
            ChainOutcome::Retry(fault) => {
                let failure = failure(fault);
                message_log::retried(message, attempt, &failure);
                decisions.failed += 1;
                forwarding.retry(message, stage, ordered, &failure, attempt, decisions);
            }
            ChainOutcome::Blocked(fault) => {
                let failure = failure(fault);
                if stage < ATTEMPTS_MAX {
                    message_log::blocks_key(message, &failure);
                }
                decisions.failed += 1;
                forwarding.retry(message, stage, ordered, &failure, attempt, decisions);
            }
            ChainOutcome::Failed(fault) => {
                decisions.failed += 1;
                forwarding.dead_letter(message, Some(attempt), &failure(fault), decisions);
                forwarding.leave_detour(message, ordered, decisions);
            }
        }
        Ok(())
    }
}

fn failure(fault: HandlerFault) -> IntakeFailure {
    IntakeFailure { failure_type: fault.failure_type, class: "posthaste.HandlerFault", reason: fault.reason }
}
