//! `latency`: from commit to acknowledgement and to settlement at set rates of orders, as exact percentiles.
use serde_json::{Value, json};

use crate::error::Error;
use crate::load::figures::{median, median_percentiles, percentiles};
use crate::load::generator::{Load, RequestKind};
use crate::load::warm_up::start_warm;
use crate::plan::Bench;
use crate::program::{BrokerUse, Program};
use crate::store::row_ages::newest_rows_ms;
use crate::store::throwaway::with_data;

/// Measures each rate on data of its own, in turns, and reports the median of the rounds.
pub(crate) async fn latency<P: Program>(bench: &Bench<'_, P>) -> Result<(), Error> {
    let plan = bench.plan;
    let mut rounds: Vec<Vec<LatencyRound>> = plan.rates.iter().map(|_| Vec::new()).collect();
    for round in 1..=plan.rounds {
        for (rate, rounds) in plan.rates.iter().zip(&mut rounds) {
            bench.reporter.progress(&format!("latency at {rate}/s, round {round} of {}", plan.rounds));
            let measure = async |data: &P::Data| measure(bench, data, f64::from(*rate)).await;
            rounds.push(with_data(bench.program, BrokerUse::Configured, measure).await?);
        }
    }
    plan.rates.iter().zip(&rounds).try_for_each(|(rate, rounds)| {
        let duplicates_and_losses: Vec<&Value> = rounds.iter().map(|round| &round.checked).collect();
        bench.reporter.report(
            "latency",
            &json!({
                "ratePerS": rate, "answeredPerS": median(&rounds.iter().map(|round| round.rate).collect::<Vec<_>>()).round(),
                "commitToAckMs": median_percentiles(rounds.iter().map(|round| &round.acknowledged_ms)),
                "commitToSettledMs": median_percentiles(rounds.iter().map(|round| &round.settled_ms)),
                "rounds": rounds.iter().map(|round| &round.acknowledged_ms).collect::<Vec<_>>(), "checked": duplicates_and_losses,
            }),
        )
    })
}

/// One load at a set rate.
struct LatencyRound {
    rate: f64,
    acknowledged_ms: Value,
    settled_ms: Value,
    checked: Value,
}

async fn measure<P: Program>(bench: &Bench<'_, P>, data: &P::Data, rate: f64) -> Result<LatencyRound, Error> {
    let plan = bench.plan;
    let load =
        |address, time| Load { address, request: RequestKind::Create, clients: plan.clients, time, rate: Some(rate) };
    let (service, warm_up) = start_warm(data, |address| load(address, plan.time)).await?;
    let measured = load(service.address, plan.time * 2).run(data).await?;
    let answered = warm_up + measured.answered;
    service.await_consumed(answered).await?;
    let acknowledged = percentiles(&service.take_acknowledged_ms(measured.answered).await?);
    let settled = percentiles(&newest_rows_ms(data, measured.answered).await?);
    let checked = service.stop_and_check(answered).await?.json();
    Ok(LatencyRound { rate: measured.rate(), acknowledged_ms: acknowledged, settled_ms: settled, checked })
}
