//! Runs the scenarios of a plan one after another, and prints the settings that they share.
use serde_json::json;

use crate::error::Error;
use crate::plan::{Bench, Plan, Scenario};
use crate::program::Program;
use crate::report::Reporter;
use crate::scenarios::{create, end_to_end, held, latency, overload, peers, publish, relay, waiting};

/// Measures the plan's scenarios one after another and prints their figures to stdout, progress to stderr.
///
/// # Errors
/// Data cannot be created or removed, the service does not start, or a response is not understood.
pub async fn run<P: Program>(program: &P, plan: &Plan) -> Result<(), Error> {
    let reporter = Reporter::new("bench", plan.format);
    let bench = Bench { program, plan, reporter };
    bench.settings().await?;
    let wanted = |scenario| plan.scenario.is_none_or(|only| only == scenario);
    let ceiling = if wanted(Scenario::Create) { Some(Box::pin(create::create(&bench)).await?) } else { None };
    if wanted(Scenario::EndToEnd) {
        Box::pin(end_to_end::end_to_end(&bench, ceiling)).await?;
    }
    if wanted(Scenario::Latency) {
        Box::pin(latency::latency(&bench)).await?;
    }
    if plan.scenario == Some(Scenario::Held) && !program.has_pgbench() {
        return Err(Error::new("transactions are held on PostgreSQL only: set store.kind"));
    }
    if wanted(Scenario::Held) && program.has_pgbench() {
        Box::pin(held::held(&bench)).await?;
    }
    if plan.scenario == Some(Scenario::Publish) && !program.has_pgbench() {
        return Err(Error::new("events are published from SQL on PostgreSQL only: set store.kind"));
    }
    if wanted(Scenario::Publish) && program.has_pgbench() {
        Box::pin(publish::publish(&bench)).await?;
    }
    if wanted(Scenario::Relay) {
        Box::pin(relay::relay(&bench)).await?;
    }
    if plan.scenario == Some(Scenario::Peers) {
        Box::pin(peers::peers(&bench)).await?;
    }
    if wanted(Scenario::Waiting) {
        Box::pin(waiting::waiting(&bench)).await?;
    }
    if wanted(Scenario::Overload) {
        Box::pin(overload::overload(&bench)).await?;
    }
    Ok(())
}

impl<P: Program> Bench<'_, P> {
    async fn settings(&self) -> Result<(), Error> {
        let plan = self.plan;
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let build =
            if cfg!(debug_assertions) { "debug build: figures are not representative" } else { "release build" };
        let mut settings = json!({
            "build": build, "cores": cores, "storeSays": self.program.server_settings().await?,
            "clients": plan.clients, "seconds": plan.time.as_secs_f64(), "rounds": plan.rounds, "events": plan.events,
            "keys": plan.keys, "rateLimit": "off", "log": "start and stop, no request lines",
            "load": "beside the service on the same cores",
        });
        if let (Some(all), serde_json::Value::Object(own)) = (settings.as_object_mut(), self.program.settings()) {
            all.extend(own);
        }
        self.reporter.report("settings", &settings)
    }
}
