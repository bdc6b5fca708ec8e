//! All options of all rooms, read from three layers: `config/default.toml` < `--config FILE` < `POSTHASTE__SECTION__KEY`.
//! Every mistake is found before anything starts, and all are told in one report.
mod layers;
mod print;
mod read;
#[cfg(test)]
mod tests;
mod value;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use app::chain::{Fallback, Poison};
use app::contract::framing::SchemaIds;
use app::policy::backpressure::Thresholds;

pub use layers::Environment;
pub use print::{masked, schema};

/// The mistakes of a configuration, one a line.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Mistakes(pub Vec<String>);

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    Embedded,
    Postgres,
    Redis,
}

/// Which broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerKind {
    Embedded,
    Kafka,
    None,
}

/// A name and a password for the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sasl {
    pub mechanism: String,
    pub username: String,
    pub password: String,
}

/// How tokens are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthKey {
    Secret(String),
    PublicKeyFile(PathBuf),
    JwksUrl(String),
}

impl AuthKey {
    /// As the verifier takes it.
    pub fn source(&self) -> api::auth::KeySource {
        match self.clone() {
            AuthKey::Secret(secret) => api::auth::KeySource::Secret(secret.into()),
            AuthKey::PublicKeyFile(path) => api::auth::KeySource::PublicKeyFile(path),
            AuthKey::JwksUrl(url) => api::auth::KeySource::JwksUrl(url),
        }
    }
}

/// Everything that can be set. Named as its keys are.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub store_kind: StoreKind,
    pub store_path: PathBuf,
    pub store_url: String,
    pub store_migrate: bool,
    pub store_pool: usize,
    pub store_pooler: bool,
    pub store_notify: bool,
    pub store_durability_warn: bool,
    pub store_ca_file: Option<PathBuf>,
    pub broker_kind: BrokerKind,
    pub broker_bootstrap_servers: String,
    pub broker_exactly_once: bool,
    pub broker_topic_prefix: String,
    pub broker_topic_partitions: u32,
    pub broker_create_topics: bool,
    pub broker_transaction_timeout: Duration,
    pub broker_lanes: u32,
    pub broker_retention: Duration,
    pub broker_lz4: bool,
    pub broker_tls: bool,
    pub broker_ca_file: Option<PathBuf>,
    pub broker_sasl: Option<Sasl>,
    pub broker_breaker: app::breaker::Options,
    pub events_schema_version: u32,
    /// What a schema registry calls each version; none: values carry no frame.
    pub events_schema_ids: Option<SchemaIds>,
    pub cache_redis: bool,
    pub redis_url: String,
    pub http_listen: SocketAddr,
    pub http_admin_listen: Option<SocketAddr>,
    pub http_request_timeout: Duration,
    pub http_header_timeout: Duration,
    pub http_body_timeout: Duration,
    pub http_body_max: usize,
    pub http_max_connections: usize,
    pub http_trusted_proxies: Vec<String>,
    pub auth_key: Option<AuthKey>,
    pub auth_issuer: Option<String>,
    pub auth_audience: Option<String>,
    pub auth_leeway: Duration,
    pub instance_id: Option<String>,
    pub region_id: String,
    pub outbox_enabled: bool,
    pub outbox_partitions: u32,
    pub outbox_lease: Duration,
    pub outbox_poll_interval: Duration,
    pub outbox_retention: Duration,
    pub outbox_batch: u32,
    pub outbox_max_in_flight: usize,
    pub outbox_retry: app::policy::retry::Options,
    pub outbox_poison: HashMap<String, Poison>,
    pub outbox_fallback: HashMap<String, Fallback>,
    pub inbox_retention: Duration,
    pub partitions_heartbeat: Duration,
    pub partitions_dead_after: Duration,
    pub failover_probe_interval: Duration,
    pub failover_probe_timeout: Duration,
    pub failover_gates: Vec<String>,
    pub backpressure: Thresholds,
    pub health_unsent_age_max: Option<Duration>,
    pub promotion_interval: Duration,
    pub promotion_batch: u32,
    pub orders_list_max_rows: u32,
    pub orders_shards: u32,
    pub orders_mailbox: usize,
    pub consumer_count: u32,
    pub rate_limit: app::admission::Options,
    pub startup_deadline: Duration,
    pub shutdown_deadline: Duration,
    pub fault_injection_enabled: bool,
    pub log_format: Option<telemetry::logging::Format>,
    pub log_level: String,
}

impl Config {
    /// Reads all layers.
    ///
    /// # Errors
    /// Every mistake found, each with the key, what is wrong and what to write instead.
    pub fn load(file: Option<&Path>, environment: &Environment) -> Result<Config, Mistakes> {
        let settings = layers::load(file, environment);
        read::config(settings)
    }

    /// The defaults alone.
    pub fn defaults() -> Config {
        Config::load(None, &Environment::default()).expect("config/default.toml is tested")
    }

    /// `instance.id`, or host name and listening port.
    pub fn instance(&self, port: u16) -> String {
        self.instance_id.clone().unwrap_or_else(|| format!("{}:{port}", host_name()))
    }

    /// The topic that order events go to.
    pub fn topic(&self) -> String {
        format!("{}order.events", self.broker_topic_prefix)
    }
}

fn host_name() -> String {
    let read =
        std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    read.ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// Reads a duration as humans write it, for command line options.
///
/// # Errors
/// Says which forms there are.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    value::duration(text)
}
