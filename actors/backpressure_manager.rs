//! BackpressureManager: samples lag, backlog and saturation each second, and publishes the level they lead to as one snapshot.
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use app::policy::backpressure::{Inputs, Level, Pressure, Stage};
use futures::future::join_all;
use ports::outbox::{Depth, RowStatus};
use ports::probe::Probe;
use supervision::{ActorState, Mailbox, MailboxMessage, SupervisionBus};
use tokio::time::Instant;

use crate::consumer_actor::{Behind, ConsumerActor};
use crate::world::{Options, World};

/// Time between samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Time between two looks at the store's connections. Each is in use for a millisecond or not: only how many are in use all the time tells
/// a pool that copes from one that does not.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest a consumer may take to tell how far it is behind; where none does, what was told last stands.
const ASK_DEADLINE: Duration = Duration::from_millis(500);

/// The level, as last judged.
#[derive(Message)]
#[rtype(result = "Level")]
pub struct HowHard;

/// The actor.
pub struct BackpressureManager {
    world: World,
    options: Arc<Options>,
    bus: SupervisionBus,
    consumers: Vec<Mailbox<ConsumerActor>>,
    store: Option<Arc<dyn Probe>>,
    pressure: Pressure,
    born: Instant,
    inputs: Inputs,
    /// What the looks since the last sample saw, added up, and how many they were.
    looks: (f64, u32),
}

impl BackpressureManager {
    /// A manager that feels nothing yet.
    pub fn new(
        world: World,
        options: Arc<Options>,
        bus: SupervisionBus,
        consumers: Vec<Mailbox<ConsumerActor>>,
    ) -> Self {
        let store = world.probes.iter().map(|(probe, _)| probe).find(|probe| probe.name() == "db").cloned();
        // A manager that comes back finds the gate as it left it: a death opens none.
        let pressure = Pressure::at(world.gate.stage());
        Self {
            world,
            options,
            bus,
            consumers,
            store,
            pressure,
            born: Instant::now(),
            inputs: Inputs::default(),
            looks: (0.0, 0),
        }
    }

    /// Counts what waits. A round of its own: a store that is slow to count must not slow the samples down that tell of it.
    fn count(&mut self, ctx: &mut Context<Self>) {
        let outbox = Arc::clone(&self.world.outbox);
        let work = async move { outbox.depth().await };
        ctx.spawn(work.into_actor(self).map(|depth, this, ctx| {
            if let Ok(depth) = depth {
                // Without a broker rows are meant to pile up: that is no pressure.
                let counts = this.world.broker.is_some();
                this.inputs.backlog = if counts { depth.pending + depth.failed } else { 0 };
                this.show_depth(&depth);
            }
            ctx.run_later(SAMPLE_EVERY, Self::count);
        }));
    }

    fn sample(&mut self, ctx: &mut Context<Self>) {
        let consumers = self.consumers.clone();
        let work = async move {
            let asked = consumers.iter().map(|consumer| consumer.try_ask(Behind, ASK_DEADLINE));
            let told = join_all(asked).await.into_iter().flatten();
            told.map(|behind| behind.iter().map(|lag| lag.age).max().unwrap_or_default()).max()
        };
        ctx.spawn(work.into_actor(self).map(|lag, this, ctx| {
            this.judge(lag);
            ctx.run_later(SAMPLE_EVERY, Self::sample);
        }));
    }

    fn look(&mut self) {
        if let Some(saturation) = self.store.as_ref().and_then(|store| store.saturation()) {
            self.looks.0 += saturation;
            self.looks.1 += 1;
        }
    }

    fn judge(&mut self, lag: Option<Duration>) {
        self.inputs.lag = lag.unwrap_or(self.inputs.lag);
        self.look();
        let (sum, looks) = std::mem::take(&mut self.looks);
        self.inputs.saturation = sum / f64::from(looks.max(1));
        let before = self.pressure.stage().level();
        let stage = self.pressure.sample(self.born.elapsed(), &self.inputs, &self.options.pressure);
        self.world.gate.set_stage(stage);
        self.show(stage);
        if stage.level() != before {
            self.tell(before, stage.level());
        }
    }

    fn show(&self, stage: Stage) {
        let metrics = &self.world.metrics;
        metrics.backpressure_level.set(stage.level().number());
        metrics.backpressure_throttling_factor.set(stage.limit_factor());
        metrics.backpressure_outbox_backlog.set(whole(self.inputs.backlog));
        metrics.backpressure_kafka_lag_ms.set(whole(u64::try_from(self.inputs.lag.as_millis()).unwrap_or(u64::MAX)));
        metrics.backpressure_db_saturation_percent.set(self.inputs.saturation * 100.0);
        let inputs = self.inputs;
        self.world.vitals.paint(|picture| {
            picture.stage = stage;
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
            kind.0 += i64::from(row.state == ActorState::Running);
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
        self.bus.publish_external("pressure_changed", vec![("from", from.to_owned()), ("to", to.to_owned())]);
    }
}

fn whole(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Actor for BackpressureManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(LOOK_EVERY, |this, _| this.look());
        self.count(ctx);
        self.sample(ctx);
    }
}

supervision::supervised!(BackpressureManager);

impl Handler<MailboxMessage<HowHard>> for BackpressureManager {
    type Result = MessageResult<MailboxMessage<HowHard>>;

    fn handle(&mut self, message: MailboxMessage<HowHard>, ctx: &mut Self::Context) -> Self::Result {
        let (HowHard, _permit) = message.begin(ctx);
        MessageResult(self.pressure.stage().level())
    }
}
