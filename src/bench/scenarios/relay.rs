//! `relay`: waiting events drained by the service, in turns with the store's statements by themselves on equal data.
use std::time::{Duration, Instant};

use serde_json::json;

use crate::error::Error;
use crate::load::figures::{median, ratio, rounded};
use crate::plan::Bench;
use crate::program::{BrokerUse, Program};
use crate::service::process::ServiceProcess;
use crate::service::topic_checker::TopicReport;
use crate::store::throwaway::with_data;
use crate::store::{fill, statements};

/// Measures the relay's events per second over all rounds, and reports them.
pub(crate) async fn relay<P: Program>(bench: &Bench<'_, P>) -> Result<(), Error> {
    let (plan, reporter) = (bench.plan, &bench.reporter);
    let mut checked = TopicReport::default();
    let (mut service_rates, mut statement_rates, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=plan.rounds {
        reporter.progress(&format!("relay, round {round} of {}: the service", plan.rounds));
        let drain = with_data(bench.program, BrokerUse::Configured, async |data| drain(bench, data).await).await?;
        service_rates.push(plan.events as f64 / drain.duration.as_secs_f64());
        starts.push(drain.first_claim_after.as_millis() as f64);
        checked.add(&drain.checked);
        reporter.progress(&format!("relay, round {round} of {}: the statements alone", plan.rounds));
        let measure = async |data: &P::Data| {
            fill::fill(data, plan.events, plan.keys).await?;
            statements::events_per_second(data).await
        };
        statement_rates.push(with_data(bench.program, BrokerUse::StoreOnly, measure).await?);
    }
    let until = if bench.program.store_is_broker() { "consumed" } else { "acknowledged and settled" };
    reporter.report(
        "relay",
        &json!({
            "eventsPerS": median(&service_rates).round(), "roundsPerS": rounded(&service_rates), "until": until,
            "firstClaimAfterMs": median(&starts), "statementsAlonePerS": median(&statement_rates).round(),
            "aloneRoundsPerS": rounded(&statement_rates), "shareOfStatementsAlone": ratio(&service_rates, &statement_rates),
            "checked": checked.json(),
        }),
    )
}

/// Durations of one drained backlog, and the check of its topic.
pub(crate) struct DrainResult {
    pub duration: Duration,
    first_claim_after: Duration,
    checked: TopicReport,
}

/// Drains the plan's events through the service.
pub(crate) async fn drain<P: Program>(bench: &Bench<'_, P>, data: &P::Data) -> Result<DrainResult, Error> {
    let events = bench.plan.events;
    fill::fill(data, events, bench.plan.keys).await?;
    // Kafka's consumers do not write to the store, so they are not part of what is measured.
    let store_is_broker = bench.program.store_is_broker();
    let consumers: &[(&str, &str)] = if store_is_broker { &[] } else { &[("POSTHASTE__CONSUMER__COUNT", "0")] };
    let start = Instant::now();
    let service = ServiceProcess::start(data, consumers).await?;
    let begin = service.await_first_claim().await?;
    let end = if store_is_broker {
        service.await_consumed(events).await?;
        Instant::now()
    } else {
        service.await_settled(events).await?
    };
    let checked = service.stop_and_check(events).await?;
    Ok(DrainResult { duration: end - begin, first_claim_after: begin - start, checked })
}
