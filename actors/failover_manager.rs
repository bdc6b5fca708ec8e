//! FailoverManager: probes the dependencies in parallel rounds, moves the region between ACTIVE and PASSIVE, keeps the gate.
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use app::policy::failover::{Mode, Region};
use app::vitals::Component;
use futures::future::join_all;
use ports::Error;
use ports::probe::{Probe, ProbeReport};
use supervision::SupervisionBus;

use crate::world::{Options, World};

/// Redis that answers slower than this counts as not answering (the seeds' threshold).
const REDIS_LATENCY_MAX: Duration = Duration::from_millis(150);

/// The actor.
pub struct FailoverManager {
    world: World,
    options: Arc<Options>,
    bus: SupervisionBus,
    region: Region,
}

/// What one dependency answered.
struct Answer {
    name: &'static str,
    gates: bool,
    /// It answers, and has no room left.
    no_room: bool,
    pulse: Result<ProbeReport, String>,
}

impl FailoverManager {
    /// A manager that believes in health until probes say otherwise.
    pub fn new(world: World, options: Arc<Options>, bus: SupervisionBus) -> Self {
        Self { world, options, bus, region: Region::default() }
    }

    fn round(&mut self, ctx: &mut Context<Self>) {
        let (probes, limit) = (self.world.probes.clone(), self.options.probe_timeout);
        let work = async move { join_all(probes.into_iter().map(|(probe, gates)| ask(probe, gates, limit))).await };
        ctx.spawn(work.into_actor(self).map(|answers, this, ctx| {
            this.judge(answers);
            ctx.run_later(this.options.probe_interval, Self::round);
        }));
    }

    fn judge(&mut self, answers: Vec<Answer>) {
        let thresholds = &self.options.region;
        let was_up: Vec<bool> = answers.iter().map(|answer| self.region.is_up(answer.name, thresholds)).collect();
        let probes: Vec<_> = answers.iter().map(|a| (a.name, a.pulse.is_ok(), a.gates)).collect();
        let round = self.region.round(&probes, thresholds);
        for (answer, was_up) in answers.iter().zip(was_up) {
            self.note(answer, was_up);
        }
        if round.unhealthy {
            self.world.metrics.region_health_unhealthy_count.inc();
        }
        self.show_room(&answers);
        self.paint(answers);
        if let Some(mode) = round.turned {
            self.turn(mode);
        }
    }

    /// A store without room takes no write, whatever the number of failed rounds: there is nothing to wait for.
    fn show_room(&self, answers: &[Answer]) {
        let Some(db) = answers.iter().find(|answer| answer.name == "db") else { return };
        let no_room = match &db.pulse {
            Ok(_) => None,
            Err(error) if db.no_room => Some(error.clone()),
            // It does not answer at all: whether there is room is not known, and what was seen stands.
            Err(_) => return,
        };
        self.world.vitals.paint(|picture| picture.no_room = no_room);
    }

    fn note(&self, answer: &Answer, was_up: bool) {
        let is_up = self.region.is_up(answer.name, &self.options.region);
        let dependency = answer.name;
        if answer.pulse.is_err() {
            self.world.metrics.region_health_dependency_failure_count.with([dependency]).inc();
        }
        let detail = answer.pulse.as_ref().err().cloned().unwrap_or_default();
        match (was_up, is_up) {
            (true, false) => {
                tracing::warn!(
                    event = "dependency_down",
                    dependency,
                    error = detail.as_str(),
                    "a dependency does not answer"
                );
                self.bus.publish_external(
                    "dependency_down",
                    vec![("dependency", dependency.to_owned()), ("error", detail)],
                );
            }
            (false, true) => {
                tracing::info!(event = "dependency_up", dependency, "a dependency answers again");
                self.bus.publish_external("dependency_up", vec![("dependency", dependency.to_owned())]);
            }
            (true, true) | (false, false) => {}
        }
    }

    fn paint(&self, answers: Vec<Answer>) {
        let components: Vec<Component> = answers
            .into_iter()
            .map(|answer| Component {
                name: answer.name,
                up: self.region.is_up(answer.name, &self.options.region),
                gates: answer.gates,
                latency: answer.pulse.as_ref().map(|pulse| pulse.latency).unwrap_or_default(),
                detail: answer.pulse.err(),
            })
            .collect();
        self.world.vitals.paint(|picture| picture.components = components);
    }

    fn turn(&self, mode: Mode) {
        let passive = mode == Mode::Passive;
        self.world.gate.set_passive(passive);
        self.world.vitals.paint(|picture| picture.passive = passive);
        self.world.metrics.failover_events_count.inc();
        let region = self.options.relay.region.as_str();
        if passive {
            tracing::error!(
                event = "region_passive",
                region,
                "the region takes no writes until its dependencies recover"
            );
        } else {
            tracing::info!(event = "region_active", region, "the region takes writes again");
        }
        let event = if passive { "region_passive" } else { "region_active" };
        self.bus.publish_external(event, vec![("region", region.to_owned())]);
    }
}

async fn ask(probe: Arc<dyn Probe>, gates: bool, limit: Duration) -> Answer {
    let name = probe.name();
    let asked = tokio::time::timeout(limit, probe.check()).await;
    let no_room = matches!(asked, Ok(Err(Error::Full(_))));
    let pulse = match asked {
        Err(_) => Err(format!("no answer within {} ms", limit.as_millis())),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(pulse)) if name == "redis" && pulse.latency > REDIS_LATENCY_MAX => {
            Err(format!("answered after {} ms", pulse.latency.as_millis()))
        }
        Ok(Ok(pulse)) => Ok(pulse),
    };
    Answer { name, gates, no_room, pulse }
}

impl Actor for FailoverManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // A manager that comes back finds the gate as it left it: a passive region stays passive until two healthy rounds.
        if self.world.gate.is_passive() {
            self.region = Region::passive();
        }
        self.round(ctx);
    }
}

supervision::supervised!(FailoverManager);
