//! `held`: the cost of claims and the latency while another transaction stays open on PostgreSQL, in turns with a run without one.
use serde_json::{Value, json};

use crate::error::Error;
use crate::load::figures::{median, median_percentiles, percentiles, ratio};
use crate::load::generator::{Load, RequestKind};
use crate::load::warm_up::start_warm;
use crate::plan::Bench;
use crate::program::{BrokerUse, Program, ThrowawayData, TransactionKind};
use crate::store::throwaway::with_data;

/// The measured variants; the first one is the baseline of the others.
const VARIANTS: [(&str, Option<TransactionKind>); 4] = [
    ("no transaction held", None),
    ("unrelated writer held", Some(TransactionKind::UnrelatedWriter)),
    ("outbox writer held", Some(TransactionKind::OutboxWriter)),
    ("REPEATABLE READ reader held", Some(TransactionKind::SnapshotReader)),
];

/// The statements that claim: a claim by itself, and under load the one that settles the batch before in the same transaction.
const CLAIMS: [&str; 2] = ["claim", "settle_and_claim"];

/// Measures each variant on data of its own at each rate, in turns.
pub(crate) async fn held<P: Program>(bench: &Bench<'_, P>) -> Result<(), Error> {
    let plan = bench.plan;
    for rate in &plan.rates {
        let mut runs: Vec<Vec<HeldRun>> = VARIANTS.iter().map(|_| Vec::new()).collect();
        for round in 1..=plan.rounds {
            for ((name, transaction), runs) in VARIANTS.iter().zip(&mut runs) {
                bench.reporter.progress(&format!("held at {rate}/s, round {round} of {}: {name}", plan.rounds));
                let measure = async |data: &P::Data| measure(bench, data, f64::from(*rate), *transaction).await;
                runs.push(with_data(bench.program, BrokerUse::Configured, measure).await?);
            }
        }
        report(bench, *rate, &runs)?;
    }
    Ok(())
}

/// The figures of one load.
struct HeldRun {
    /// Mean time of a claim, with its wait for a round and the settlement before it, if it has one.
    claim_ms: f64,
    /// Responses per second of the whole load, which may stay below the planned rate.
    rate: f64,
    acknowledged_ms: Value,
    checked: Value,
}

fn report<P: Program>(bench: &Bench<'_, P>, rate: u32, runs: &[Vec<HeldRun>]) -> Result<(), Error> {
    let claims = |runs: &[HeldRun]| runs.iter().map(|run| run.claim_ms).collect::<Vec<_>>();
    let clean = runs.first().map(|runs| claims(runs)).unwrap_or_default();
    VARIANTS.iter().zip(runs).try_for_each(|((name, _), runs)| {
        let rates: Vec<f64> = runs.iter().map(|run| run.rate).collect();
        bench.reporter.report(
            "held",
            &json!({
                "ratePerS": rate, "answeredPerS": median(&rates).round(), "held": name,
                "claimMeanMs": median(&claims(runs)), "claimOfClean": ratio(&claims(runs), &clean),
                "commitToAckMs": median_percentiles(runs.iter().map(|run| &run.acknowledged_ms)),
                "checked": runs.iter().map(|run| &run.checked).collect::<Vec<_>>(),
            }),
        )
    })
}

async fn measure<P: Program>(
    bench: &Bench<'_, P>,
    data: &P::Data,
    rate: f64,
    transaction: Option<TransactionKind>,
) -> Result<HeldRun, Error> {
    let plan = bench.plan;
    let load =
        |address, time| Load { address, request: RequestKind::Create, clients: plan.clients, time, rate: Some(rate) };
    let (service, warm_up) = start_warm(data, |address| load(address, plan.time)).await?;
    let held = match transaction {
        Some(transaction) => Some(data.hold(transaction).await?),
        None => None,
    };
    let before = service.statement_times(&CLAIMS).await?;
    let measured = load(service.address, plan.time * 2).run(data).await?;
    let answered = warm_up + measured.answered;
    service.await_consumed(answered).await?;
    let claim_ms = service.statement_times(&CLAIMS).await?.mean_ms_since(&before);
    let acknowledged_ms = percentiles(&service.take_acknowledged_ms(measured.answered).await?);
    // Its end is not measured; its row, if any, is rolled back.
    drop(held);
    let checked = service.stop_and_check(answered).await?.json();
    Ok(HeldRun { claim_ms, rate: measured.rate(), acknowledged_ms, checked })
}
