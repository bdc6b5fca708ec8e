//! One turn of a consumer: poll → understand and judge → send onward what was not taken → remember what was → acknowledge.
use std::sync::Arc;
use std::time::Duration;

use app::handlers::Handlers;
use app::intake::{self, Failure, RETRY_DELAYS, Step, Understood};
use app::policy::conflict::Stand;
use domain::{RegionId, Timestamp};
use ports::Error;
use ports::broker::{Broker, Position, Record};
use ports::clock::Clock;
use ports::inbox::{DetourChange, Inbox, Mark, Marked};
use ports::source::{Delivery, Lag, Source, Sources};
use telemetry::Metrics;

/// What all consumers share.
pub struct Intake {
    /// Where messages come from.
    pub sources: Arc<dyn Sources>,
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

/// A turn's decisions, to be carried out in this order: onward, detours, marks, acknowledgement. A crash in between repeats the turn:
/// marks absorb it, and only a retried or dead message may then stand twice in its topic.
#[derive(Default)]
struct Turn {
    onward: Vec<Record>,
    detours: Vec<DetourChange>,
    marks: Vec<Mark>,
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
        source: Option<Arc<dyn Source>>,
        member: u32,
        patience: Duration,
    ) -> Result<Arc<dyn Source>, Error> {
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

    async fn decide(&self, source: &dyn Source, deliveries: &[Delivery]) -> Result<Turn, Error> {
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
        let stage = intake::stage_of(&delivery.position.topic)?;
        let waited = self.clock.now().since(delivery.record.timestamp);
        RETRY_DELAYS.get(stage)?.checked_sub(waited).filter(|left| !left.is_zero())
    }

    async fn take(&self, delivery: &Delivery, turn: &mut Turn) -> Result<(), Error> {
        let understood = match intake::understand(delivery) {
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
        if needs_order && let Some(stage) = self.detour(delivery, turn).await? {
            let failure = behind();
            self.retry(delivery, stage, &failure, understood.attempts_made, true, turn);
            return Ok(());
        }
        let remote = self.remote(&understood).await?;
        match intake::judge(&self.handlers, delivery, &understood, remote, self.clock.now()) {
            Step::Take { mark, stale } => {
                if stale {
                    self.metrics.region_conflict_rejected_count.inc();
                }
                turn.marks.push(mark);
                turn.written.push(understood.event.occurred_at);
                self.leave(delivery, needs_order, turn);
            }
            Step::Retry { stage, failure } => {
                self.retry(delivery, stage, &failure, understood.attempts_made + 1, needs_order, turn);
                self.leave(delivery, needs_order, turn);
            }
            Step::Dead(failure) => {
                self.dead(delivery, Some(understood.attempts_made + 1), &failure, turn);
                self.leave(delivery, needs_order, turn);
            }
        }
        Ok(())
    }

    /// Where a message of a key must go that waits behind an earlier one of it. Messages that come from a retry topic are the ones
    /// that are waited for.
    async fn detour(&self, delivery: &Delivery, turn: &Turn) -> Result<Option<u32>, Error> {
        if intake::stage_of(&delivery.position.topic).is_some() {
            return Ok(None);
        }
        let key = &*delivery.record.key;
        let in_this_turn = turn.detours.iter().find_map(|change| match change {
            DetourChange::Enter { key: entered, stage } if entered == key => Some(*stage),
            DetourChange::Enter { .. } | DetourChange::Leave { .. } => None,
        });
        match in_this_turn {
            Some(stage) => Ok(Some(stage)),
            None => Ok(self.inbox.detour(&self.group, key).await?.map(|detour| detour.stage)),
        }
    }

    async fn remote(&self, understood: &Understood) -> Result<Option<Option<Stand>>, Error> {
        if !intake::is_remote(understood, &self.region) {
            return Ok(None);
        }
        let last = self.inbox.remote(understood.event.order_id).await?;
        Ok(Some(last.map(|remote| Stand { hlc: remote.hlc, region: remote.region })))
    }

    fn retry(
        &self,
        delivery: &Delivery,
        stage: u32,
        failure: &Failure,
        attempts: u32,
        needs_order: bool,
        turn: &mut Turn,
    ) {
        self.metrics.kafka_consumer_retry_count.inc();
        let target = format!("{}-retry-{stage}", intake::base_topic(&delivery.position.topic));
        turn.onward.push(intake::onward(delivery, target, failure, attempts, self.clock.now()));
        if needs_order {
            turn.detours.push(DetourChange::Enter { key: delivery.record.key.to_string(), stage });
        }
    }

    fn leave(&self, delivery: &Delivery, needs_order: bool, turn: &mut Turn) {
        if needs_order && intake::stage_of(&delivery.position.topic).is_some() {
            turn.detours.push(DetourChange::Leave { key: delivery.record.key.to_string() });
        }
    }

    fn dead(&self, delivery: &Delivery, attempts: Option<u32>, failure: &Failure, turn: &mut Turn) {
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
        let target = format!("{}-dlt", intake::base_topic(topic));
        turn.onward.push(intake::onward(delivery, target, failure, attempts.unwrap_or(1), self.clock.now()));
    }

    async fn carry_out(&self, turn: Turn, source: &dyn Source) -> Result<(), Error> {
        if !turn.onward.is_empty() {
            self.broker.append(turn.onward).await?;
        }
        if !turn.detours.is_empty() {
            self.inbox.set_detours(&self.group, turn.detours).await?;
        }
        if !turn.marks.is_empty() {
            let marked = self.inbox.commit(&self.group, turn.marks).await?;
            let new = marked.iter().filter(|marked| **marked == Marked::New).count();
            self.metrics.kafka_consumer_processed_count.inc_by(new as u64);
            let now = self.clock.now();
            turn.written.iter().for_each(|at| self.metrics.kafka_consumer_lag_ms.record(now.since(*at)));
        }
        if !turn.done.is_empty() {
            source.acknowledge(&turn.done).await?;
        }
        Ok(())
    }

    /// The lag of each partition.
    pub(super) fn show_lag(&self, lag: &[Lag]) {
        for Lag { topic, partition, messages, .. } in lag {
            let partition = partition.to_string();
            self.metrics.kafka_consumer_lag.with([topic, &partition]).set(i64::try_from(*messages).unwrap_or(i64::MAX));
        }
    }
}

/// Why a message takes a detour although nothing is wrong with it.
fn behind() -> Failure {
    Failure {
        failure_type: ports::FailureType::System,
        class: "posthaste.WaitsForEarlier",
        reason: "an earlier message of its key is being retried".to_owned(),
    }
}
