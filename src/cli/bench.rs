//! `bench`: the service as a process of its own on throwaway data beside the configured ones, the load on the same machine. Prints its
//! settings, rates, latency percentiles, and counts duplicates, order violations and missing events while it measures.
mod check;
mod client;
mod create;
mod figures;
mod ground;
mod latency;
mod load;
mod overload;
mod pgbench;
mod process;
mod relay;
mod scrape;

use std::path::Path;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use posthaste::Config;
use posthaste::config::{BrokerKind, CacheKind, DeliveryKind, StoreKind};
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::output::print_line as line;
use super::runtime::block_on;
use super::value_parsers::a_second_or_more;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// create: orders over HTTP. relay: drain waiting events. end-to-end: a few orders a second, then half of the highest rate, from the
    /// commit to the broker and to the consumer. overload: before, during and after 32 times as many clients that create, then that list. all: each
    /// in turn.
    #[arg(value_parser = ["create", "relay", "end-to-end", "overload", "all"], default_value = "all")]
    what: String,
    /// Clients that each wait for their answer before they ask again.
    #[arg(long, default_value_t = 64, value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_535))]
    clients: usize,
    /// How long load is applied in each round; at least a second.
    #[arg(long, default_value = "4s", value_parser = a_second_or_more)]
    time: Duration,
    /// Rounds of what is compared, in turns; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Waiting events that the relay drains in each round.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    events: u64,
    /// Orders that these events tell of.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: u64,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

/// What every part needs to know.
struct Bench<'a> {
    /// The configuration's file, for the service's own process.
    file: Option<&'a Path>,
    config: Config,
    arguments: &'a Arguments,
}

pub(crate) fn bench(file: Option<&Path>, config: Config, arguments: &Arguments) -> Result<u8, Failure> {
    if config.broker.kind == BrokerKind::None {
        return Err(Failure::new("there is nothing to measure without a broker: set broker.kind"));
    }
    let bench = Bench { file, config, arguments };
    block_on(async {
        bench.settings().await?;
        let wanted = |part: &str| arguments.what == "all" || arguments.what == part;
        let ceiling = if wanted("create") { Some(Box::pin(create::create(&bench)).await?) } else { None };
        if wanted("end-to-end") {
            latency::end_to_end(&bench, ceiling).await?;
        }
        if wanted("relay") {
            Box::pin(relay::relay(&bench)).await?;
        }
        if wanted("overload") {
            Box::pin(overload::overload(&bench)).await?;
        }
        Ok(0)
    })
}

impl Bench<'_> {
    async fn settings(&self) -> Result<(), Failure> {
        let (config, arguments) = (&self.config, self.arguments);
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let build = if cfg!(debug_assertions) { "debug build: figures mean nothing" } else { "release build" };
        let store = match config.store.kind {
            StoreKind::Embedded => "embedded",
            StoreKind::Postgres => "postgres",
            StoreKind::Redis => "redis",
        };
        let broker = match config.broker.kind {
            BrokerKind::Embedded => "embedded",
            BrokerKind::Kafka => "kafka",
            BrokerKind::None => "none",
        };
        // The embedded broker knows nothing less.
        let exactly_once =
            config.broker.delivery == DeliveryKind::ExactlyOnce || config.broker.kind == BrokerKind::Embedded;
        let server: Map<String, Value> = match config.store.kind {
            StoreKind::Embedded => [("synchronous".to_owned(), json!("full"))].into_iter().collect(),
            StoreKind::Postgres | StoreKind::Redis => {
                let told = posthaste::server_settings(config).await?;
                told.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
            }
        };
        self.report(
            "settings",
            &json!({
                "build": build, "cores": cores, "store": store, "broker": broker, "store_says": server,
                "delivery": if exactly_once { "exactly-once" } else { "at-least-once" },
                "cache": if config.cache.kind == CacheKind::Redis { "redis" } else { "memory" },
                "batch": config.outbox.publisher.batch, "batches_in_flight": config.outbox.publisher.max_in_flight, "outbox_partitions": config.outbox.partitions,
                "topic_partitions": config.broker.topic_partitions, "lanes": config.broker.lanes,
                "clients": arguments.clients, "seconds": arguments.time.as_secs_f64(), "rounds": arguments.rounds,
                "events": arguments.events, "keys": arguments.keys, "rate_limit": "off", "log": "start and stop, no request lines",
                "load": "beside the service on the same cores",
            }),
        )
    }

    fn report(&self, what: &str, figures: &Value) -> Result<(), Failure> {
        if self.arguments.json {
            return line(&json!({"bench": what, "figures": figures}).to_string());
        }
        line(what)?;
        for (name, value) in figures.as_object().into_iter().flatten() {
            line(&format!("  {name}: {value}"))?;
        }
        Ok(())
    }

    /// Says what is going on, for whoever waits.
    fn progress(&self, what: &str) {
        eprintln!("bench: {what}");
    }
}
