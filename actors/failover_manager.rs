//! FailoverManager: probes the dependencies in parallel rounds, switches the region between ACTIVE and PASSIVE, and sets the gate.
use std::sync::Arc;

use actix::prelude::*;
use app::health::Component;
use app::policy::failover::{ProbeAnswer, RegionHealth, RegionMode};
use futures::future::join_all;
use ports::Error;
use ports::probe::ProbeReport;
use supervision::SupervisionBus;

use crate::system::dependencies::{Dependencies, MonitoredProbe};
use crate::system::options::Options;

/// Probes at an interval; a restart reads the region's state from the gate, and the dependencies that are down from the health snapshot.
pub struct FailoverManager {
    dependencies: Dependencies,
    options: Arc<Options>,
    bus: SupervisionBus,
    region: RegionHealth,
}

struct ProbeResult {
    name: &'static str,
    gates_region: bool,
    /// The store answers and has no space left.
    is_full: bool,
    report: Result<ProbeReport, String>,
}

impl ProbeResult {
    fn answer(&self) -> ProbeAnswer {
        ProbeAnswer { name: self.name, responded: self.report.is_ok(), gates_region: self.gates_region }
    }
}

impl FailoverManager {
    /// A manager that assumes healthy dependencies until probes fail.
    pub fn new(dependencies: Dependencies, options: Arc<Options>, bus: SupervisionBus) -> Self {
        for MonitoredProbe { probe, .. } in &dependencies.probes {
            // At zero before the first failure: Prometheus does not count the first value of a series as an increase.
            dependencies.metrics.region_health_dependency_failure_count.with([probe.name()]);
        }
        Self { dependencies, options, bus, region: RegionHealth::default() }
    }

    fn probe_all(&mut self, ctx: &mut Context<Self>) {
        let (probes, options) = (self.dependencies.probes.clone(), Arc::clone(&self.options));
        let checks = async move { join_all(probes.into_iter().map(|monitored| check(monitored, &options))).await };
        ctx.spawn(checks.into_actor(self).map(|results, this, ctx| {
            this.evaluate(results);
            ctx.run_later(this.options.probe_interval, Self::probe_all);
        }));
    }

    fn evaluate(&mut self, results: Vec<ProbeResult>) {
        let thresholds = &self.options.region;
        let was_up: Vec<bool> = results.iter().map(|result| self.region.is_up(result.name, thresholds)).collect();
        let answers: Vec<_> = results.iter().map(ProbeResult::answer).collect();
        let round = self.region.record_round(&answers, thresholds);
        for (result, was_up) in results.iter().zip(was_up) {
            self.report_change(result, was_up);
        }
        if round.unhealthy {
            self.dependencies.metrics.region_health_unhealthy_count.inc();
        }
        self.update_full_store(&results);
        self.update_components(results);
        if let Some(mode) = round.new_mode {
            self.switch(mode);
        }
    }

    /// A full store accepts no write, so readiness fails at once and not only after several failed rounds.
    fn update_full_store(&self, results: &[ProbeResult]) {
        let Some(db) = results.iter().find(|result| result.name == "db") else { return };
        let storage_full = match &db.report {
            Ok(_) => None,
            Err(error) if db.is_full => Some(error.clone()),
            // It does not answer at all, so its free space is unknown: the last known state remains.
            Err(_) => return,
        };
        self.dependencies.health.update(|snapshot| snapshot.storage_full = storage_full);
    }

    fn report_change(&self, result: &ProbeResult, was_up: bool) {
        let is_up = self.region.is_up(result.name, &self.options.region);
        let dependency = result.name;
        if result.report.is_err() {
            self.dependencies.metrics.region_health_dependency_failure_count.with([dependency]).inc();
        }
        let detail = result.report.as_ref().err().cloned().unwrap_or_default();
        match (was_up, is_up) {
            (true, false) => {
                tracing::warn!(
                    event = "dependency_down",
                    dependency,
                    error = detail.as_str(),
                    "{dependency} does not answer: {detail}"
                );
                self.bus.publish_external(
                    "dependency_down",
                    vec![("dependency", dependency.to_owned()), ("error", detail)],
                );
            }
            (false, true) => {
                tracing::info!(event = "dependency_up", dependency, "{dependency} answers again");
                self.bus.publish_external("dependency_up", vec![("dependency", dependency.to_owned())]);
            }
            (true, true) | (false, false) => {}
        }
    }

    fn update_components(&self, results: Vec<ProbeResult>) {
        let components: Vec<Component> = results
            .into_iter()
            .map(|result| Component {
                name: result.name,
                up: self.region.is_up(result.name, &self.options.region),
                gates: result.gates_region,
                latency: result.report.as_ref().map(|report| report.latency).unwrap_or_default(),
                detail: result.report.err(),
            })
            .collect();
        self.dependencies.health.update(|snapshot| snapshot.components = components);
    }

    fn switch(&self, mode: RegionMode) {
        let passive = mode == RegionMode::Passive;
        self.dependencies.gate.set_passive(passive);
        self.dependencies.health.update(|snapshot| snapshot.passive = passive);
        self.dependencies.metrics.failover_events_count.inc();
        let region = self.options.relay.region.as_str();
        if passive {
            tracing::error!(
                event = "region_passive",
                region,
                "region {region} accepts no writes until its dependencies recover"
            );
        } else {
            tracing::info!(event = "region_active", region, "region {region} accepts writes again");
        }
        let event = if passive { "region_passive" } else { "region_active" };
        self.bus.publish_external(event, vec![("region", region.to_owned())]);
    }
}

async fn check(MonitoredProbe { probe, gates_region }: MonitoredProbe, options: &Options) -> ProbeResult {
    let (name, limit) = (probe.name(), options.probe_timeout);
    let reply = tokio::time::timeout(limit, probe.check()).await;
    let is_full = matches!(reply, Ok(Err(Error::Full(_))));
    let report = match reply {
        Err(_) => Err(format!("no reply within {} ms", limit.as_millis())),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(report)) if name == "redis" && report.latency > options.redis_latency_max => {
            Err(format!("replied only after {} ms", report.latency.as_millis()))
        }
        Ok(Ok(report)) => Ok(report),
    };
    ProbeResult { name, gates_region, is_full, report }
}

impl Actor for FailoverManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // After a restart the gate still holds the former state: a passive region stays passive until two healthy rounds.
        if self.dependencies.gate.is_passive() {
            self.region = RegionHealth::passive();
        }
        for component in self.dependencies.health.read().components.iter().filter(|component| !component.up) {
            self.region.mark_down(component.name, &self.options.region);
        }
        self.probe_all(ctx);
    }
}

supervision::supervised!(FailoverManager);
