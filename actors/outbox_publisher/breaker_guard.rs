//! BreakerGuard: the circuit breaker of this instance's sends, its only probe, and what operators see of it.
//!
//! If the broker recovers before the breaker's pause ends, the next batch is the probe at once, also if a batch that began before the recovery
//! opens the breaker after it. While a probe runs, failures of batches that began earlier are ignored.
use std::collections::VecDeque;
use std::sync::Arc;

use app::health::SharedHealth;
use app::policy::breaker::{self, BreakerPermit, BreakerState, CircuitBreaker};
use futures::stream::{self, Stream};
use parking_lot::Mutex;
use ports::broker::{Broker, FailureId};
use ports::clock::Clock;
use ports::partitions::PartitionNo;
use supervision::SupervisionBus;
use telemetry::Metrics;
use tokio::time::Instant;

use crate::partition_worker::report::{BatchReport, BrokerSignal};

/// Most failures that are remembered as counted. Other reports of the same failure come from batches that are in flight now, at most 64 by default.
const COUNTED_MAX: usize = 64;

/// Decides from the reports of earlier batches whether a batch may be sent.
pub struct BreakerGuard {
    breaker: CircuitBreaker,
    /// The breaker's time is counted from here.
    created_at: Instant,
    /// The latest failures that the breaker has counted: one transaction's failure is reported by each of its batches.
    counted: VecDeque<FailureId>,
    /// The partition whose batch is the probe.
    probing: Option<PartitionNo>,
    /// Whether the caller was asked to set a timer for a retry.
    retry_is_requested: bool,
    /// The health probe of the broker failed, and has not succeeded since.
    broker_is_down: bool,
    /// When a client of the broker last noticed its recovery.
    recovered_at: Arc<Mutex<Option<Instant>>>,
    /// Start of the batch whose failure last opened the breaker.
    opened_by: Option<Instant>,
    clock: Arc<dyn Clock>,
    health: SharedHealth,
    metrics: Arc<Metrics>,
    bus: SupervisionBus,
}

impl BreakerGuard {
    /// Starts with a closed breaker and a broker that is not known to be down.
    pub fn new(
        options: breaker::Options,
        clock: Arc<dyn Clock>,
        health: SharedHealth,
        metrics: Arc<Metrics>,
        bus: SupervisionBus,
    ) -> Self {
        Self {
            breaker: CircuitBreaker::new(options),
            created_at: Instant::now(),
            counted: VecDeque::with_capacity(COUNTED_MAX),
            probing: None,
            retry_is_requested: false,
            broker_is_down: false,
            recovered_at: Arc::default(),
            opened_by: None,
            clock,
            health,
            metrics,
            bus,
        }
    }

    /// Asks whether a batch may be sent now. A caller that receives `Probe` calls [`Self::begin_probe`] or [`Self::return_probe`].
    pub fn try_acquire(&mut self) -> BreakerPermit {
        let now = self.created_at.elapsed();
        if self.opened_by.is_some() && *self.recovered_at.lock() > self.opened_by {
            self.breaker.allow_probe_now(now);
        }
        self.breaker.try_acquire(now)
    }

    /// Yields an item for each recovery of the broker: the caller must check the schedule again. Yields none without a broker.
    pub fn recoveries(&self, broker: Option<Arc<dyn Broker>>) -> impl Stream<Item = ()> + use<> {
        let state = broker.map(|broker| (broker, Arc::clone(&self.recovered_at)));
        stream::unfold(state, |state| async {
            let (broker, recovered_at) = state?;
            broker.recovered().await;
            *recovered_at.lock() = Some(Instant::now());
            Some(((), Some((broker, recovered_at))))
        })
    }

    /// There was no batch to send as the probe: the next caller probes.
    pub fn return_probe(&mut self) {
        self.breaker.probe_without_result(self.created_at.elapsed());
        self.publish_state();
    }

    /// The batch of this partition is the probe.
    pub fn begin_probe(&mut self, partition: PartitionNo) {
        self.probing = Some(partition);
        self.publish_state();
    }

    /// The probe ended. If it had no result from the broker, the next probe decides. A call for another partition changes nothing.
    pub fn end_probe(&mut self, partition: PartitionNo, signal: BrokerSignal) {
        if self.probing != Some(partition) {
            return;
        }
        self.probing = None;
        if signal == BrokerSignal::None {
            self.breaker.probe_without_result(self.created_at.elapsed());
        }
        self.publish_state();
    }

    /// Counts what the report of a batch that started at `started_at` says about the broker.
    pub fn record(&mut self, partition: PartitionNo, report: &BatchReport, started_at: Instant) {
        let changed = match report.broker {
            BrokerSignal::Acknowledged => self.breaker.succeeded(),
            BrokerSignal::Failed(id) => self.count(partition, id),
            BrokerSignal::None => false,
        };
        if changed && matches!(report.broker, BrokerSignal::Failed(_)) {
            self.opened_by = Some(started_at);
        }
        self.end_probe(partition, report.broker);
        if changed {
            self.report_change(report);
        }
    }

