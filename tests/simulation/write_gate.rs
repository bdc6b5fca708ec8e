//! The write gate: backpressure closes it and opens it again level by level, and so does a failed dependency.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use actors::MonitoredProbe;
use app::admission::write_gate::WriteGateClosed;
use app::error::CommandError;
use app::policy::backpressure::{PressureLevel, PressureStage};
use async_trait::async_trait;
use kit::faults::{Call, InjectedFault};
use ports::Error;
use ports::probe::{Probe, ProbeReport};

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::log_capture::LogCapture;
use crate::support::process::TIMEOUT;

/// A probe whose result a test sets.
struct SwitchedProbe {
    name: &'static str,
    up: AtomicBool,
    hangs: AtomicBool,
    checks: AtomicU32,
    percent: AtomicU32,
    /// Time of a reply in milliseconds.
    latency: AtomicU32,
}

impl SwitchedProbe {
    fn on(name: &'static str) -> Arc<Self> {
        let (up, hangs) = (AtomicBool::new(true), AtomicBool::new(false));
        let zero = AtomicU32::default;
        Arc::new(Self { name, up, hangs, checks: zero(), percent: zero(), latency: zero() })
    }
}

fn gating(probe: &Arc<SwitchedProbe>) -> MonitoredProbe {
    MonitoredProbe { probe: probe.clone(), gates_region: true }
}

fn not_gating(probe: &Arc<SwitchedProbe>) -> MonitoredProbe {
    MonitoredProbe { probe: probe.clone(), gates_region: false }
}

#[async_trait]
impl Probe for SwitchedProbe {
    fn name(&self) -> &'static str {
        self.name
    }

    fn saturation(&self) -> Option<f64> {
        Some(f64::from(self.percent.load(SeqCst)) / 100.0)
    }

    async fn check(&self) -> Result<ProbeReport, Error> {
        self.checks.fetch_add(1, SeqCst);
        if self.hangs.load(SeqCst) {
            std::future::pending::<()>().await;
        }
        let latency = Duration::from_millis(self.latency.load(SeqCst).into());
        if self.up.load(SeqCst) { Ok(ProbeReport { latency }) } else { Err(Error::Unreachable("switched off".into())) }
    }
}

