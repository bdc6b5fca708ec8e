//! BackpressureManager: samples consumer lag, outbox backlog and pool saturation each second, and sets the resulting stage at the gate.
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use app::policy::backpressure::{Pressure, PressureInputs, PressureLevel, PressureStage};
use futures::future::join_all;
use outbox::topics::retry_stage;
use ports::broker::consumer_groups::Lag;
use ports::outbox::{RowCounts, RowStatus};
use ports::probe::Probe;
use supervision::{Mailbox, SupervisionBus};
use tokio::time::Instant;

use crate::consumer_actor::{ConsumerActor, MeasuredLag};
use crate::system::dependencies::Dependencies;
use crate::system::mailbox_metrics::MailboxMetrics;
use crate::system::options::Options;

/// Time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two readings of the pool's saturation. A connection is in use for about a millisecond: only the average of many readings
/// distinguishes a pool that has free connections from one that is exhausted.
const SATURATION_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait for a consumer's lag; without any reply the last known lag remains.
const ASK_DEADLINE: Duration = Duration::from_millis(500);

/// Samples at an interval; a restart reads the stage from the gate.
pub struct BackpressureManager {
    dependencies: Dependencies,
    options: Arc<Options>,
    bus: SupervisionBus,
    consumers: Vec<Mailbox<ConsumerActor>>,
    store: Option<Arc<dyn Probe>>,
    pressure: Pressure,
    /// Samples count their time from here.
    created_at: Instant,
    inputs: PressureInputs,
    saturation: SaturationAverage,
    mailbox_metrics: MailboxMetrics,
}

/// The pause between two counts of the unsent rows is at least this many times as long as the count: a large backlog is counted less often,
/// because it costs every instance, and the store is behind already.
const COUNT_PAUSE_FACTOR: u32 = 10;
/// Longest pause between two counts, so that pressure and readiness follow a store that is fast again.
const COUNT_PAUSE_MAX: Duration = Duration::from_secs(10);

/// The readings of the pool's saturation since the last sample.
#[derive(Debug, Default)]
struct SaturationAverage {
    sum: f64,
    readings: u32,
}

impl SaturationAverage {
    fn add(&mut self, saturation: f64) {
        self.sum += saturation;
        self.readings += 1;
    }

    /// The average of the readings, which it removes; 0 without any.
    fn take(&mut self) -> f64 {
        let Self { sum, readings } = std::mem::take(self);
        sum / f64::from(readings.max(1))
    }
}

impl BackpressureManager {
    /// A manager that has not sampled yet.
    pub fn new(
        dependencies: Dependencies,
        options: Arc<Options>,
        bus: SupervisionBus,
        consumers: Vec<Mailbox<ConsumerActor>>,
    ) -> Self {
        let store =
            dependencies.probes.iter().map(|monitored| &monitored.probe).find(|probe| probe.name() == "db").cloned();
        // After a restart the gate still holds the former stage, and the shared health the inputs that it was derived from: a crash opens no gate,
        // also while the rows cannot be counted.
        let (pressure, inputs) = (Pressure::with_stage(dependencies.gate.stage()), dependencies.health.read().inputs);
        let mailbox_metrics = MailboxMetrics::new(bus.clone(), Arc::clone(&dependencies.metrics));
        Self {
            dependencies,
            options,
            bus,
            consumers,
            store,
            pressure,
            created_at: Instant::now(),
            inputs,
            saturation: SaturationAverage::default(),
            mailbox_metrics,
        }
    }

    /// Counts the unsent rows. Runs independently of the samples: a store that counts slowly must not delay the samples that show its load.
    fn count_backlog(&mut self, ctx: &mut Context<Self>) {
        let outbox = Arc::clone(&self.dependencies.outbox);
        let started_at = Instant::now();
        let count = async move { outbox.depth().await };
        ctx.spawn(count.into_actor(self).map(move |depth, this, ctx| {
            let pause = count_pause(started_at.elapsed(), depth.is_ok());
            if let Ok(depth) = depth {
                // Without a broker all rows stay unsent: that is not pressure.
                let has_broker = this.dependencies.broker.is_some();
                this.inputs.backlog = if has_broker { depth.pending + depth.failed } else { 0 };
                this.publish_depth(&depth);
            }
            ctx.run_later(pause, Self::count_backlog);
        }));
    }

    fn sample(&mut self, ctx: &mut Context<Self>) {
        let consumers = self.consumers.clone();
        let measurement = async move {
            let asks = consumers.iter().map(|consumer| consumer.try_ask(MeasuredLag, ASK_DEADLINE));
            let replies = join_all(asks).await.into_iter().flatten();
            replies.map(|partitions| pressure_lag(&partitions)).max()
        };
        ctx.spawn(measurement.into_actor(self).map(|lag, this, ctx| {
            this.evaluate(lag);
            ctx.run_later(SAMPLE_INTERVAL, Self::sample);
        }));
    }

    fn read_saturation(&mut self) {
        if let Some(saturation) = self.store.as_ref().and_then(|store| store.saturation()) {
            self.saturation.add(saturation);
        }
    }