    /// Counts a failure once. The probe's own failure always counts, because it ends the probe. While a probe runs, the failures of other batches
    /// are ignored, because those batches began earlier. Returns whether the breaker opened.
    fn count(&mut self, partition: PartitionNo, id: FailureId) -> bool {
        let known = self.counted.contains(&id);
        if !known {
            self.counted.truncate(COUNTED_MAX - 1);
            self.counted.push_front(id);
        }
        let is_awaiting_probe = self.breaker.state() == BreakerState::HalfOpen;
        let counts = self.probing == Some(partition) || !(known || is_awaiting_probe);
        counts && self.breaker.failed(self.created_at.elapsed())
    }

    /// Requests a retry after the breaker's pause. Returns true if the caller must set a timer: one timer serves all wake-ups, and the
    /// end of a running probe retries anyway.
    pub fn request_retry(&mut self) -> bool {
        self.probing.is_none() && !std::mem::replace(&mut self.retry_is_requested, true)
    }

    /// Records that the requested retry has started: the next request sets a timer again.
    pub fn retry_started(&mut self) {
        self.retry_is_requested = false;
    }

    /// Reads the broker's health probe: after a recovery the next send probes at once. For brokers whose clients report no recovery.
    pub fn read_health(&mut self) {
        let snapshot = self.health.read();
        let Some(broker) = snapshot.components.iter().find(|component| component.name == "broker") else { return };
        let is_down = broker.detail.is_some();
        if std::mem::replace(&mut self.broker_is_down, is_down) && !is_down {
            self.breaker.allow_probe_now(self.created_at.elapsed());
            self.retry_is_requested = false;
            self.publish_state();
        }
    }

    fn report_change(&self, report: &BatchReport) {
        let state = self.breaker.name();
        let error = report.error.as_ref().map(ToString::to_string).unwrap_or_default();
        if state == "open" {
            tracing::warn!(
                event = "breaker_opened",
                error,
                "the broker keeps failing; sends pause, no event is lost: {error}"
            );
        } else {
            tracing::info!(event = "breaker_closed", "the broker recovered");
        }
        self.bus.publish_external("breaker", vec![("state", state.to_owned()), ("error", error)]);
        self.publish_state();
    }

    /// Shows the state in metrics and health.
    pub fn publish_state(&self) {
        let (name, until_probe) = (self.breaker.name(), self.breaker.until_probe(self.created_at.elapsed()));
        let probe_at = until_probe.map(|wait| self.clock.now().plus(wait));
        self.metrics.kafka_breaker_state.set(self.breaker.number());
        self.health.update(|snapshot| (snapshot.breaker, snapshot.breaker_probe_at) = (name, probe_at));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use app::health::Component;
    use domain::Timestamp;
    use supervision::{Observer, SupervisionEvent};

    use super::*;

    const PARTITION: PartitionNo = PartitionNo(1);
    const OPEN: Duration = Duration::from_secs(20);

    struct Ignore;

    impl Observer for Ignore {
        fn lifecycle(&self, _event: &SupervisionEvent) {}
        fn handled(&self, _kind: &'static str, _wait: Duration, _work: Duration) {}
    }

    /// A clock that stands still at ten seconds.
    struct StoppedClock;

    impl Clock for StoppedClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(10_000)
        }
    }

    fn guard() -> BreakerGuard {
        let options = breaker::Options { failures: 2, open: OPEN };
        let bus = SupervisionBus::new(supervision::Options::default(), Arc::new(Ignore));
        BreakerGuard::new(options, Arc::new(StoppedClock), SharedHealth::default(), Metrics::new(), bus)
    }

    /// A batch that begins now reports this.
    fn record(guard: &mut BreakerGuard, partition: PartitionNo, broker: BrokerSignal) {
        guard.record(partition, &BatchReport { broker, ..BatchReport::default() }, Instant::now());
    }

    /// The wait that the breaker asks for; `None` where a batch may be sent.
    fn pause(guard: &mut BreakerGuard) -> Option<Duration> {
        match guard.try_acquire() {
            BreakerPermit::Wait(pause) => Some(pause),
            BreakerPermit::Free | BreakerPermit::Probe => None,
        }
    }

    fn opened() -> BreakerGuard {
        let mut guard = guard();
        record(&mut guard, PARTITION, failed());
        record(&mut guard, PARTITION, failed());
        guard
    }

    /// A failure that no other batch reports.
    fn failed() -> BrokerSignal {
        BrokerSignal::Failed(FailureId::unique())
    }

