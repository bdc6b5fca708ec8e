//! `end-to-end`: latency of an event from its commit to the broker and to the consumer, while the service is idle and at half of its
//! highest rate.
use serde_json::{Value, json};

use crate::error::Error;
use crate::load::figures::percentiles;
use crate::load::generator::{Load, LoadResult, RequestKind};
use crate::plan::Bench;
use crate::program::{BrokerUse, Program, ThrowawayData};
use crate::service::metrics_page;
use crate::service::process::{LOG_ACKNOWLEDGEMENTS, ServiceProcess};
use crate::store::row_ages::newest_rows_ms;
use crate::store::throwaway::with_data;

/// Orders per second between any two of which the service is idle.
const IDLE_RATE: f64 = 10.0;
/// Few enough that no connection is idle for as long as the service keeps one open.
const IDLE_CLIENTS: usize = 4;
/// The idle part lasts this many rounds: few orders per second need longer for as many samples.
const IDLE_ROUNDS: u32 = 3;

/// Measures and reports; `ceiling` is the highest create rate where it was measured before.
pub(crate) async fn end_to_end<P: Program>(bench: &Bench<'_, P>, ceiling: Option<f64>) -> Result<(), Error> {
    with_data(bench.program, BrokerUse::Configured, async |data| measure(bench, data, ceiling).await).await
}

async fn measure<P: Program>(bench: &Bench<'_, P>, data: &P::Data, ceiling: Option<f64>) -> Result<(), Error> {
    let (plan, reporter) = (bench.plan, &bench.reporter);
    let service = ServiceProcess::start(data, &[LOG_ACKNOWLEDGEMENTS]).await?;
    let mut load = Load {
        address: service.address,
        request: RequestKind::Create,
        clients: plan.clients,
        time: plan.time,
        rate: None,
    };
    let mut answered = 0;
    // The full load also warms the service up.
    reporter.progress("end-to-end, at full load");
    let full = load.run(data).await?;
    answered += full.answered;
    service.await_consumed(answered).await?;
    service.take_acknowledged_ms(answered).await?;
    let ceiling = ceiling.unwrap_or(full.rate());

    reporter.progress("end-to-end, idle");
    load.time = plan.time * IDLE_ROUNDS;
    (load.clients, load.rate) = (IDLE_CLIENTS, Some(IDLE_RATE));
    let idle = measure_part(&service, &load, data, &mut answered).await?;
    let settled = newest_rows_ms(data, idle.result.answered).await?;
    reporter.report(
        "idle",
        &json!({
            "ratePerS": IDLE_RATE, "answeredPerS": idle.result.rate(), "refused": idle.result.refused,
            "latencyMs": idle.result.percentiles(),
            "commitToSettledMs": percentiles(&settled), "commitToAckMs": idle.acknowledged, "commitToConsumedMs": idle.consumed,
        }),
    )?;

    reporter.progress("end-to-end, at half load");
    load.time = plan.time * 2;
    (load.clients, load.rate) = (plan.clients, Some(ceiling / 2.0));
    let half = measure_part(&service, &load, data, &mut answered).await?;
    let half_settled = newest_rows_ms(data, half.result.answered).await?;
    let checked = service.stop_and_check(answered).await?;
    reporter.report(
        "end-to-end",
        &json!({
            "ratePerS": half.result.rate().round(), "refused": half.result.refused, "latencyMs": half.result.percentiles(),
            "commitToSettledMs": percentiles(&half_settled), "commitToAckMs": half.acknowledged,
            "commitToConsumedMs": half.consumed, "checked": checked.json(),
        }),
    )
}

/// A load's result and what the service observed meanwhile.
struct LoadPart {
    result: LoadResult,
    acknowledged: Value,
    consumed: Value,
}

async fn measure_part<D: ThrowawayData>(
    service: &ServiceProcess<'_, D>,
    load: &Load,
    data: &D,
    answered: &mut u64,
) -> Result<LoadPart, Error> {
    const CONSUMED: &str = "kafka_consumer_lag_ms";
    let consumed_before = service.histogram(CONSUMED).await?;
    let result = load.run(data).await?;
    *answered += result.answered;
    service.await_consumed(*answered).await?;
    let acknowledged = service.take_acknowledged_ms(result.answered).await?;
    let consumed = metrics_page::since(&service.histogram(CONSUMED).await?, &consumed_before);
    Ok(LoadPart {
        result,
        acknowledged: percentiles(&acknowledged),
        consumed: metrics_page::percentiles(&consumed, 1.0),
    })
}
