//! `overload`: the same service before, during and after far more clients than it can serve: what is refused, what those who are let in
//! wait, what it costs in memory, and whether it is as quick as before once they have gone.
use serde_json::{Value, json};

use super::super::failure::Failure;
use super::Bench;
use super::ground::on_ground;
use super::load::{Ask, Load, Outcome};
use super::process::Running;

/// How many times as many clients come.
const CROWD: usize = 32;

pub(super) async fn overload(bench: &Bench<'_>) -> Result<(), Failure> {
    Box::pin(on_ground(&bench.config, async |ground| {
        let service = Running::start(bench, ground, &[]).await?;
        let idle_mb = service.resident_mb();
        let (clients, time) = (bench.arguments.clients, bench.arguments.time);
        let usual = |ask| Load { address: service.address, ask, clients, time, rate: None };
        let crowd = |ask| Load { clients: clients * CROWD, time: time * 2, ..usual(ask) };
        let mut answered = 0;
        let mut phases = serde_json::Map::new();
        for (phase, load) in [
            ("before", usual(Ask::Create)),
            ("during", crowd(Ask::Create)),
            ("after", usual(Ask::Create)),
            ("lists_before", usual(Ask::List)),
            ("lists_during", crowd(Ask::List)),
            ("lists_after", usual(Ask::List)),
        ] {
            bench.progress(&format!("overload, {phase}: {} clients", load.clients));
            let outcome = load.run(&ground.config).await?;
            if matches!(load.ask, Ask::Create) {
                answered += outcome.answered;
            }
            phases.insert(phase.to_owned(), told(&load, &outcome, service.resident_mb()));
        }
        service.drained(answered).await?;
        let checked = service.stop_and_check(answered).await?;
        phases.insert("resident_idle_mb".to_owned(), idle_mb.into());
        phases.insert("checked".to_owned(), checked.json());
        bench.report("overload", &Value::Object(phases))
    }))
    .await
}

fn told(load: &Load, outcome: &Outcome, resident_mb: u64) -> Value {
    json!({
        "clients": load.clients, "answered_per_s": outcome.rate().round(), "refused": outcome.refused,
        "latency_ms": outcome.percentiles(), "latency_after_first_second_ms": outcome.settled_percentiles(),
        "resident_mb": resident_mb,
    })
}
