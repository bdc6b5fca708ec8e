//! The gate's keepers: pressure closes it and opens it again step by step, and so does a dependency that is away.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use app::admission::gate::GateClosed;
use app::error::CommandError;
use app::policy::backpressure::{PressureLevel, PressureStage};
use async_trait::async_trait;
use kit::faults::{Call, InjectedFault};
use ports::Error;
use ports::probe::{Probe, ProbeReport};

use crate::house::House;
use crate::ledger::Ledger;
use crate::life::SOON;

/// A dependency that a test switches.
struct Switch {
    name: &'static str,
    up: AtomicBool,
    hangs: AtomicBool,
    asked: AtomicU32,
    percent: AtomicU32,
}

impl Switch {
    fn on(name: &'static str) -> Arc<Self> {
        let (up, hangs) = (AtomicBool::new(true), AtomicBool::new(false));
        Arc::new(Self { name, up, hangs, asked: AtomicU32::new(0), percent: AtomicU32::new(0) })
    }
}

#[async_trait]
impl Probe for Switch {
    fn name(&self) -> &'static str {
        self.name
    }

    fn saturation(&self) -> Option<f64> {
        Some(f64::from(self.percent.load(SeqCst)) / 100.0)
    }

    async fn check(&self) -> Result<ProbeReport, Error> {
        self.asked.fetch_add(1, SeqCst);
        if self.hangs.load(SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.up.load(SeqCst) { Ok(ProbeReport::default()) } else { Err(Error::Unreachable("switched off".into())) }
    }
}

#[tokio::test(start_paused = true)]
async fn critical_pressure_gates_writes_and_falls_step_by_step() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    house.options.pressure.backlog = (10, 20);
    house.script.always(Call::Publish, InjectedFault::Unreachable);
    let life = house.start().await;
    ledger.place_many(&life, 25).await;

    life.until("limits tighten first", Duration::from_secs(5), async || life.gate.stage() == PressureStage::Limits)
        .await;
    life.until("retries lengthen second", Duration::from_secs(2), async || life.gate.stage() == PressureStage::Retries)
        .await;
    ledger.place(&life).await;
    life.until("rejection is last", Duration::from_secs(2), async || life.gate.stage() == PressureStage::Rejection)
        .await;
    assert_eq!(ledger.try_place(&life).await, Err(CommandError::Gated(GateClosed::Pressure)));
    assert_eq!(life.picture().stage, PressureStage::Rejection);

    house.script.clear();
    life.drained(SOON).await;
    life.until("pressure is elevated", SOON, async || life.picture().stage.level() == PressureLevel::Elevated).await;
    ledger.place(&life).await;
    life.pass(Duration::from_secs(5)).await;
    assert_eq!(life.picture().stage.level(), PressureLevel::Elevated, "one level in ten calm seconds");
    life.until("pressure is normal", SOON, async || life.picture().stage.level() == PressureLevel::Normal).await;

    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn a_backpressure_manager_that_dies_leaves_the_gate_with_a_keeper() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    house.options.pressure.backlog = (10, 20);
    house.script.always(Call::Publish, InjectedFault::Unreachable);
    let life = house.start().await;
    ledger.place_many(&life, 25).await;
    life.until("pressure is critical", SOON, async || life.picture().stage.level() == PressureLevel::Critical).await;

    life.bus().panic("/backpressure-manager", "test").expect("it stands");
    for _ in 0..50 {
        life.pass(Duration::from_millis(100)).await;
        let refused = ledger.try_place(&life).await;
        assert_eq!(refused, Err(CommandError::Gated(GateClosed::Pressure)), "a death opens no gate");
    }
    house.script.clear();
    life.until("pressure is normal", SOON * 3, async || life.picture().stage.level() == PressureLevel::Normal).await;

    ledger.place(&life).await;
}

