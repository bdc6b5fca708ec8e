//! `create`: orders over HTTP as fast as they are answered; relay and consumer must keep pace. With PostgreSQL beside it, in turns,
//! pgbench with the same statement.
use std::time::Duration;

use posthaste::config::{BrokerKind, StoreKind};
use serde_json::json;

use super::super::failure::Failure;
use super::Bench;
use super::figures::{median, percentiles, ratio, rounded};
use super::ground::on_ground;
use super::load::{Ask, Load};
use super::pgbench;
use super::process::Running;

/// Answers the highest rate.
pub(super) async fn create(bench: &Bench<'_>) -> Result<f64, Failure> {
    // pgbench has a database of its own and needs no topics.
    let mut beside = bench.config.clone();
    beside.broker.kind = BrokerKind::None;
    Box::pin(on_ground(&bench.config, async |ground| {
        if bench.config.store.kind != StoreKind::Postgres {
            return Box::pin(rounds(bench, ground, None)).await;
        }
        Box::pin(on_ground(&beside, async |beside| Box::pin(rounds(bench, ground, Some(beside))).await)).await
    }))
    .await
}

async fn rounds(
    bench: &Bench<'_>,
    ground: &posthaste::Throwaway,
    beside: Option<&posthaste::Throwaway>,
) -> Result<f64, Failure> {
    let arguments = bench.arguments;
    let service = Running::start(bench, ground, &[]).await?;
    let idle_mb = service.resident_mb();
    let load = Load {
        address: service.address,
        ask: Ask::Create,
        clients: arguments.clients,
        time: arguments.time,
        rate: None,
    };
    let (mut ours, mut theirs, mut micros) = (Vec::new(), Vec::new(), Vec::new());
    let (mut answered, mut refused, mut waiting, mut drained) = (0, 0, 0, Duration::ZERO);
    for round in 1..=arguments.rounds {
        bench.progress(&format!("create, round {round} of {}", arguments.rounds));
        let outcome = load.run(&ground.config).await?;
        ours.push(outcome.rate());
        answered += outcome.answered;
        refused += outcome.refused;
        micros.extend(outcome.micros);
        waiting = waiting.max(service.waiting().await?);
        drained = drained.max(service.drained(answered).await?);
        if let Some(beside) = beside
            && let Some(rate) = pgbench::orders_per_second(beside, arguments.clients, arguments.time).await?
        {
            theirs.push(rate);
        }
    }
    let loaded_mb = service.resident_mb();
    let checked = service.stop_and_check(answered).await?;
    micros.sort_unstable();
    let latency: Vec<f64> = micros.into_iter().map(|micros| f64::from(micros) / 1_000.0).collect();
    let rate = median(&ours);
    let mut figures = json!({
        "answered_per_s": rate.round(), "rounds_per_s": rounded(&ours), "answered": answered, "refused": refused,
        "latency_ms": percentiles(&latency), "waiting_at_most": waiting, "drained_after_ms_at_most": drained.as_millis() as u64,
        "resident_idle_mb": idle_mb, "resident_loaded_mb": loaded_mb, "checked": checked.json(),
    });
    if beside.is_some() {
        figures["pgbench"] = match theirs.as_slice() {
            [] => json!("not on the PATH: nothing to compare with"),
            theirs => json!({
                "orders_per_s": median(theirs).round(), "rounds_per_s": rounded(theirs), "ours_to_theirs": ratio(&ours, theirs),
            }),
        };
    }
    bench.report("create", &figures)?;
    Ok(rate)
}
