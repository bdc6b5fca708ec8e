//! `bench`: the arguments of the command, and the implementation of the bench crate's traits for this program.
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use app::commands;
use app::operators::outbox::Operations;
use bench::{BrokerUse, Plan, Program, Scenario, StoreAndBroker, ThrowawayData, TransactionKind};
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use ports::broker::topics::TopicReader;
use ports::clock::{Clock, Rng};
use posthaste::config::{BrokerKind, CacheKind, DeliveryKind, StoreKind};
use posthaste::{Config, Throwaway, ThrowawayStore};
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};
use tokio::process::Command;

use super::commands::serve::Signals;
use super::commands::token::{CallerClaims, DEVELOPMENT_SECRET, mint};
use super::failure::Failure;
use super::output::format::OutputArguments;
use super::runtime::block_on;
use super::value_parsers::a_second_or_more;

/// Lifetime of the tokens; longer than any measurement.
const TOKEN_TTL: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BenchScenario {
    /// Creates orders over HTTP; each client sends the next request after a response.
    Create,
    /// Drains waiting events through the relay, and compares that with the store's statements alone.
    Relay,
    /// Latency from commit to broker and consumer, idle and at half of the highest rate.
    EndToEnd,
    /// Latency from commit to acknowledgement and settlement at the rates of --rate, as exact percentiles.
    Latency,
    /// Cost of claims and latency at --rate while another transaction stays open on PostgreSQL, beside runs without one.
    Held,
    /// Cost of a claim beside --events rows that are not due, beside claims without them, with the store's statements alone.
    Waiting,
    /// Events per second of posthaste.publish with 4 and 64 connections, beside plain INSERTs, and a bulk of 100,000 keys, on PostgreSQL.
    Publish,
    /// Compares latency before, during and after a load of 32 times as many clients, which create and list orders.
    Overload,
    /// Drains in turns with another relay, the command of --peer; without one, prints the line that a peer is run with.
    Peers,
    /// All of them but `peers`, one after the other.
    All,
}

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The measurement to make.
    #[arg(default_value = "all")]
    scenario: BenchScenario,
    /// Clients that each send a request after the response to their last one.
    #[arg(long, default_value_t = 64, value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_535))]
    clients: usize,
    /// Duration of the load in each round; at least a second.
    #[arg(long, default_value = "4s", value_parser = a_second_or_more)]
    time: Duration,
    /// Rounds of each comparison, in turns; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Waiting events that the relay drains in each round.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    events: u64,
    /// Orders that these events belong to.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: u64,
    /// Orders per second of `latency`; several are measured in turns.
    #[arg(long = "rate", value_name = "RATE", default_values_t = [500, 2_000, 3_000], value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rates: Vec<u32>,
    /// Shell command of `peers`. Its environment has the services, a database of its own and the load: DSN, BROKERS, N, P, BATCH, RATE,
    /// SECONDS, and the variables of psql.
    #[arg(long, value_name = "COMMAND")]
    peer: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

impl Arguments {
    fn plan(&self) -> Plan {
        let scenario = match self.scenario {
            BenchScenario::Create => Some(Scenario::Create),
            BenchScenario::Relay => Some(Scenario::Relay),
            BenchScenario::EndToEnd => Some(Scenario::EndToEnd),
            BenchScenario::Latency => Some(Scenario::Latency),
            BenchScenario::Held => Some(Scenario::Held),
            BenchScenario::Waiting => Some(Scenario::Waiting),
            BenchScenario::Publish => Some(Scenario::Publish),
            BenchScenario::Overload => Some(Scenario::Overload),
            BenchScenario::Peers => Some(Scenario::Peers),
            BenchScenario::All => None,
        };
        let &Self { clients, time, rounds, events, keys, output, .. } = self;
        Plan {
            scenario,
            clients,
            time,
            rounds,
            events,
            keys,
            rates: self.rates.clone(),
            peer: self.peer.clone(),
            json: output.is_json(),
        }
    }
}

/// Measures this program on throwaway data; the configured data are not touched.
pub(crate) fn bench(file: Option<&Path>, config: Config, arguments: &Arguments) -> Result<u8, Failure> {
    if config.broker.kind == BrokerKind::None {
        return Err(Failure::new("there is nothing to measure without a broker: set broker.kind"));
    }
    let program = ConfiguredProgram { file, config };
    block_on(bench::run(&program, &arguments.plan())).map_err(Failure::new)?;
    Ok(0)
}

/// This program under the given configuration.
struct ConfiguredProgram<'a> {
    /// The configuration's file, which the service's own process reads too.
    file: Option<&'a Path>,
    config: Config,
}

impl<'a> Program for ConfiguredProgram<'a> {
    type Data = BenchData<'a>;

    fn settings(&self) -> Value {
        let config = &self.config;
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
        // The embedded broker has exactly-once delivery only.
        let exactly_once =
            config.broker.delivery == DeliveryKind::ExactlyOnce || config.broker.kind == BrokerKind::Embedded;
        json!({
            "store": store, "broker": broker, "delivery": if exactly_once { "exactly-once" } else { "at-least-once" },
            "cache": if config.cache.kind == CacheKind::Redis { "redis" } else { "memory" },
            "batch": config.outbox.publisher.batch, "batchesInFlight": config.outbox.publisher.max_in_flight,
            "outboxPartitions": config.outbox.partitions, "topicPartitions": config.broker.topic_partitions,
            "lanes": config.broker.lanes,
        })
    }

    async fn server_settings(&self) -> Result<Value, bench::Error> {
        if self.config.store.kind == StoreKind::Embedded {
            return Ok(json!({"synchronous": "full"}));
        }
        let settings = posthaste::server_settings(&self.config).await.map_err(bench::Error::new)?;
        let settings: Map<String, Value> =
            settings.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        Ok(Value::Object(settings))
    }

