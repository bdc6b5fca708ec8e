//! One turn of a consumer: poll → understand and judge → send onward what was not taken → remember what was → acknowledge.
use std::sync::Arc;
use std::time::Duration;

use app::consume::handlers::Handlers;
use app::consume::intake::{self, DecodedMessage, IntakeFailure, IntakeStep};
use app::policy::conflict::VersionStamp;
use domain::{RegionId, Timestamp};
use outbox::topics::{self, RETRY_DELAYS};
use ports::Error;
use ports::broker::{Broker, Position, Record};
use ports::clock::Clock;
use ports::inbox::{DetourChange, Effect, Inbox, InboxOutcome, ProcessedEvent};
use ports::source::{ConsumerGroups, Delivery, GroupMember, Lag};
use telemetry::Metrics;

/// What all consumers share.
pub struct Intake {
    /// Where messages come from.
    pub sources: Arc<dyn ConsumerGroups>,
    /// Where those go that were not taken.
    pub broker: Arc<dyn Broker>,
    /// What was already consumed.
    pub inbox: Arc<dyn Inbox>,
    /// What consuming means.
    pub handlers: Handlers,
    /// Our region.
    pub region: RegionId,
    /// The group.
    pub group: String,
    /// What it reads, retry topics included.
    pub topics: Vec<String>,
    /// How many members this instance has.
    pub members: u32,
    /// Messages of one turn.
    pub batch: u32,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

/// Names the round in a message that goes into the last retry topic again.
const ROUND: &str = "x-detour-round";

/// A turn's decisions, to be carried out in this order: onward, detours, marks, acknowledgement. A crash in between repeats the turn:
/// marks absorb it, and only a retried or dead message may then stand twice in its topic.
#[derive(Default)]
struct Turn {
    onward: Vec<Record>,
    detours: Vec<DetourChange>,
    marks: Vec<ProcessedEvent>,
    done: Vec<Position>,
    /// When the marked events happened, for their age once they are consumed.
    written: Vec<Timestamp>,
}

impl Intake {
    /// One turn; joins first where there is no membership.
    ///
    /// # Errors
    /// A port's: nothing of the turn is acknowledged then, it comes again.
    pub(super) async fn turn(
        &self,
        source: Option<Arc<dyn GroupMember>>,
        member: u32,
        patience: Duration,
    ) -> Result<Arc<dyn GroupMember>, Error> {
        let source = match source {
            Some(source) => source,
            None => self.sources.join(&self.group, &self.topics, member, self.members).await?,
        };
        let deliveries = source.poll(self.batch, patience).await?;
        if deliveries.is_empty() {
            return Ok(source);
        }
        let turn = self.decide(&*source, &deliveries).await?;
        self.carry_out(turn, &*source).await?;
        Ok(source)
    }

    async fn decide(&self, source: &dyn GroupMember, deliveries: &[Delivery]) -> Result<Turn, Error> {
        let mut turn = Turn::default();
        let mut paused: Vec<(Arc<str>, u32)> = Vec::new();
        for delivery in deliveries {
            let place = (Arc::clone(&delivery.position.topic), delivery.position.partition);
            if paused.contains(&place) {
                continue;
            }
            if let Some(wait) = self.not_yet(delivery) {
                source.pause(&delivery.position, wait).await?;
                paused.push(place);
                continue;
            }
            self.take(delivery, &mut turn).await?;
            turn.done.push(delivery.position.clone());
        }
        Ok(turn)
    }

    /// Retry topics pause, they do not sleep: a message waits for its delay since it was written there.
    fn not_yet(&self, delivery: &Delivery) -> Option<Duration> {
        let stage = topics::retry_stage(&delivery.position.topic)?;
        let waited = self.clock.now().since(delivery.record.timestamp);
        RETRY_DELAYS.get(stage)?.checked_sub(waited).filter(|left| !left.is_zero())
    }