    fn evaluate(&mut self, lag: Option<Duration>) {
        self.inputs.lag = lag.unwrap_or(self.inputs.lag);
        self.read_saturation();
        self.inputs.saturation = self.saturation.take();
        let before = self.pressure.stage().level();
        let stage = self.pressure.sample(self.created_at.elapsed(), &self.inputs, &self.options.pressure);
        self.dependencies.gate.set_stage(stage);
        self.publish(stage);
        if stage.level() != before {
            self.report_change(before, stage.level());
        }
    }

    fn publish(&mut self, stage: PressureStage) {
        let metrics = &self.dependencies.metrics;
        metrics.backpressure_level.set(stage.level().number());
        metrics.backpressure_throttling_factor.set(stage.limit_factor());
        metrics.backpressure_outbox_backlog.set(gauge_value(self.inputs.backlog));
        metrics
            .backpressure_kafka_lag_ms
            .set(gauge_value(u64::try_from(self.inputs.lag.as_millis()).unwrap_or(u64::MAX)));
        metrics.backpressure_db_saturation_percent.set(self.inputs.saturation * 100.0);
        let (inputs, thresholds) = (self.inputs, self.options.pressure);
        self.dependencies.health.update(|snapshot| {
            snapshot.stage = stage;
            snapshot.inputs = inputs;
            snapshot.thresholds = thresholds;
        });
        self.mailbox_metrics.publish();
    }

    fn publish_depth(&self, depth: &RowCounts) {
        let metrics = &self.dependencies.metrics;
        metrics.outbox_pending_count.set(gauge_value(depth.pending));
        metrics.outbox_failure_count.set(gauge_value(depth.failed + depth.parked));
        for status in RowStatus::ALL {
            let rows = match status {
                RowStatus::Pending => depth.pending,
                RowStatus::InFlight => depth.in_flight,
                RowStatus::Failed => depth.failed,
                RowStatus::Parked => depth.parked,
                RowStatus::Sent => depth.sent,
            };
            metrics.outbox_rows.with([status.as_str()]).set(gauge_value(rows));
        }
        let age = depth.oldest_unsent.unwrap_or_default();
        metrics.outbox_oldest_pending_age_seconds.set(age.as_secs_f64());
        metrics.outbox_lag.record(age);
        let (depth, now) = (*depth, self.dependencies.clock.now());
        self.dependencies.health.update(|snapshot| {
            snapshot.depth = depth;
            snapshot.measured_at = Some(now);
        });
    }

    fn report_change(&self, before: PressureLevel, level: PressureLevel) {
        let (from, to) = (before.as_str(), level.as_str());
        let PressureInputs { lag, backlog, saturation } = self.inputs;
        let lag_ms = lag.as_millis() as u64;
        self.dependencies.metrics.rate_limit_dynamic_adjustments.inc();
        if level > before {
            tracing::warn!(
                event = "pressure_changed",
                from,
                to,
                lag_ms,
                backlog,
                saturation,
                "backpressure rose from {from} to {to}"
            );
        } else {
            tracing::info!(
                event = "pressure_changed",
                from,
                to,
                lag_ms,
                backlog,
                saturation,
                "backpressure fell from {from} to {to}"
            );
        }
        self.bus.publish_external("pressure_changed", vec![("from", from.to_owned()), ("to", to.to_owned())]);
    }
}

/// The pause after a count that took this long. A failed one has counted nothing, so its time says nothing about the backlog.
fn count_pause(took: Duration, succeeded: bool) -> Duration {
    if succeeded { (took * COUNT_PAUSE_FACTOR).clamp(SAMPLE_INTERVAL, COUNT_PAUSE_MAX) } else { SAMPLE_INTERVAL }
}

/// Age of the oldest message that waits in the event topic. Messages of retry topics wait on purpose, as long as `consumer.retry_delays` say.
fn pressure_lag(partitions: &[Lag]) -> Duration {
    let waiting = partitions.iter().filter(|lag| retry_stage(&lag.topic).is_none());
    waiting.map(|lag| lag.age).max().unwrap_or_default()
}

fn gauge_value(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Actor for BackpressureManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(SATURATION_INTERVAL, |this, _| this.read_saturation());
        self.count_backlog(ctx);
        self.sample(ctx);
    }
}

supervision::supervised!(BackpressureManager);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_wait_for_their_retry_are_no_pressure() {
        let lag = |topic: &str, seconds| Lag {
            topic: topic.into(),
            partition: 0,
            messages: 1,
            age: Duration::from_secs(seconds),
        };
        let in_retry = [lag("order.events-retry-0", 9), lag("order.events-retry-3", 900)];

        assert_eq!(pressure_lag(&in_retry), Duration::ZERO);

        let [first, last] = in_retry;
        assert_eq!(
            pressure_lag(&[first, lag("order.events", 7), last, lag("order.events", 5)]),
            Duration::from_secs(7)
        );
    }

    #[test]
    fn pause_between_counts_is_bounded_and_short_after_a_failed_one() {
        let cases = [((0, true), 1_000), ((300, true), 3_000), ((12_000, true), 10_000), ((12_000, false), 1_000)];
        for ((took, succeeded), expected) in cases {
            let pause = count_pause(Duration::from_millis(took), succeeded);
            assert_eq!(pause, Duration::from_millis(expected), "{took} ms, {succeeded}");
        }
    }
}
