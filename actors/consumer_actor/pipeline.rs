//! ConsumerPipeline: one poll of a consumer. Poll → decode and decide → forward what failed → record what was consumed → acknowledge.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use app::consume::chain::ATTEMPTS_MAX;
use app::consume::forward::{Forward, ROUND_HEADER, forward_record};
use app::consume::handlers::Handlers;
use app::consume::intake::{self, DecodedMessage, IntakeFailure, IntakeStep};
use app::consume::spring_headers;
use app::policy::conflict::VersionStamp;
use app::policy::regional_clock::RegionalClock;
use domain::{OrderId, RegionId, Timestamp};
use futures::{StreamExt, TryStreamExt, stream};
use outbox::topics::{RETRY_DELAYS, base_topic, dead_letter_topic, retry_stage, retry_topic};
use ports::Error;
use ports::broker::consumer_groups::{ConsumerGroups, Delivery, GroupMember};
use ports::broker::{Broker, Position, Record};
use ports::clock::Clock;
use ports::inbox::{DetourChange, Effect, Inbox, InboxOutcome, ProcessedEvent};
use ports::orders::OrderStore;
use supervision::SupervisionBus;
use telemetry::Metrics;
use tracing::Instrument;

use crate::consumer_actor::message_log;

/// Shared by all consumers of an instance.
pub struct ConsumerPipeline {
    /// Source of the messages.
    pub groups: Arc<dyn ConsumerGroups>,
    /// Receives the messages for retry topics and dead letters.
    pub broker: Arc<dyn Broker>,
    /// Store of the events that were already consumed.
    pub inbox: Arc<dyn Inbox>,
    /// Orders of this region: the last change of an order decides whether an event of another region is stale.
    pub orders: Arc<dyn OrderStore>,
    /// Clock of this region, which the stamps of other regions advance.
    pub regional_clock: Arc<RegionalClock>,
    /// Handlers by event type.
    pub handlers: Handlers,
    /// Region of this instance; events of other regions are checked for conflicts.
    pub region: RegionId,
    /// Name of the consumer group.
    pub group: String,
    /// Topics of the group, retry topics included.
    pub topics: Vec<String>,
    /// Number of members in this instance.
    pub members: u32,
    /// Most messages of one poll.
    pub batch: u32,
    /// Most keys of a poll whose messages are handled at the same time; those of one key follow each other.
    pub parallel_keys: usize,
    /// How long a message waits in each retry topic.
    pub retry_delays: [Duration; RETRY_DELAYS.len()],
    /// Time, for delays and ages.
    pub clock: Arc<dyn Clock>,
    /// Counters of the consumers.
    pub metrics: Arc<Metrics>,
    /// The live stream, for dead letters.
    pub events: SupervisionBus,
}

/// Decisions of one poll or of one key's messages in it, applied in this order: forward, detours, processed, acknowledge. A crash in between repeats the poll: the inbox
/// absorbs the repetition, and only a retried or dead message may then appear twice in its topic.
#[derive(Default)]
struct Decisions {
    forward: Vec<Record>,
    detours: Vec<DetourChange>,
    processed: Vec<ProcessedEvent>,
    acknowledge: Vec<Position>,
    /// When each processed event happened, for its age at its consumption.
    occurred_at: Vec<Timestamp>,
    /// Number of messages whose processing failed: invalid ones, and those whose handler failed.
    failed: u64,
}

impl Decisions {
    fn append(&mut self, mut other: Decisions) {
        self.forward.append(&mut other.forward);
        self.detours.append(&mut other.detours);
        self.processed.append(&mut other.processed);
        self.acknowledge.append(&mut other.acknowledge);
        self.occurred_at.append(&mut other.occurred_at);
        self.failed += other.failed;
    }
}

impl ConsumerPipeline {
    /// One poll; joins the group first if there is no membership. Returns the membership for the next poll.
    ///
    /// # Errors
    /// A port's; no message of the poll is acknowledged then, so all are delivered again.
    pub async fn run_once(
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
        if deliveries.is_empty() {
            return Ok(member);
        }
        let processed = self.process(&*member, &deliveries).await;
        // After an error no message of the poll is acknowledged: the processing of each has failed.
        self.metrics.kafka_consumer_errors.inc_by(*processed.as_ref().unwrap_or(&(deliveries.len() as u64)));
        processed.map(|_| member)
    }