    async fn take(&self, delivery: &Delivery, turn: &mut Turn) -> Result<(), Error> {
        let understood = match intake::decode(delivery) {
            Ok(understood) => understood,
            Err(failure) => {
                self.metrics.kafka_schema_validation_errors.inc();
                self.dead(delivery, None, &failure, turn);
                return Ok(());
            }
        };
        let version = understood.event.schema_version.to_string();
        self.metrics.kafka_event_version_distribution.with([&version]).inc();
        let needs_order = self.handlers.of(understood.event.kind).needs_order();
        let round = round_of(delivery).filter(|_| needs_order);
        if needs_order && let Some(ahead) = self.detour(delivery, turn).await? {
            // Stage by stage, so that no follower passes one that follows too.
            let stage = round.map_or(0, |round| round + 1);
            self.retry(delivery, stage, Some(ahead), &behind(), understood.attempts_made, turn);
            self.leave(delivery, needs_order, turn);
            return Ok(());
        }
        let remote = self.remote(&understood, turn).await?;
        match intake::decide(&self.handlers, delivery, &understood, remote, self.clock.now()) {
            IntakeStep::Process { event, stale } => {
                if stale {
                    self.metrics.region_conflict_rejected_count.inc();
                }
                turn.marks.push(event);
                turn.written.push(understood.event.occurred_at);
                self.leave(delivery, needs_order, turn);
            }
            IntakeStep::Retry { stage, failure } => {
                // One that waited in a later topic than its own failures lead to goes on from there: back would be past its followers.
                let stage = round.map_or(stage, |round| stage.max(round + 1));
                let detour = needs_order.then_some(stage);
                self.retry(delivery, stage, detour, &failure, understood.attempts_made + 1, turn);
                self.leave(delivery, needs_order, turn);
            }
            IntakeStep::DeadLetter(failure) => {
                self.dead(delivery, Some(understood.attempts_made + 1), &failure, turn);
                self.leave(delivery, needs_order, turn);
            }
        }
        Ok(())
    }

    /// How far an earlier message of the key has got on its detour, behind which this one must stay. One that has got as far itself is
    /// the one that is waited for.
    async fn detour(&self, delivery: &Delivery, turn: &Turn) -> Result<Option<u32>, Error> {
        let key = &*delivery.record.key;
        let in_this_turn = turn.detours.iter().rev().find_map(|change| match change {
            DetourChange::Enter { key: entered, stage } if entered == key => Some(*stage),
            DetourChange::Enter { .. } | DetourChange::Leave { .. } => None,
        });
        let ahead = match in_this_turn {
            Some(stage) => Some(stage),
            None => self.inbox.detour(&self.group, key).await?.map(|detour| detour.stage),
        };
        Ok(ahead.filter(|ahead| round_of(delivery).is_none_or(|round| round < *ahead)))
    }

    async fn remote(&self, understood: &DecodedMessage, turn: &Turn) -> Result<Option<Option<VersionStamp>>, Error> {
        if !intake::is_remote(understood, &self.region) {
            return Ok(None);
        }
        let id = understood.event.order_id;
        let in_this_turn = turn.marks.iter().rev().flat_map(|mark| &mark.effects).find_map(|effect| match effect {
            Effect::RememberRemote { order_id, region, hlc } => {
                (*order_id == id).then(|| VersionStamp { hlc: *hlc, region: region.clone() })
            }
        });
        match in_this_turn {
            Some(stand) => Ok(Some(Some(stand))),
            None => {
                let last = self.inbox.remote(id).await?;
                Ok(Some(last.map(|remote| VersionStamp { hlc: remote.hlc, region: remote.region })))
            }
        }
    }