    #[tokio::test(start_paused = true)]
    async fn batches_of_one_failed_transaction_count_as_one_failure() {
        let (mut guard, first, second) = (guard(), failed(), failed());
        for partition in 0..16 {
            record(&mut guard, PartitionNo(partition), first);
        }
        assert_eq!(guard.try_acquire(), BreakerPermit::Free, "one failure of two");
        record(&mut guard, PARTITION, second);
        assert_eq!(pause(&mut guard), Some(OPEN));

        // The probe's transaction fails: a late report of an older failure changes nothing.
        tokio::time::advance(OPEN).await;
        assert_eq!(guard.try_acquire(), BreakerPermit::Probe);
        guard.begin_probe(PARTITION);
        record(&mut guard, PartitionNo(2), first);
        assert!(!guard.request_retry(), "the probe still runs");
        record(&mut guard, PARTITION, failed());
        assert_eq!(pause(&mut guard), Some(OPEN));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_open_the_breaker_and_a_probe_that_works_closes_it() {
        let mut guard = opened();
        assert_eq!(pause(&mut guard), Some(OPEN));
        assert_eq!(guard.health.read().breaker, "open");
        assert_eq!(guard.health.read().breaker_probe_at, Some(Timestamp::from_millis(30_000)), "the end of the pause");

        tokio::time::advance(OPEN).await;
        assert_eq!(guard.try_acquire(), BreakerPermit::Probe);
        guard.begin_probe(PARTITION);
        assert!(pause(&mut guard).is_some(), "one probe at a time");
        assert!(!guard.request_retry(), "the probe's end is the retry");
        record(&mut guard, PARTITION, BrokerSignal::Acknowledged);

        assert_eq!((guard.try_acquire(), guard.health.read().breaker), (BreakerPermit::Free, "closed"));
        assert_eq!(guard.health.read().breaker_probe_at, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_without_evidence_leaves_the_decision_to_the_next_probe() {
        let mut guard = opened();
        tokio::time::advance(OPEN).await;
        guard.try_acquire();
        guard.begin_probe(PARTITION);

        guard.end_probe(PartitionNo(2), BrokerSignal::None);
        assert!(pause(&mut guard).is_some(), "another partition's end is not the probe's");
        record(&mut guard, PARTITION, BrokerSignal::None);

        assert_eq!(guard.try_acquire(), BreakerPermit::Probe);
    }

    #[tokio::test(start_paused = true)]
    async fn a_recovered_broker_is_probed_before_the_pause_ends() {
        let mut guard = opened();
        let show = |guard: &BreakerGuard, detail: Option<&str>| {
            let detail = detail.map(str::to_owned);
            let up = detail.is_none();
            let component = Component { name: "broker", up, gates: false, latency: Duration::ZERO, detail };
            guard.health.update(|snapshot| snapshot.components = vec![component]);
        };

        show(&guard, Some("unreachable"));
        guard.read_health();
        assert_eq!(pause(&mut guard), Some(OPEN));
        show(&guard, None);
        guard.read_health();
        assert_eq!(
            guard.health.read().breaker_probe_at,
            Some(Timestamp::from_millis(10_000)),
            "a probe is allowed now"
        );
        assert_eq!(guard.try_acquire(), BreakerPermit::Probe);

        guard.begin_probe(PARTITION);
        record(&mut guard, PARTITION, failed());
        guard.read_health();
        assert_eq!(pause(&mut guard), Some(OPEN), "a recovery permits one probe");
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_came_back_is_probed_at_once_and_then_after_the_pause() {
        let mut guard = opened();
        tokio::time::advance(Duration::from_secs(1)).await;
        *guard.recovered_at.lock() = Some(Instant::now());

        assert_eq!(guard.try_acquire(), BreakerPermit::Probe);
        guard.begin_probe(PARTITION);
        record(&mut guard, PartitionNo(2), failed());
        assert_eq!(guard.breaker.name(), "half-open", "a batch from before the probe decides nothing");
        record(&mut guard, PARTITION, failed());

        assert_eq!(pause(&mut guard), Some(OPEN), "the probe began after the return, and failed");
    }

    #[tokio::test(start_paused = true)]
    async fn success_of_an_older_batch_closes_the_breaker_although_the_probe_runs() {
        let mut guard = opened();
        tokio::time::advance(OPEN).await;
        guard.try_acquire();
        guard.begin_probe(PARTITION);

        record(&mut guard, PartitionNo(2), BrokerSignal::Acknowledged);
        assert_eq!(guard.try_acquire(), BreakerPermit::Free);
        record(&mut guard, PartitionNo(3), failed());
        record(&mut guard, PartitionNo(4), failed());

        assert_eq!(guard.breaker.name(), "open", "failures count again");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_batches_from_before_the_return_do_not_delay_the_next_probe() {
        let (mut guard, before) = (guard(), Instant::now());
        tokio::time::advance(Duration::from_secs(1)).await;
        *guard.recovered_at.lock() = Some(Instant::now());
        tokio::time::advance(Duration::from_secs(9)).await;

        for partition in 1..=2 {
            let report = BatchReport { broker: failed(), ..BatchReport::default() };
            guard.record(PartitionNo(partition), &report, before);
        }
        assert_eq!(guard.breaker.name(), "open");

        assert_eq!(guard.try_acquire(), BreakerPermit::Probe);
    }

    #[tokio::test(start_paused = true)]
    async fn one_timer_serves_all_requested_retries() {
        let mut guard = opened();

        assert!(guard.request_retry());
        assert!(!guard.request_retry());
        guard.retry_started();

        assert!(guard.request_retry());
    }
}