    /// Processes the messages of one poll. Returns the number of those that failed by themselves.
    async fn process(&self, member: &dyn GroupMember, deliveries: &[Delivery]) -> Result<u64, Error> {
        let decisions = self.decide(member, deliveries).await?;
        let failed = decisions.failed;
        self.apply(decisions, member).await?;
        Ok(failed)
    }

    async fn decide(&self, member: &dyn GroupMember, deliveries: &[Delivery]) -> Result<Decisions, Error> {
        let mut paused: Vec<(Arc<str>, u32)> = Vec::new();
        let mut due = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            let topic_partition = (Arc::clone(&delivery.position.topic), delivery.position.partition);
            if paused.contains(&topic_partition) {
                continue;
            }
            if let Some(wait) = self.remaining_delay(delivery) {
                member.pause(&delivery.position, wait).await?;
                paused.push(topic_partition);
                continue;
            }
            due.push(delivery);
        }
        let by_key = stream::iter(by_key(due)).map(|messages| self.decide_key(messages));
        let decided: Vec<Decisions> = by_key.buffered(self.parallel_keys.max(1)).try_collect().await?;
        Ok(decided.into_iter().fold(Decisions::default(), |mut all, of_key| {
            all.append(of_key);
            all
        }))
    }

    /// Decides on the messages of one key, one after the other.
    async fn decide_key(&self, messages: Vec<&Delivery>) -> Result<Decisions, Error> {
        let mut decisions = Decisions::default();
        for delivery in messages {
            self.decide_one(delivery, &mut decisions).instrument(message_log::span(delivery)).await?;
            decisions.acknowledge.push(delivery.position.clone());
        }
        Ok(decisions)
    }

    /// Time until a message of a retry topic is due. Its partition pauses; no task sleeps. A header with a later time than the longest
    /// delay, such as that of a wrong clock, does not hold the partition.
    fn remaining_delay(&self, delivery: &Delivery) -> Option<Duration> {
        let stage = retry_stage(&delivery.position.topic)?;
        let written = delivery.record.timestamp;
        let latest = written.after(*self.retry_delays.iter().max()?);
        let by_stage = || self.retry_delays.get(stage).map(|delay| written.after(*delay));
        let due = spring_headers::due(&delivery.record).map_or_else(by_stage, |due| Some(due.min(latest)))?;
        Some(due.since(self.clock.now())).filter(|left| !left.is_zero())
    }

    async fn decide_one(&self, delivery: &Delivery, decisions: &mut Decisions) -> Result<(), Error> {
        let decoded = match intake::decode(delivery) {
            Ok(decoded) => decoded,
            Err(failure) => {
                self.metrics.kafka_schema_validation_errors.inc();
                decisions.failed += 1;
                self.dead_letter(delivery, None, &failure, decisions);
                return Ok(());
            }
        };
        let version = decoded.event.schema_version.to_string();
        self.metrics.kafka_event_version_distribution.with([&version]).inc();
        let needs_order = self.handlers.of(decoded.event.kind).needs_order();
        let round = round_of(delivery).filter(|_| needs_order);
        if needs_order && let Some(ahead) = self.detour_ahead(delivery, decisions).await? {
            // Stage by stage, so that no message of the key overtakes an earlier one.
            let stage = round.map_or(0, |round| round + 1);
            self.retry(delivery, stage, Some(ahead), &waits_for_earlier(), decoded.attempts_made, decisions);
            self.leave_detour(delivery, needs_order, decisions);
            return Ok(());
        }
        let current = self.current_update(&decoded, decisions).await?;
        let horizon = self.regional_clock.horizon(self.clock.now());
        let step = intake::decide(&self.handlers, delivery, &decoded, current, horizon).await;
        match &step {
            IntakeStep::Block { stage: 0..ATTEMPTS_MAX, failure } => message_log::blocks_key(delivery, failure),
            IntakeStep::Retry { failure, .. } => {
                message_log::retried(delivery, decoded.attempts_made.saturating_add(1), failure);
            }
            IntakeStep::Block { .. } | IntakeStep::Process { .. } | IntakeStep::DeadLetter(_) => {}
        }
        match step {
            IntakeStep::Process { event, stale, fallback_after } => {
                tracing::debug!(
                    event = "event_consumed",
                    origin = decoded.stamp.region.as_str(),
                    stale,
                    "an event was consumed"
                );
                if stale {
                    self.metrics.region_conflict_rejected_count.inc();
                }
                if let Some(failure) = fallback_after {
                    self.metrics.kafka_consumer_fallback_count.inc();
                    message_log::handled_by_fallback(delivery, &failure);
                }
                decisions.processed.push(event);
                decisions.occurred_at.push(decoded.event.occurred_at);
                self.leave_detour(delivery, needs_order, decisions);
            }
            IntakeStep::Retry { stage, failure } | IntakeStep::Block { stage, failure } => {
                decisions.failed += 1;
                // A message that waited in a later topic than its own failures lead to continues from there: going back would let others overtake it.
                let stage = round.map_or(stage, |round| stage.max(round + 1));
                let detour = needs_order.then_some(stage);
                self.retry(delivery, stage, detour, &failure, decoded.attempts_made + 1, decisions);
                self.leave_detour(delivery, needs_order, decisions);
            }
            IntakeStep::DeadLetter(failure) => {
                decisions.failed += 1;
                self.dead_letter(delivery, Some(decoded.attempts_made + 1), &failure, decisions);
                self.leave_detour(delivery, needs_order, decisions);
            }
        }
        Ok(())
    }

    /// The stage of an earlier message of the key that this one must wait behind. A message that has reached that stage itself is the
    /// earlier message.
    async fn detour_ahead(&self, delivery: &Delivery, decisions: &Decisions) -> Result<Option<u32>, Error> {
        let key = &*delivery.record.key;
        let in_this_poll = decisions.detours.iter().rev().find_map(|change| match change {
            DetourChange::Enter { key: entered, stage } if entered == key => Some(*stage),
            DetourChange::Enter { .. } | DetourChange::Leave { .. } => None,
        });
        let ahead = match in_this_poll {
            Some(stage) => Some(stage),
            None => self.inbox.detour(&self.group, key).await?.map(|detour| detour.stage),
        };
        Ok(ahead.filter(|ahead| round_of(delivery).is_none_or(|round| round < *ahead)))
    }

    /// The update that an event of another region must win against; the outer `None` where the event is of this region. A received stamp
    /// advances the clock of this region.
    async fn current_update(
        &self,
        decoded: &DecodedMessage,
        decisions: &Decisions,
    ) -> Result<Option<Option<VersionStamp>>, Error> {
        if !intake::is_remote(decoded, &self.region) {
            return Ok(None);
        }
        let id = decoded.event.order_id;
        let (order, remote) = tokio::try_join!(self.orders.find(id), self.last_remote(id, decisions))?;
        self.regional_clock.receive(decoded.stamp.hlc, self.clock.now());
        Ok(Some(intake::current_update(decoded, order.as_ref(), remote)))
    }

    /// The last update of another region, of this poll or committed.
    async fn last_remote(&self, id: OrderId, decisions: &Decisions) -> Result<Option<VersionStamp>, Error> {
        let in_this_poll =
            decisions.processed.iter().rev().flat_map(|event| &event.effects).find_map(|effect| match effect {
                Effect::RememberRemote { order_id, region, hlc } => {
                    (*order_id == id).then(|| VersionStamp { hlc: *hlc, region: region.clone() })
                }
            });
        if in_this_poll.is_some() {
            return Ok(in_this_poll);
        }
        let last = self.inbox.remote(id).await?;
        Ok(last.map(|remote| VersionStamp { hlc: remote.hlc, region: remote.region }))
    }

    fn retry(
        &self,
        delivery: &Delivery,
        stage: u32,
        detour: Option<u32>,
        failure: &IntakeFailure,
        attempts: u32,
        decisions: &mut Decisions,
    ) {
        self.metrics.kafka_consumer_retry_count.inc();
        let topic_stage = stage.min(RETRY_DELAYS.len() as u32 - 1);
        let target = retry_topic(base_topic(&delivery.position.topic), topic_stage as usize);
        let now = self.clock.now();
        let due = now.after(self.retry_delays[topic_stage as usize]);
        let forward = Forward { target, group: &self.group, failure, attempts_made: attempts, now, due };
        let mut record = forward_record(delivery, forward);
        record.headers.retain(|(name, _)| &**name != ROUND_HEADER);
        if topic_stage < stage {
            record.headers.push((ROUND_HEADER.into(), stage.to_string().into_bytes().into()));
        }
        decisions.forward.push(record);
        if let Some(stage) = detour {
            decisions.detours.push(DetourChange::Enter { key: delivery.record.key.to_string(), stage });
        }
    }

    fn leave_detour(&self, delivery: &Delivery, needs_order: bool, decisions: &mut Decisions) {
        if needs_order && retry_stage(&delivery.position.topic).is_some() {
            decisions.detours.push(DetourChange::Leave { key: delivery.record.key.to_string() });
        }
    }

    fn dead_letter(
        &self,
        delivery: &Delivery,
        attempts: Option<u32>,
        failure: &IntakeFailure,
        decisions: &mut Decisions,
    ) {
        self.metrics.kafka_consumer_dlq_count.inc();
        message_log::dead_lettered(delivery, failure, &self.events);
        let target = dead_letter_topic(base_topic(&delivery.position.topic));
        let (attempts_made, now) = (attempts.unwrap_or(1), self.clock.now());
        let forward = Forward { target, group: &self.group, failure, attempts_made, now, due: now };
        decisions.forward.push(forward_record(delivery, forward));
    }

    async fn apply(&self, decisions: Decisions, member: &dyn GroupMember) -> Result<(), Error> {
        if !decisions.forward.is_empty() {
            self.broker.append(decisions.forward).await?;
        }
        if !decisions.detours.is_empty() {
            self.inbox.set_detours(&self.group, decisions.detours).await?;
        }
        if !decisions.processed.is_empty() {
            let outcomes = self.inbox.commit(&self.group, decisions.processed).await?;
            self.count(&outcomes, &decisions.occurred_at);
        }
        if !decisions.acknowledge.is_empty() {
            member.acknowledge(&decisions.acknowledge).await?;
        }
        Ok(())
    }

    /// Counts new events with their age. A duplicate is only counted: its age says nothing about the consumer.
    fn count(&self, outcomes: &[InboxOutcome], occurred_at: &[Timestamp]) {
        let now = self.clock.now();
        for (outcome, occurred_at) in outcomes.iter().zip(occurred_at) {
            match outcome {
                InboxOutcome::New => {
                    self.metrics.kafka_consumer_processed_count.inc();
                    self.metrics.kafka_consumer_lag_ms.record(now.since(*occurred_at));
                }
                InboxOutcome::Duplicate => self.metrics.kafka_consumer_duplicate_count.inc(),
            }
        }
    }
}