    fn retry(
        &self,
        delivery: &Delivery,
        stage: u32,
        detour: Option<u32>,
        failure: &IntakeFailure,
        attempts: u32,
        turn: &mut Turn,
    ) {
        self.metrics.kafka_consumer_retry_count.inc();
        let topic = stage.min(RETRY_DELAYS.len() as u32 - 1);
        let target = topics::retry_topic(topics::base_topic(&delivery.position.topic), topic as usize);
        let mut onward = intake::forward_record(delivery, target, failure, attempts, self.clock.now());
        onward.headers.retain(|(name, _)| &**name != ROUND);
        if topic < stage {
            onward.headers.push((ROUND.into(), stage.to_string().into_bytes().into()));
        }
        turn.onward.push(onward);
        if let Some(stage) = detour {
            turn.detours.push(DetourChange::Enter { key: delivery.record.key.to_string(), stage });
        }
    }

    fn leave(&self, delivery: &Delivery, needs_order: bool, turn: &mut Turn) {
        if needs_order && topics::retry_stage(&delivery.position.topic).is_some() {
            turn.detours.push(DetourChange::Leave { key: delivery.record.key.to_string() });
        }
    }

    fn dead(&self, delivery: &Delivery, attempts: Option<u32>, failure: &IntakeFailure, turn: &mut Turn) {
        self.metrics.kafka_consumer_dlq_count.inc();
        let Position { topic, partition, offset } = &delivery.position;
        tracing::error!(
            event = "message_dead_lettered",
            topic = &**topic,
            partition,
            offset,
            key = &*delivery.record.key,
            error = failure.reason.as_str(),
            "a message was set aside in the dead letters"
        );
        let target = topics::dead_letter_topic(topics::base_topic(topic));
        turn.onward.push(intake::forward_record(delivery, target, failure, attempts.unwrap_or(1), self.clock.now()));
    }

    async fn carry_out(&self, turn: Turn, source: &dyn GroupMember) -> Result<(), Error> {
        if !turn.onward.is_empty() {
            self.broker.append(turn.onward).await?;
        }
        if !turn.detours.is_empty() {
            self.inbox.set_detours(&self.group, turn.detours).await?;
        }
        if !turn.marks.is_empty() {
            let marked = self.inbox.commit(&self.group, turn.marks).await?;
            self.count(&marked, &turn.written);
        }
        if !turn.done.is_empty() {
            source.acknowledge(&turn.done).await?;
        }
        Ok(())
    }

    /// A duplicate was consumed when it came first: it is counted, and its age would say nothing.
    fn count(&self, marked: &[InboxOutcome], written: &[Timestamp]) {
        let now = self.clock.now();
        for (marked, written) in marked.iter().zip(written) {
            match marked {
                InboxOutcome::New => {
                    self.metrics.kafka_consumer_processed_count.inc();
                    self.metrics.kafka_consumer_lag_ms.record(now.since(*written));
                }
                InboxOutcome::Duplicate => self.metrics.kafka_consumer_duplicate_count.inc(),
            }
        }
    }

    /// The lag of each partition.
    pub(super) fn show_lag(&self, lag: &[Lag]) {
        for Lag { topic, partition, messages, .. } in lag {
            let partition = partition.to_string();
            self.metrics.kafka_consumer_lag.with([topic, &partition]).set(i64::try_from(*messages).unwrap_or(i64::MAX));
        }
    }
}

/// The round of a key's detour that a message from a retry topic is in: its topic's number, and beyond the last topic a count of its
/// own, which tells a message that went into that topic again from those that stand there since before.
fn round_of(delivery: &Delivery) -> Option<u32> {
    let stage = u32::try_from(topics::retry_stage(&delivery.position.topic)?).ok()?;
    let round = delivery.record.text(ROUND).and_then(|told| told.parse().ok());
    Some(round.unwrap_or(stage))
}

/// Why a message takes a detour although nothing is wrong with it.
fn behind() -> IntakeFailure {
    IntakeFailure {
        failure_type: ports::FailureType::System,
        class: "posthaste.WaitsForEarlier",
        reason: "an earlier message of its key is being retried".to_owned(),
    }
}
