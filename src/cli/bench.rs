//! `bench`: the service as a process of its own on a throwaway data folder, the load beside it on the same machine. Prints its settings,
//! rates, latency percentiles, and counts duplicates and order violations while it measures.
mod check;
mod load;
mod process;
mod scrape;

use std::time::{Duration, Instant};

use posthaste::Config;
use serde_json::{Value, json};

use super::{Failure, block_on, line};
use check::Checked;
use load::{Load, Outcome};
use process::Running;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// create: orders over HTTP. relay: drain waiting events. end-to-end: half of the highest rate, commit to consumed. all: each in turn.
    #[arg(value_parser = ["create", "relay", "end-to-end", "all"], default_value = "all")]
    what: String,
    /// Clients that each wait for their answer before they ask again.
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// How long load is applied.
    #[arg(long, default_value = "10s", value_parser = posthaste::config::parse_duration)]
    time: Duration,
    /// Waiting events that the relay drains.
    #[arg(long, default_value_t = 100_000)]
    events: u64,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

pub(crate) fn bench(config: Config, arguments: &Arguments) -> Result<u8, Failure> {
    block_on(async {
        settings(arguments)?;
        let all = arguments.what == "all";
        let mut ceiling = None;
        if all || arguments.what == "create" {
            ceiling = Some(create(&config, arguments).await?);
        }
        if all || arguments.what == "end-to-end" {
            end_to_end(&config, arguments, ceiling).await?;
        }
        if all || arguments.what == "relay" {
            relay(&config, arguments).await?;
        }
        Ok(0)
    })
}

fn settings(arguments: &Arguments) -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let build = if cfg!(debug_assertions) { "debug build: figures mean nothing" } else { "release build" };
    report(
        arguments,
        "settings",
        &json!({
            "build": build, "cores": cores, "clients": arguments.clients, "seconds": arguments.time.as_secs_f64(), "events": arguments.events,
            "store": "embedded", "broker": "embedded", "rate_limit": "off", "log": "start and stop, no request lines", "load": "beside the service on the same cores",
        }),
    )
}

/// Orders over HTTP as fast as they are answered; relay and consumer must keep pace.
async fn create(config: &Config, arguments: &Arguments) -> Result<f64, Failure> {
    let service = Running::start(config, &[]).await?;
    let idle_mb = service.resident_mb();
    let load = Load { address: service.address, clients: arguments.clients, time: arguments.time, rate: None };
    let outcome = load.run(config).await?;
    let waiting = service.waiting(config).await?;
    let drained = service.drained(config, outcome.answered).await?;
    let loaded_mb = service.resident_mb();
    let checked = service.stop_and_check(config, &outcome).await?;
    let rate = outcome.rate();
    report(
        arguments,
        "create",
        &json!({
            "answered_per_s": rate.round(), "answered": outcome.answered, "refused": outcome.refused,
            "latency_ms": outcome.percentiles(), "waiting_at_the_end": waiting, "drained_after_ms": drained.as_millis() as u64,
            "resident_idle_mb": idle_mb, "resident_loaded_mb": loaded_mb, "checked": checked.json(),
        }),
    )?;
    Ok(rate)
}

/// At half of the highest rate: how old is an event when it has been consumed?
async fn end_to_end(config: &Config, arguments: &Arguments, ceiling: Option<f64>) -> Result<(), Failure> {
    let rate = ceiling.unwrap_or(12_000.0) / 2.0;
    let service = Running::start(config, &[]).await?;
    let load = Load { address: service.address, clients: arguments.clients, time: arguments.time, rate: Some(rate) };
    let outcome = load.run(config).await?;
    service.drained(config, outcome.answered).await?;
    let ages = service.histogram(config, "kafka_consumer_lag_ms").await?;
    let acks = service.histogram(config, "outbox_commit_to_ack_seconds").await?;
    let checked = service.stop_and_check(config, &outcome).await?;
    report(
        arguments,
        "end-to-end",
        &json!({
            "rate_per_s": outcome.rate().round(), "latency_ms": outcome.percentiles(),
            "commit_to_ack_ms": scrape::percentiles(&acks, 1_000.0), "commit_to_consumed_ms": scrape::percentiles(&ages, 1.0),
            "checked": checked.json(),
        }),
    )
}

/// Events that waited while there was no broker, drained through relay and consumer; beside it what SQLite alone does with the same
/// statements, on a copy of the same data.
async fn relay(config: &Config, arguments: &Arguments) -> Result<(), Failure> {
    let service = Running::start(config, &[("POSTHASTE__BROKER__KIND", "none")]).await?;
    let load = Load { address: service.address, clients: arguments.clients, time: Duration::MAX, rate: None };
    let outcome: Outcome = load.run_for(config, arguments.events).await?;
    let folder = service.stop().await?;
    let alone = process::statements_alone(folder.path()).await?;
    let begun = Instant::now();
    let service = Running::start_on(config, folder, &[]).await?;
    let started = begun.elapsed();
    service.drained(config, outcome.answered).await?;
    let elapsed = begun.elapsed() - started;
    let checked = service.stop_and_check(config, &outcome).await?;
    let rate = outcome.answered as f64 / elapsed.as_secs_f64();
    report(
        arguments,
        "relay",
        &json!({
            "events": outcome.answered, "events_per_s": rate.round(), "sqlite_alone_per_s": alone.round(),
            "share_of_sqlite_alone": (rate / alone * 100.0).round() / 100.0, "checked": checked.json(),
        }),
    )
}

fn report(arguments: &Arguments, what: &str, figures: &Value) -> Result<(), Failure> {
    if arguments.json {
        return line(&json!({"bench": what, "figures": figures}).to_string());
    }
    line(what)?;
    for (name, value) in figures.as_object().into_iter().flatten() {
        line(&format!("  {name}: {value}"))?;
    }
    Ok(())
}

impl Checked {
    fn json(&self) -> Value {
        json!({"events": self.events, "duplicates": self.duplicates, "order_violations": self.order_violations, "missing": self.missing})
    }
}