/// The messages of each key in their order, the keys in the order of their first messages.
fn by_key(deliveries: Vec<&Delivery>) -> Vec<Vec<&Delivery>> {
    let mut keys: Vec<Vec<&Delivery>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::with_capacity(deliveries.len());
    for delivery in deliveries {
        let place = *places.entry(&delivery.record.key).or_insert(keys.len());
        match keys.get_mut(place) {
            Some(messages) => messages.push(delivery),
            None => keys.push(vec![delivery]),
        }
    }
    keys
}

/// The round of a key's detour that a message of a retry topic belongs to: the topic's stage, and beyond the last topic the header's
/// count, which distinguishes a message that entered that topic again from those that were there before.
fn round_of(delivery: &Delivery) -> Option<u32> {
    let stage = u32::try_from(retry_stage(&delivery.position.topic)?).ok()?;
    let round = delivery.record.text(ROUND_HEADER).and_then(|text| text.parse().ok());
    Some(round.unwrap_or(stage))
}

/// The failure of a message that only waits for an earlier one of its key.
fn waits_for_earlier() -> IntakeFailure {
    IntakeFailure {
        failure_type: ports::FailureType::System,
        class: "posthaste.WaitsForEarlier",
        reason: "an earlier message of its key is being retried".to_owned(),
    }
}
