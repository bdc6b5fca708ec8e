//! `end-to-end`: how long an event is under way, while nothing else happens and at half of the highest rate.
use posthaste::{Config, Throwaway};
use serde_json::json;

use super::super::failure::Failure;
use super::Bench;
use super::figures::percentiles;
use super::ground::on_ground;
use super::load::{Ask, Load, Outcome};
use super::process::Running;
use super::scrape;

/// Orders a second that leave the service idle between any two.
const IDLE_RATE: f64 = 10.0;
/// Few enough that no connection stands idle for as long as the service lets one.
const IDLE_CLIENTS: usize = 4;
/// The idle part lasts so many rounds' time: few orders a second need longer for as many samples.
const IDLE_ROUNDS: u32 = 3;

pub(super) async fn end_to_end(bench: &Bench<'_>, ceiling: Option<f64>) -> Result<(), Failure> {
    on_ground(&bench.config, async |ground| measure(bench, ground, ceiling).await).await
}

async fn measure(bench: &Bench<'_>, ground: &Throwaway, ceiling: Option<f64>) -> Result<(), Failure> {
    let arguments = bench.arguments;
    let service = Running::start(bench, ground, &[]).await?;
    let mut load = Load {
        address: service.address,
        ask: Ask::Create,
        clients: arguments.clients,
        time: arguments.time,
        rate: None,
    };
    let mut answered = 0;
    // Also what warms everything up.
    bench.progress("end-to-end, at full load");
    let full = load.run(&ground.config).await?;
    answered += full.answered;
    service.drained(answered).await?;
    let ceiling = ceiling.unwrap_or(full.rate());

    bench.progress("end-to-end, idle");
    load.time = arguments.time * IDLE_ROUNDS;
    (load.clients, load.rate) = (IDLE_CLIENTS, Some(IDLE_RATE));
    let idle = part(&service, &load, ground, &mut answered).await?;
    let rows = newest(&ground.config, idle.outcome.answered).await?;
    bench.report(
        "idle",
        &json!({
            "rate_per_s": IDLE_RATE, "refused": idle.outcome.refused, "latency_ms": idle.outcome.percentiles(), "commit_to_settled_ms": percentiles(&rows),
            "commit_to_ack_ms": idle.acknowledged, "commit_to_consumed_ms": idle.consumed,
        }),
    )?;

    bench.progress("end-to-end, at half load");
    load.time = arguments.time * 2;
    (load.clients, load.rate) = (arguments.clients, Some(ceiling / 2.0));
    let half = part(&service, &load, ground, &mut answered).await?;
    let checked = service.stop_and_check(answered).await?;
    bench.report(
        "end-to-end",
        &json!({
            "rate_per_s": half.outcome.rate().round(), "refused": half.outcome.refused, "latency_ms": half.outcome.percentiles(),
            "commit_to_ack_ms": half.acknowledged, "commit_to_consumed_ms": half.consumed, "checked": checked.json(),
        }),
    )
}

/// What a load came to, and what the service's histograms heard meanwhile.
struct Part {
    outcome: Outcome,
    acknowledged: serde_json::Value,
    consumed: serde_json::Value,
}

async fn part(service: &Running, load: &Load, ground: &Throwaway, answered: &mut u64) -> Result<Part, Failure> {
    const ACKS: &str = "outbox_commit_to_ack_seconds";
    const AGES: &str = "kafka_consumer_lag_ms";
    let (acks, ages) = (service.histogram(ACKS).await?, service.histogram(AGES).await?);
    let outcome = load.run(&ground.config).await?;
    *answered += outcome.answered;
    service.drained(*answered).await?;
    let acks = scrape::since(&service.histogram(ACKS).await?, &acks);
    let ages = scrape::since(&service.histogram(AGES).await?, &ages);
    Ok(Part { outcome, acknowledged: scrape::percentiles(&acks, 1_000.0), consumed: scrape::percentiles(&ages, 1.0) })
}

/// From the commit to the settlement, which follows the acknowledgement, of the latest rows: by the store's own clock, to the millisecond.
async fn newest(config: &Config, rows: u64) -> Result<Vec<f64>, Failure> {
    let operations = posthaste::beside(config).await?.operations;
    let mut after = None;
    let mut ages = std::collections::VecDeque::new();
    loop {
        let filter = app::port_types::RowFilter { after, ..Default::default() };
        let page = operations.rows(&filter, 1_000).await?;
        let sent = page.rows.iter().filter_map(|row| Some(row.sent_at?.since(row.created_at).as_millis() as f64));
        ages.extend(sent);
        let surplus = ages.len().saturating_sub(rows as usize);
        ages.drain(..surplus);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut ages: Vec<f64> = ages.into();
    ages.sort_by(f64::total_cmp);
    Ok(ages)
}