    fn has_pgbench(&self) -> bool {
        self.config.store.kind == StoreKind::Postgres
    }

    fn store_is_broker(&self) -> bool {
        self.config.broker.kind == BrokerKind::Embedded
    }

    fn kafka_brokers(&self) -> Option<String> {
        (self.config.broker.kind == BrokerKind::Kafka).then(|| self.config.broker.bootstrap_servers.clone())
    }

    async fn create_data(&self, broker: BrokerUse) -> Result<BenchData<'a>, bench::Error> {
        let mut config = self.config.clone();
        if broker == BrokerUse::StoreOnly {
            let embedded = config.store.kind == StoreKind::Embedded;
            config.broker.kind = if embedded { BrokerKind::Embedded } else { BrokerKind::None };
        }
        let throwaway = Box::pin(Throwaway::create(&config)).await.map_err(bench::Error::new)?;
        Ok(BenchData { file: self.file, throwaway })
    }

    async fn interrupted(&self) -> Result<(), bench::Error> {
        Signals::listen().map_err(|failure| bench::Error::new(failure.message))?.next().await;
        Ok(())
    }
}

/// Throwaway data and the configuration's file.
struct BenchData<'a> {
    file: Option<&'a Path>,
    throwaway: Throwaway,
}

impl ThrowawayData for BenchData<'_> {
    type Store = ThrowawayStore;
    type HeldTransaction = posthaste::HeldTransaction;

    fn service(&self) -> Result<Command, bench::Error> {
        let mut command = Command::new(std::env::current_exe()?);
        if let Some(file) = self.file {
            command.arg("--config").arg(file);
        }
        command.args(["serve", "--dev"]);
        set_environment(&mut command, &self.throwaway.config);
        Ok(command)
    }

    fn token(&self, subject: &str, role: &str) -> Result<String, bench::Error> {
        let claims = CallerClaims { sub: subject.to_owned(), roles: vec![role.to_owned()], tier: None, ttl: TOKEN_TTL };
        mint(&self.throwaway.config, DEVELOPMENT_SECRET, &claims).map_err(|failure| bench::Error::new(failure.message))
    }

    fn folder(&self) -> &Path {
        &self.throwaway.config.store.path
    }

    fn topic(&self) -> String {
        self.throwaway.config.topic()
    }

    fn partitions(&self) -> u32 {
        self.throwaway.config.outbox.partitions
    }

    fn batch(&self) -> u32 {
        self.throwaway.config.outbox.publisher.batch
    }

    fn batches_in_flight(&self) -> usize {
        self.throwaway.config.outbox.publisher.max_in_flight
    }

    fn pgbench_environment(&self) -> Result<Option<Vec<(&'static str, String)>>, bench::Error> {
        posthaste::server_environment(&self.throwaway.config).map_err(bench::Error::new)
    }

    async fn hold(&self, transaction: TransactionKind) -> Result<posthaste::HeldTransaction, bench::Error> {
        self.throwaway.hold_transaction(transaction).await.map_err(bench::Error::new)
    }

    async fn open_store(&self, instance: &str) -> Result<ThrowawayStore, bench::Error> {
        self.throwaway.open_store(instance).await.map_err(bench::Error::new)
    }

    async fn open_store_and_broker(&self) -> Result<Option<StoreAndBroker>, bench::Error> {
        self.throwaway.open_store_and_broker().map_err(bench::Error::new)
    }

    fn row_options(&self) -> commands::Options {
        self.throwaway.row_options()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.throwaway.clock()
    }

    fn rng(&self) -> Arc<dyn Rng> {
        self.throwaway.rng()
    }

    async fn topics(&self) -> Result<Arc<dyn TopicReader>, bench::Error> {
        self.throwaway.topics().await.map_err(bench::Error::new)
    }

    async fn operations(&self) -> Result<Operations, bench::Error> {
        self.throwaway.operations().await.map_err(bench::Error::new)
    }

    async fn remove(self) -> Result<(), bench::Error> {
        self.throwaway.remove().await.map_err(bench::Error::new)
    }
}

/// Variables that point the service to these data, over the environment and the file that the bench was started with. Tokens are signed
/// with the development secret, whatever key the configured service verifies them with.
fn set_environment(command: &mut Command, config: &Config) {
    command
        .env("POSTHASTE__STORE__PATH", &config.store.path)
        .env("POSTHASTE__BROKER__TOPIC_PREFIX", &config.broker.topic_prefix)
        .env("POSTHASTE__BROKER__CREATE_TOPICS", "true")
        .env("POSTHASTE__HTTP__LISTEN", "127.0.0.1:0")
        .env("POSTHASTE__HTTP__ADMIN_LISTEN", "")
        .env("POSTHASTE__RATE_LIMIT__ENABLED", "false")
        .env("POSTHASTE__LOG__FORMAT", "json")
        .env("POSTHASTE__LOG__LEVEL", "warn,posthaste=info,api=warn,supervision=warn")
        .env("POSTHASTE__BACKPRESSURE__BACKLOG", "100000000,100000000")
        .env("POSTHASTE__AUTH__HS256_SECRET", DEVELOPMENT_SECRET)
        .env_remove("POSTHASTE__AUTH__HS256_SECRET_FILE");
    for key in ["PUBLIC_KEY_FILE", "JWKS_URL", "ISSUER", "AUDIENCE"] {
        command.env(format!("POSTHASTE__AUTH__{key}"), "");
    }
    if config.store.kind != StoreKind::Embedded {
        command.env("POSTHASTE__STORE__URL", config.store.url.expose_secret()).env_remove("POSTHASTE__STORE__URL_FILE");
    }
}