#[tokio::test(start_paused = true)]
async fn critical_backpressure_rejects_writes_and_falls_one_level_at_a_time() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.pressure.backlog = (10, 20).into();
    environment.script.always(Call::Publish, InjectedFault::Unreachable);
    let process = environment.start().await;
    ledger.create_orders(&process, 25).await;

    process
        .wait_until("limits tighten first", Duration::from_secs(5), async || {
            process.gate.stage() == PressureStage::Limits
        })
        .await;
    process
        .wait_until("retries lengthen second", Duration::from_secs(2), async || {
            process.gate.stage() == PressureStage::Retries
        })
        .await;
    ledger.create_order(&process).await;
    process
        .wait_until("rejection is last", Duration::from_secs(2), async || {
            process.gate.stage() == PressureStage::Rejection
        })
        .await;
    assert_eq!(ledger.try_create_order(&process).await, Err(CommandError::Gated(WriteGateClosed::Pressure)));
    assert_eq!(process.health().stage, PressureStage::Rejection);

    environment.script.clear();
    process.wait_until_drained(TIMEOUT).await;
    process
        .wait_until("pressure is elevated", TIMEOUT, async || process.health().stage.level() == PressureLevel::Elevated)
        .await;
    ledger.create_order(&process).await;
    process.advance(Duration::from_secs(5)).await;
    assert_eq!(process.health().stage.level(), PressureLevel::Elevated, "one level in ten calm seconds");
    process
        .wait_until("pressure is normal", TIMEOUT, async || process.health().stage.level() == PressureLevel::Normal)
        .await;

    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn gate_stays_closed_after_a_crash_while_the_rows_cannot_be_counted() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.pressure.backlog = (10, 20).into();
    environment.script.always(Call::Publish, InjectedFault::Unreachable);
    let process = environment.start().await;
    ledger.create_orders(&process, 25).await;
    let is_closed = async || process.gate.stage() == PressureStage::Rejection;
    process.wait_until("pressure is critical", TIMEOUT, is_closed).await;

    environment.script.always(Call::RowCounts, InjectedFault::Unreachable);
    process.bus().panic("/backpressure-manager", "test").expect("the actor exists");
    process.advance(Duration::from_secs(30)).await;

    assert_eq!(process.gate.stage(), PressureStage::Rejection, "the last known backlog counts");
    environment.script.clear();
    process.wait_until("writes are accepted", TIMEOUT * 3, async || !is_closed().await).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_of_the_backpressure_manager_leaves_the_gate_closed() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.pressure.backlog = (10, 20).into();
    environment.script.always(Call::Publish, InjectedFault::Unreachable);
    let process = environment.start().await;
    ledger.create_orders(&process, 25).await;
    process
        .wait_until("pressure is critical", TIMEOUT, async || process.health().stage.level() == PressureLevel::Critical)
        .await;

    process.bus().panic("/backpressure-manager", "test").expect("the actor exists");
    for _ in 0..50 {
        process.advance(Duration::from_millis(100)).await;
        let refused = ledger.try_create_order(&process).await;
        assert_eq!(refused, Err(CommandError::Gated(WriteGateClosed::Pressure)), "a crash opens no gate");
    }
    environment.script.clear();
    process
        .wait_until("pressure is normal", TIMEOUT * 3, async || process.health().stage.level() == PressureLevel::Normal)
        .await;

    ledger.create_order(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_dependency_makes_the_region_passive_until_two_probes_succeed() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    let db = SwitchedProbe::on("db");
    environment.probes = vec![gating(&db)];
    let process = environment.start().await;
    process.advance(Duration::from_secs(12)).await;
    ledger.create_order(&process).await;

    db.up.store(false, SeqCst);
    let before = db.checks.load(SeqCst);
    process.wait_until("the region is passive", TIMEOUT, async || process.gate.is_passive()).await;
    // The first failure is below the dependency's own threshold of two; then three unhealthy rounds follow.
    assert_eq!(db.checks.load(SeqCst) - before, 4);
    assert_eq!(ledger.try_create_order(&process).await, Err(CommandError::Gated(WriteGateClosed::Passive)));

    db.up.store(true, SeqCst);
    let before = db.checks.load(SeqCst);
    process.wait_until("the region is active", TIMEOUT, async || !process.gate.is_passive()).await;
    assert_eq!(db.checks.load(SeqCst) - before, 2);
    ledger.create_order(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_hung_probe_counts_as_failed_and_only_gating_probes_make_a_region_passive() {
    let mut environment = Environment::new();
    let (db, broker) = (SwitchedProbe::on("db"), SwitchedProbe::on("broker"));
    environment.probes = vec![gating(&db), not_gating(&broker)];
    let process = environment.start().await;

    broker.hangs.store(true, SeqCst);
    process.advance(Duration::from_secs(60)).await;
    assert!(!process.gate.is_passive());
    assert!(process.health().components.iter().any(|component| component.name == "broker" && !component.up));
    db.hangs.store(true, SeqCst);

    process.wait_until("the region is passive", TIMEOUT * 2, async || process.gate.is_passive()).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_reply_of_redis_counts_as_failed_above_the_configured_latency() {
    let mut environment = Environment::new();
    let (redis, db) = (SwitchedProbe::on("redis"), SwitchedProbe::on("db"));
    environment.probes = vec![not_gating(&redis), gating(&db)];
    environment.options.redis_latency_max = Duration::from_millis(300);
    let process = environment.start().await;
    let is_up = |name| process.health().components.iter().any(|component| component.name == name && component.up);

    redis.latency.store(300, SeqCst);
    db.latency.store(1_900, SeqCst);
    process.advance(Duration::from_secs(30)).await;
    assert!(is_up("redis") && is_up("db"), "no longer than allowed; the limit is that of Redis");
    redis.latency.store(301, SeqCst);

    process.wait_until("Redis counts as down", TIMEOUT, async || !is_up("redis")).await;
    assert!(is_up("db"));
}

#[tokio::test(start_paused = true)]
async fn a_crash_of_the_failover_manager_leaves_a_passive_region_passive() {
    let mut environment = Environment::new();
    let db = SwitchedProbe::on("db");
    environment.probes = vec![gating(&db)];
    let process = environment.start().await;
    db.up.store(false, SeqCst);
    process.wait_until("the region is passive", TIMEOUT, async || process.gate.is_passive()).await;

    process.bus().panic("/failover-manager", "test").expect("the actor exists");
    process.advance(Duration::from_secs(20)).await;
    assert!(process.gate.is_passive(), "a crash opens no gate");
    db.up.store(true, SeqCst);

    process.wait_until("the region is active", TIMEOUT, async || !process.gate.is_passive()).await;
}

#[tokio::test(start_paused = true)]
async fn dependency_that_is_down_stays_down_after_a_crash_of_the_failover_manager() {
    let (broker, mut environment) = (SwitchedProbe::on("broker"), Environment::new());
    environment.probes = vec![not_gating(&broker)];
    let log = LogCapture::start();
    let process = environment.start().await;
    let is_up = || process.health().components.iter().any(|component| component.up);
    process.wait_until("it is up", TIMEOUT, async || is_up()).await;
    broker.up.store(false, SeqCst);
    process.wait_until("it is down", TIMEOUT, async || !is_up()).await;

    let checks = broker.checks.load(SeqCst);
    process.bus().panic("/failover-manager", "test").expect("the actor exists");
    process
        .wait_until("it was probed again", TIMEOUT, async || {
            assert!(!is_up());
            broker.checks.load(SeqCst) >= checks + 3
        })
        .await;
    broker.up.store(true, SeqCst);

    process.wait_until("it is up again", TIMEOUT, async || is_up()).await;
    let changes = ["dependency_down", "dependency_up"].map(|event| log.fields(event, ["dependency"]));
    assert_eq!(changes, [vec![["broker".to_owned()]], vec![["broker".to_owned()]]]);
}

#[tokio::test(start_paused = true)]
async fn a_saturated_pool_is_pressure_within_seconds_and_a_short_spike_is_not() {
    let mut environment = Environment::new();
    let db = SwitchedProbe::on("db");
    environment.probes = vec![gating(&db)];
    environment.options.probe_interval = Duration::from_secs(60);
    let process = environment.start().await;

    db.percent.store(100, SeqCst);
    process.advance(Duration::from_millis(1_500)).await;
    db.percent.store(0, SeqCst);
    process.advance(Duration::from_secs(30)).await;
    assert_eq!(process.health().stage, PressureStage::Calm, "a spike is not pressure, even between two probes");
    db.percent.store(80, SeqCst);

    process
        .wait_until("the pool is pressure", Duration::from_secs(5), async || {
            process.gate.stage() == PressureStage::Retries
        })
        .await;
    let saturation =
        (process.health().inputs.saturation * 100.0, process.metrics.backpressure_db_saturation_percent.get());
    assert!((saturation.0 - 80.0).abs() < 0.1 && (saturation.1 - 80.0).abs() < 0.1, "{saturation:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_full_only_for_moments_is_no_pressure() {
    let mut environment = Environment::new();
    let db = SwitchedProbe::on("db");
    environment.probes = vec![gating(&db)];
    let process = environment.start().await;

    for _ in 0..100 {
        // All are in use at every full second, and none in between.
        db.percent.store(100, SeqCst);
        process.advance(Duration::from_millis(300)).await;
        db.percent.store(0, SeqCst);
        process.advance(Duration::from_millis(700)).await;
    }

    assert_eq!(process.health().stage, PressureStage::Calm);
    assert_eq!(process.metrics.backpressure_level.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_flapping_dependency_does_not_flap_the_region() {
    let mut environment = Environment::new();
    let db = SwitchedProbe::on("db");
    environment.probes = vec![gating(&db)];
    environment.options.probe_interval = Duration::from_secs(1);
    let process = environment.start().await;
    let flap = async |rounds: u32| {
        for round in 0..rounds {
            let before = db.checks.load(SeqCst);
            db.up.store(round % 2 == 0, SeqCst);
            process.wait_until("a round is over", TIMEOUT, async || db.checks.load(SeqCst) > before).await;
        }
    };

    flap(20).await;
    assert!(!process.gate.is_passive());
    assert_eq!(process.metrics.failover_events_count.get(), 0);
    assert!(process.metrics.region_health_dependency_failure_count.with(["db"]).get() >= 9, "each failure is counted");
    assert_eq!(process.metrics.region_health_unhealthy_count.get(), 0, "no round was unhealthy");

    db.up.store(false, SeqCst);
    process.wait_until("the region is passive", TIMEOUT, async || process.gate.is_passive()).await;
    flap(20).await;
    assert!(process.gate.is_passive(), "one good round opens nothing");
    assert_eq!(process.metrics.failover_events_count.get(), 1);
}
