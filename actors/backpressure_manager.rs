//! BackpressureManager: samples lag, backlog and saturation each second, and publishes the level they lead to as one snapshot.
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use app::policy::backpressure::{Inputs, Level, Pressure};
use ports::Error;
use ports::outbox::{Depth, RowStatus};
use supervision::{Bus, Inbox, Job, State};
use tokio::time::Instant;

use crate::consumer_actor::{Behind, ConsumerActor};
use crate::failover_manager::{FailoverManager, Saturation};
use crate::world::{Options, World};

/// Time between samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Longest a neighbour may take to tell its part; without it the last one stands.
const ASK_DEADLINE: Duration = Duration::from_millis(500);

/// The level, as last judged.
#[derive(Message)]
#[rtype(result = "Level")]
pub struct HowHard;

/// The actor.
pub struct BackpressureManager {
    world: World,
    options: Arc<Options>,
    bus: Bus,
    consumers: Vec<Inbox<ConsumerActor>>,
    failover: Inbox<FailoverManager>,
    pressure: Pressure,
    born: Instant,
    inputs: Inputs,
}

/// What was measured in one round.
struct Sample {
    depth: Result<Depth, Error>,
    lag: Option<Duration>,
    saturation: Option<f64>,
}

impl BackpressureManager {
    /// A manager that feels nothing yet.
    pub fn new(
        world: World,
        options: Arc<Options>,
        bus: Bus,
        consumers: Vec<Inbox<ConsumerActor>>,
        failover: Inbox<FailoverManager>,
    ) -> Self {
        Self {
            world,
            options,
            bus,
            consumers,
            failover,
            pressure: Pressure::default(),
            born: Instant::now(),
            inputs: Inputs::default(),
        }
    }

    fn sample(&mut self, ctx: &mut Context<Self>) {
        let (outbox, consumers, failover) =
            (Arc::clone(&self.world.outbox), self.consumers.clone(), self.failover.clone());
        let work = async move {
            let depth = outbox.depth().await;
            let mut lag = None;
            for consumer in &consumers {
                let behind = consumer.try_ask(Behind, ASK_DEADLINE).await.unwrap_or_default();
                lag = lag.max(behind.iter().map(|lag| lag.age).max());
            }
            let saturation = failover.try_ask(Saturation, ASK_DEADLINE).await.ok();
            Sample { depth, lag, saturation }
        };
        ctx.spawn(work.into_actor(self).map(|sample, this, ctx| {
            this.judge(sample);
            ctx.run_later(SAMPLE_EVERY, Self::sample);
        }));
    }

    fn judge(&mut self, sample: Sample) {
        self.inputs.lag = sample.lag.unwrap_or_default();
        self.inputs.saturation = sample.saturation.unwrap_or(self.inputs.saturation);
        if let Ok(depth) = sample.depth {
            // Without a broker rows are meant to pile up: that is no pressure.
            let counts = self.world.broker.is_some();
            self.inputs.backlog = if counts { depth.pending + depth.failed } else { 0 };
            self.show_depth(&depth);
        }
        let before = self.pressure.level();
        let level = self.pressure.sample(self.born.elapsed(), &self.inputs, &self.options.pressure);
        self.world.gate.set_pressure(level == Level::Critical, level.factor());
        self.show(level);
        if level != before {
            self.tell(before, level);
        }
    }

    fn show(&self, level: Level) {
        let metrics = &self.world.metrics;
        metrics.backpressure_level.set(level.number());
        metrics.backpressure_outbox_backlog.set(whole(self.inputs.backlog));
        metrics.backpressure_kafka_lag_ms.set(whole(u64::try_from(self.inputs.lag.as_millis()).unwrap_or(u64::MAX)));
        metrics.backpressure_db_saturation_percent.set(self.inputs.saturation * 100.0);
        let inputs = self.inputs;
        self.world.vitals.paint(|picture| {
            picture.level = level;
            picture.inputs = inputs;
        });
        self.show_mailboxes();
    }

    fn show_depth(&self, depth: &Depth) {
        let metrics = &self.world.metrics;
        metrics.outbox_pending_count.set(whole(depth.pending));
        metrics.outbox_failure_count.set(whole(depth.failed + depth.parked));
        for status in RowStatus::ALL {
            let rows = match status {
                RowStatus::Pending => depth.pending,
                RowStatus::InFlight => depth.in_flight,
                RowStatus::Failed => depth.failed,
                RowStatus::Parked => depth.parked,
                RowStatus::Sent => depth.sent,
            };
            metrics.outbox_rows.with([status.as_str()]).set(whole(rows));
        }
        let age = depth.oldest_unsent.unwrap_or_default();
        metrics.outbox_oldest_pending_age_seconds.set(age.as_secs_f64());
        metrics.outbox_lag.record(age);
        let (depth, now) = (*depth, self.world.clock.now());
        self.world.vitals.paint(|picture| {
            picture.depth = depth;
            picture.measured_at = Some(now);
        });
    }

    /// Mailboxes per kind of actor: depth and capacity added up, how many are up.
    fn show_mailboxes(&self) {
        let metrics = &self.world.metrics;
        let mut kinds: std::collections::BTreeMap<&str, (i64, i64, i64)> = std::collections::BTreeMap::new();
        for row in self.bus.snapshot() {
            let kind = kinds.entry(row.actor).or_default();
            kind.0 += i64::from(row.state == State::Running);
            kind.1 += i64::try_from(row.mailbox_depth).unwrap_or(i64::MAX);
            kind.2 += i64::try_from(row.mailbox_capacity).unwrap_or(i64::MAX);
        }
        for (kind, (up, depth, capacity)) in kinds {
            metrics.actor_up.with([kind]).set(up);
            metrics.actor_mailbox_depth.with([kind]).set(depth);
            metrics.actor_mailbox_capacity.with([kind]).set(capacity);
        }
    }

    fn tell(&self, before: Level, level: Level) {
        let (from, to) = (before.as_str(), level.as_str());
        let Inputs { lag, backlog, saturation } = self.inputs;
        let lag_ms = lag.as_millis() as u64;
        self.world.metrics.rate_limit_dynamic_adjustments.inc();
        if level > before {
            tracing::warn!(event = "pressure_changed", from, to, lag_ms, backlog, saturation, "pressure rose");
        } else {
            tracing::info!(event = "pressure_changed", from, to, lag_ms, backlog, saturation, "pressure fell");
        }
        self.bus.publish_note("pressure_changed", vec![("from", from.to_owned()), ("to", to.to_owned())]);
    }
}

fn whole(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Actor for BackpressureManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.sample(ctx);
    }
}

supervision::supervised!(BackpressureManager);

impl Handler<Job<HowHard>> for BackpressureManager {
    type Result = MessageResult<Job<HowHard>>;

    fn handle(&mut self, job: Job<HowHard>, ctx: &mut Self::Context) -> Self::Result {
        let (HowHard, _slot) = job.open(ctx);
        MessageResult(self.pressure.level())
    }
}
