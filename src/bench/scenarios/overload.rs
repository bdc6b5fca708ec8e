//! `overload`: the same service before, during and after far more clients than it can serve: how many requests are refused, the latency of
//! those that are admitted, the memory, and whether the latency returns to its former value.
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::load::generator::{Load, LoadResult, RequestKind};
use crate::plan::Bench;
use crate::program::{BrokerUse, Program};
use crate::service::process::ServiceProcess;
use crate::store::throwaway::with_data;

/// The overload has this many times the usual clients.
const OVERLOAD_FACTOR: usize = 32;

/// Measures the latency and the refusals before, during and after an overload, and reports them.
pub(crate) async fn overload<P: Program>(bench: &Bench<'_, P>) -> Result<(), Error> {
    with_data(bench.program, BrokerUse::Configured, async |data| {
        let service = ServiceProcess::start(data, &[]).await?;
        let idle_mb = service.resident_mb();
        let (clients, time) = (bench.plan.clients, bench.plan.time);
        let usual = |request| Load { address: service.address, request, clients, time, rate: None };
        let overload = |request| Load { clients: clients * OVERLOAD_FACTOR, time: time * 2, ..usual(request) };
        let mut answered = 0;
        let mut phases = Map::new();
        for (phase, load) in [
            ("before", usual(RequestKind::Create)),
            ("during", overload(RequestKind::Create)),
            ("after", usual(RequestKind::Create)),
            ("lists_before", usual(RequestKind::List)),
            ("lists_during", overload(RequestKind::List)),
            ("lists_after", usual(RequestKind::List)),
        ] {
            bench.reporter.progress(&format!("overload, {phase}: {} clients", load.clients));
            let result = load.run(data).await?;
            if load.request == RequestKind::Create {
                answered += result.answered;
            }
            phases.insert(phase.to_owned(), phase_figures(&load, &result, service.resident_mb()));
        }
        service.await_consumed(answered).await?;
        let checked = service.stop_and_check(answered).await?;
        phases.insert("residentIdleMb".to_owned(), idle_mb.into());
        phases.insert("checked".to_owned(), checked.json());
        bench.reporter.report("overload", &Value::Object(phases))
    })
    .await
}

fn phase_figures(load: &Load, result: &LoadResult, resident_mb: u64) -> Value {
    json!({
        "clients": load.clients, "answeredPerS": result.rate().round(), "refused": result.refused,
        "latencyMs": result.percentiles(), "latencyAfterFirstSecondMs": result.percentiles_after_warm_up(),
        "residentMb": resident_mb,
    })
}
