//! `create`: orders over HTTP as fast as they are answered, while relay and consumer must keep pace. With PostgreSQL, pgbench runs the
//! same statement in turns with it.
use std::time::{Duration, Instant};

use serde_json::json;

use crate::error::Error;
use crate::load::figures::{median, percentiles, ratio, rounded};
use crate::load::generator::{Load, RequestKind};
use crate::plan::Bench;
use crate::program::{BrokerUse, Program};
use crate::service::process::ServiceProcess;
use crate::store::pgbench;
use crate::store::throwaway::with_data;

/// Measures, reports and returns the median rate.
pub(crate) async fn create<P: Program>(bench: &Bench<'_, P>) -> Result<f64, Error> {
    Box::pin(with_data(bench.program, BrokerUse::Configured, async |data| {
        if !bench.program.has_pgbench() {
            return Box::pin(rounds(bench, data, None)).await;
        }
        // pgbench has a database of its own and needs no topics.
        let measure = async |pgbench: &P::Data| Box::pin(rounds(bench, data, Some(pgbench))).await;
        Box::pin(with_data(bench.program, BrokerUse::StoreOnly, measure)).await
    }))
    .await
}

/// Sums over the rounds.
#[derive(Default)]
struct CreateTotals {
    rates: Vec<f64>,
    pgbench_rates: Vec<f64>,
    micros: Vec<u32>,
    answered: u64,
    refused: u64,
    pending_rows_max: u64,
    settled_max: Duration,
    consumed_max: Duration,
}

async fn rounds<P: Program>(
    bench: &Bench<'_, P>,
    data: &P::Data,
    pgbench_data: Option<&P::Data>,
) -> Result<f64, Error> {
    let plan = bench.plan;
    let service = ServiceProcess::start(data, &[]).await?;
    let idle_mb = service.resident_mb();
    let load = Load {
        address: service.address,
        request: RequestKind::Create,
        clients: plan.clients,
        time: plan.time,
        rate: None,
    };
    let mut totals = CreateTotals::default();
    for round in 1..=plan.rounds {
        bench.reporter.progress(&format!("create, round {round} of {}", plan.rounds));
        let result = load.run(data).await?;
        let last_answer = Instant::now();
        totals.rates.push(result.rate());
        totals.answered += result.answered;
        totals.refused += result.refused;
        totals.micros.extend(result.micros);
        totals.pending_rows_max = totals.pending_rows_max.max(service.pending_rows().await?);
        let settled = service.await_settled(totals.answered).await?;
        totals.settled_max = totals.settled_max.max(settled - last_answer);
        service.await_consumed(totals.answered).await?;
        totals.consumed_max = totals.consumed_max.max(last_answer.elapsed());
        if let Some(data) = pgbench_data
            && let Some(rate) = pgbench::orders_per_second(data, plan.clients, plan.time).await?
        {
            totals.pgbench_rates.push(rate);
        }
    }
    let loaded_mb = service.resident_mb();
    let checked = service.stop_and_check(totals.answered).await?;
    totals.micros.sort_unstable();
    let latency: Vec<f64> = totals.micros.iter().map(|micros| f64::from(*micros) / 1_000.0).collect();
    let rate = median(&totals.rates);
    let mut figures = json!({
        "answeredPerS": rate.round(), "roundsPerS": rounded(&totals.rates), "answered": totals.answered, "refused": totals.refused,
        "latencyMs": percentiles(&latency), "waitingAtMost": totals.pending_rows_max,
        "settledAfterMsAtMost": totals.settled_max.as_millis() as u64, "consumedAfterMsAtMost": totals.consumed_max.as_millis() as u64,
        "residentIdleMb": idle_mb, "residentLoadedMb": loaded_mb,
        "checked": checked.json(),
    });
    if pgbench_data.is_some() {
        figures["pgbench"] = match totals.pgbench_rates.as_slice() {
            [] => json!("not on the PATH: nothing to compare with"),
            theirs => json!({
                "ordersPerS": median(theirs).round(), "roundsPerS": rounded(theirs), "oursToTheirs": ratio(&totals.rates, theirs),
            }),
        };
    }
    bench.reporter.report("create", &figures)?;
    Ok(rate)
}
