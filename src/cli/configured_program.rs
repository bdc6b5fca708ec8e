//! This program as the bench and chaos commands run it: data of its own on the configured store and broker, and the service as a process.
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use app::commands;
use app::operators::outbox::OutboxOperations;
use bench::{BrokerUse, Program, StoreAndBroker, ThrowawayData, TransactionKind};
use ports::broker::topics::TopicReader;
use ports::clock::{Clock, Rng};
use posthaste::config::{BrokerKind, CacheKind, DeliveryKind, StoreKind};
use posthaste::{Config, ConfigErrors, Environment, ThrowawayInstallation, ThrowawayStore};
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};
use tokio::process::Command;

use super::commands::serve::Signals;
use super::commands::token::{CallerClaims, DEVELOPMENT_SECRET, mint};

/// Lifetime of the tokens, which only a service on throwaway data accepts: ten years, longer than any measurement.
const TOKEN_TTL: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// This program under the given configuration.
pub(super) struct ConfiguredProgram {
    /// The settings of the service's own process, which reads no file.
    environment: Environment,
    config: Config,
}

impl ConfiguredProgram {
    /// The program with the settings of the file and the environment that do not reach out to other programs.
    pub(super) fn load(file: Option<&Path>, environment: &Environment) -> Result<Self, ConfigErrors> {
        let environment = posthaste::config::throwaway_environment(file, environment)?;
        Ok(Self { config: Config::load(None, &environment)?, environment })
    }

    /// Whether events are published at all.
    pub(super) fn has_broker(&self) -> bool {
        self.config.broker.kind != BrokerKind::None
    }
}

impl Program for ConfiguredProgram {
    type Data = BenchData;

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

    async fn create_data(&self, broker: BrokerUse) -> Result<BenchData, bench::Error> {
        let mut config = self.config.clone();
        if broker == BrokerUse::StoreOnly {
            let embedded = config.store.kind == StoreKind::Embedded;
            config.broker.kind = if embedded { BrokerKind::Embedded } else { BrokerKind::None };
        }
        let throwaway = Box::pin(ThrowawayInstallation::create(&config)).await.map_err(bench::Error::new)?;
        Ok(BenchData { environment: self.environment.clone(), throwaway })
    }

    async fn interrupted(&self) -> Result<(), bench::Error> {
        Signals::listen().map_err(|failure| bench::Error::new(failure.message))?.next().await;
        Ok(())
    }
}

/// Throwaway data and the settings of the service on them.
pub(super) struct BenchData {
    environment: Environment,
    throwaway: ThrowawayInstallation,
}

impl ThrowawayData for BenchData {
    type Store = ThrowawayStore;
    type HeldTransaction = posthaste::HeldTransaction;
    type SqlSession = posthaste::WriterSession;

    fn service(&self) -> Result<Command, bench::Error> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--dev", "--no-login-link", "--end-with-parent"]).arg(std::process::id().to_string());
        for inherited in Environment::from_process().map_err(bench::Error::new)?.0.keys() {
            command.env_remove(inherited);
        }
        command.envs(&self.environment.0);
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

    fn topic_named(&self, name: &str) -> String {
        format!("{}{name}", self.throwaway.config.broker.topic_prefix)
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

    async fn sql_session(&self) -> Result<Option<posthaste::WriterSession>, bench::Error> {
        self.throwaway.writer_session().await.map_err(bench::Error::new)
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

    async fn operations(&self) -> Result<OutboxOperations, bench::Error> {
        self.throwaway.operations().await.map_err(bench::Error::new)
    }

    async fn remove(self) -> Result<(), bench::Error> {
        self.throwaway.remove().await.map_err(bench::Error::new)
    }
}

/// Variables that point the service to these data, over the settings that the bench was started with. Tokens are signed with the development
/// secret, whatever key the configured service verifies them with.
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
        .env("POSTHASTE__AUTH__HS256_SECRET", DEVELOPMENT_SECRET);
    for key in ["PUBLIC_KEY_FILE", "JWKS_URL", "ISSUER", "AUDIENCE"] {
        command.env(format!("POSTHASTE__AUTH__{key}"), "");
    }
    if config.store.kind == StoreKind::Redis {
        command.env("POSTHASTE__STORE__KEY_PREFIX", &config.store.key_prefix);
    }
    if config.store.kind != StoreKind::Embedded {
        command.env("POSTHASTE__STORE__URL", config.store.url.expose_secret());
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use jsonwebtoken::{DecodingKey, Validation, decode};

    use super::*;

    #[tokio::test]
    async fn token_outlives_a_measurement_of_a_month() {
        let environment = Environment::default();
        let throwaway = Box::pin(ThrowawayInstallation::create(&Config::defaults())).await.expect("a folder");
        let data = BenchData { environment, throwaway };

        let token = data.token("bench", "ADMIN").expect("minted");

        let key = DecodingKey::from_secret(DEVELOPMENT_SECRET.as_bytes());
        let claims = decode::<Value>(&token, &key, &Validation::default()).expect("signed").claims;
        let month = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs() + 31 * 24 * 60 * 60;
        assert!(claims["exp"].as_u64().is_some_and(|end| end > month), "{claims}");
    }
}