#[tokio::test(start_paused = true)]
async fn a_dependency_that_is_away_makes_the_region_passive_until_it_answered_twice() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    let db = Switch::on("db");
    house.probes = vec![(db.clone(), true)];
    let life = house.start().await;
    life.pass(Duration::from_secs(12)).await;
    ledger.place(&life).await;

    db.up.store(false, SeqCst);
    let before = db.asked.load(SeqCst);
    life.until("the region is passive", SOON, async || life.gate.is_passive()).await;
    // Below its own threshold of two the dependency makes no round unhealthy; then three of them do.
    assert_eq!(db.asked.load(SeqCst) - before, 4);
    assert_eq!(ledger.try_place(&life).await, Err(CommandError::Gated(GateClosed::Passive)));

    db.up.store(true, SeqCst);
    let before = db.asked.load(SeqCst);
    life.until("the region is active", SOON, async || !life.gate.is_passive()).await;
    assert_eq!(db.asked.load(SeqCst) - before, 2);
    ledger.place(&life).await;
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_counts_as_no_answer_and_one_that_does_not_gate_gates_nothing() {
    let mut house = House::new();
    let (db, broker) = (Switch::on("db"), Switch::on("broker"));
    house.probes = vec![(db.clone(), true), (broker.clone(), false)];
    let life = house.start().await;

    broker.hangs.store(true, SeqCst);
    life.pass(Duration::from_secs(60)).await;
    assert!(!life.gate.is_passive());
    assert!(life.picture().components.iter().any(|component| component.name == "broker" && !component.up));
    db.hangs.store(true, SeqCst);

    life.until("the region is passive", SOON * 2, async || life.gate.is_passive()).await;
}

#[tokio::test(start_paused = true)]
async fn a_failover_manager_that_dies_comes_back_passive() {
    let mut house = House::new();
    let db = Switch::on("db");
    house.probes = vec![(db.clone(), true)];
    let life = house.start().await;
    db.up.store(false, SeqCst);
    life.until("the region is passive", SOON, async || life.gate.is_passive()).await;

    life.bus().panic("/failover-manager", "test").expect("it stands");
    life.pass(Duration::from_secs(20)).await;
    assert!(life.gate.is_passive(), "a death opens no gate");
    db.up.store(true, SeqCst);

    life.until("the region is active", SOON, async || !life.gate.is_passive()).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_pool_is_felt_within_seconds_and_a_spike_that_a_probe_happens_to_meet_is_not() {
    let mut house = House::new();
    let db = Switch::on("db");
    house.probes = vec![(db.clone(), true)];
    house.options.probe_interval = Duration::from_secs(60);
    let life = house.start().await;

    db.percent.store(100, SeqCst);
    life.pass(Duration::from_millis(1_500)).await;
    db.percent.store(0, SeqCst);
    life.pass(Duration::from_secs(30)).await;
    assert_eq!(life.picture().stage, PressureStage::Calm, "a spike is no pressure, however seldom the store is probed");
    db.percent.store(80, SeqCst);

    life.until("the pool is felt", Duration::from_secs(5), async || life.gate.stage() == PressureStage::Retries).await;
    let felt = (life.picture().inputs.saturation * 100.0, life.metrics.backpressure_db_saturation_percent.get());
    assert!((felt.0 - 80.0).abs() < 0.1 && (felt.1 - 80.0).abs() < 0.1, "{felt:?}");
}

#[tokio::test(start_paused = true)]
async fn connections_that_come_and_go_are_no_pressure_however_often_all_are_in_use() {
    let mut house = House::new();
    let db = Switch::on("db");
    house.probes = vec![(db.clone(), true)];
    let life = house.start().await;

    for _ in 0..100 {
        // All in use at every whole second, and none in between.
        db.percent.store(100, SeqCst);
        life.pass(Duration::from_millis(300)).await;
        db.percent.store(0, SeqCst);
        life.pass(Duration::from_millis(700)).await;
    }

    assert_eq!(life.picture().stage, PressureStage::Calm);
    assert_eq!(life.metrics.backpressure_level.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dependency_that_flaps_does_not_flap_the_region() {
    let mut house = House::new();
    let db = Switch::on("db");
    house.probes = vec![(db.clone(), true)];
    house.options.probe_interval = Duration::from_secs(1);
    let life = house.start().await;
    let flap = async |rounds: u32| {
        for round in 0..rounds {
            let before = db.asked.load(SeqCst);
            db.up.store(round % 2 == 0, SeqCst);
            life.until("a round is over", SOON, async || db.asked.load(SeqCst) > before).await;
        }
    };

    flap(20).await;
    assert!(!life.gate.is_passive());
    assert_eq!(life.metrics.failover_events_count.get(), 0);
    assert!(life.metrics.region_health_dependency_failure_count.with(["db"]).get() >= 9, "each failure is counted");
    assert_eq!(life.metrics.region_health_unhealthy_count.get(), 0, "no round was unhealthy");

    db.up.store(false, SeqCst);
    life.until("the region is passive", SOON, async || life.gate.is_passive()).await;
    flap(20).await;
    assert!(life.gate.is_passive(), "one good round opens nothing");
    assert_eq!(life.metrics.failover_events_count.get(), 1);
}
