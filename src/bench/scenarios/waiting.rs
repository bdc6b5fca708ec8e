//! `waiting`: the cost of a claim while rows that are not due wait, in turns with claims of an empty outbox.
use serde_json::json;

use crate::error::Error;
use crate::load::figures::{median_percentiles, percentiles, ratio};
use crate::plan::Bench;
use crate::program::{BrokerUse, Program};
use crate::store::throwaway::with_data;
use crate::store::{fill, idle_claims};

/// Measures claims that find nothing, before and after the plan's events, each of an order of its own, wait for a retry.
pub(crate) async fn waiting<P: Program>(bench: &Bench<'_, P>) -> Result<(), Error> {
    let plan = bench.plan;
    let (mut without, mut with_waiting, mut rows) = (Vec::new(), Vec::new(), 0);
    for round in 1..=plan.rounds {
        bench.reporter.progress(&format!("waiting, round {round} of {}", plan.rounds));
        let measure = async |data: &P::Data| {
            let (_, empty) = idle_claims::idle_claims_ms(data).await?;
            fill::fill(data, plan.events, plan.events).await?;
            Ok((empty, idle_claims::idle_claims_ms(data).await?))
        };
        let (empty, (waiting, times)) = with_data(bench.program, BrokerUse::StoreOnly, measure).await?;
        rows = waiting;
        without.push(percentiles(&empty));
        with_waiting.push(percentiles(&times));
    }
    let p50 = |all: &[serde_json::Value]| all.iter().filter_map(|round| round["p50"].as_f64()).collect::<Vec<_>>();
    bench.reporter.report(
        "waiting",
        &json!({
            "rowsNotDue": rows, "claimMs": median_percentiles(with_waiting.iter()),
            "claimOfAnEmptyOutboxMs": median_percentiles(without.iter()),
            "p50OfEmpty": ratio(&p50(&with_waiting), &p50(&without)),
        }),
    )
}
