//! Every setting as a typed value, section by section. `config/default.toml` says what each key means.
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use api::TrustedProxies;
use api::auth::KeySource;
use app::contract::framing::SchemaIds;
use app::policy::backpressure::PressureThresholds;
use app::relay::chain::Fallback;
use secrecy::SecretString;
use serde::{Deserialize, Deserializer, de};

use super::consumer::ConsumerSettings;
use super::topics::TopicSettings;
use super::traces::TracingSettings;

/// Every setting; a field is named as its key, so that `outbox.publisher.batch` is `config.outbox.publisher.batch`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub store: StoreSettings,
    pub broker: BrokerSettings,
    pub events: EventSettings,
    pub cache: CacheSettings,
    pub idempotency: IdempotencySettings,
    pub redis: RedisSettings,
    pub http: HttpSettings,
    pub read: ReadSettings,
    pub auth: AuthSettings,
    pub instance: InstanceSettings,
    pub region: RegionSettings,
    pub outbox: OutboxSettings,
    pub inbox: InboxSettings,
    pub partitions: PartitionSettings,
    pub failover: FailoverSettings,
    pub backpressure: PressureThresholds,
    pub health: HealthSettings,
    pub promotion: PromotionSettings,
    pub orders: OrderSettings,
    /// Boxed: futures that hold a configuration would be too large.
    pub consumer: Box<ConsumerSettings>,
    /// Boxed for the same reason.
    pub webhooks: Box<WebhookSettings>,
    /// Rules of single topics by their full names.
    #[serde(default)]
    pub topics: BTreeMap<String, TopicSettings>,
    pub rate_limit: app::admission::rate_limit::Options,
    pub startup: StartupSettings,
    pub shutdown: ShutdownSettings,
    pub fault_injection: FaultInjectionSettings,
    pub log: LogSettings,
    /// Boxed for the same reason.
    pub tracing: Box<TracingSettings>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreKind {
    Embedded,
    Postgres,
    Redis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BrokerKind {
    Embedded,
    Kafka,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheKind {
    Memory,
    Redis,
}

/// The reaction at the start to a Redis store that may lose orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeakDurability {
    Refuse,
    Warn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeliveryKind {
    ExactlyOnce,
    AtLeastOnce,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchCompression {
    None,
    Lz4,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSettings {
    pub kind: StoreKind,
    pub path: PathBuf,
    pub url: SecretString,
    pub key_prefix: String,
    pub migrate: bool,
    pub pool: usize,
    pub pooler: bool,
    pub notify: bool,
    pub ca_file: Option<PathBuf>,
    pub durability: WeakDurability,
    pub audit_interval: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerSettings {
    pub kind: BrokerKind,
    pub bootstrap_servers: String,
    pub delivery: DeliveryKind,
    pub topic_prefix: String,
    pub topic_partitions: u32,
    pub create_topics: bool,
    pub topics: Vec<String>,
    pub transaction_timeout: Duration,
    pub lanes: u32,
    pub retention: Duration,
    pub compression: BatchCompression,
    pub tls: bool,
    pub ca_file: Option<PathBuf>,
    pub sasl: SaslSettings,
    pub breaker: app::policy::breaker::Options,
}

/// Credentials for Kafka; without a mechanism none are sent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaslSettings {
    pub mechanism: Option<String>,
    pub username: String,
    pub password: SecretString,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventSettings {
    pub schema_version: u32,
    pub schema_ids: Option<SchemaIds>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSettings {
    pub kind: CacheKind,
    pub order_ttl: Duration,
    pub list_ttl: Duration,
    pub jitter: f64,
    pub breaker: app::policy::breaker::Options,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdempotencySettings {
    pub lock: Duration,
    pub retention: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisSettings {
    pub url: SecretString,
    pub ca_file: Option<PathBuf>,
    pub legacy_key_prefix: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSettings {
    pub listen: SocketAddr,
    pub admin_listen: Option<SocketAddr>,
    pub request_timeout: Duration,
    pub header_timeout: Duration,
    pub body_timeout: Duration,
    #[serde(deserialize_with = "size")]
    pub body_max: usize,
    pub max_connections: usize,
    #[serde(deserialize_with = "proxies")]
    pub trusted_proxies: TrustedProxies,
    pub console_secret: Option<SecretString>,
}

/// Limits of reading topics over HTTP.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadSettings {
    pub records_max: u32,
    #[serde(deserialize_with = "size")]
    pub bytes_max: usize,
    pub wait_max: Duration,
    pub readers_max: usize,
}

/// How tokens are verified; at most one of the first three keys is set.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthSettings {
    pub hs256_secret: Option<SecretString>,
    pub public_key_file: Option<PathBuf>,
    pub jwks_url: Option<String>,
    pub issuer: Option<String>,
    pub audience: Option<String>,
    pub leeway: Duration,
}

impl AuthSettings {
    /// Where the verifying key comes from; `None` while no key is configured.
    pub fn source(&self) -> Option<KeySource> {
        let secret = self.hs256_secret.clone().map(KeySource::Secret);
        let public_key = || self.public_key_file.clone().map(KeySource::PublicKeyFile);
        secret.or_else(public_key).or_else(|| self.jwks_url.clone().map(KeySource::JwksUrl))
    }

    /// Sets this secret as the only key.
    pub fn set_secret(&mut self, secret: &str) {
        (self.hs256_secret, self.public_key_file, self.jwks_url) = (Some(secret.into()), None, None);
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceSettings {
    pub id: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionSettings {
    pub id: String,
    pub drift_max: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutboxSettings {
    pub enabled: bool,
    pub partitions: u32,
    pub lease: Duration,
    pub poll_interval: Duration,
    pub retention: Duration,
    pub publisher: PublisherSettings,
    pub retry: outbox::RetryPolicy,
    pub poison: HashMap<String, outbox::PoisonAction>,
    pub fallback: HashMap<String, Fallback>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublisherSettings {
    pub enabled: bool,
    pub batch: u32,
    pub max_in_flight: usize,
    pub cycle_spacing_max: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InboxSettings {
    pub retention: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionSettings {
    pub heartbeat: Duration,
    pub dead_after: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailoverSettings {
    pub probe_interval: Duration,
    pub probe_timeout: Duration,
    pub redis_latency_max: Duration,
    pub dependency_failures: u32,
    pub unhealthy_rounds: u32,
    pub healthy_rounds: u32,
    pub gates: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealthSettings {
    /// Zero turns the check off.
    pub unsent_age_max: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromotionSettings {
    /// Zero turns promotion off.
    pub interval: Duration,
    pub batch: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderSettings {
    pub enabled: bool,
    pub list_max_rows: u32,
    pub shards: u32,
    pub mailbox: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartupSettings {
    pub deadline: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShutdownSettings {
    pub deadline: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultInjectionSettings {
    pub enabled: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    pub format: Option<telemetry::logging::Format>,
    pub level: String,
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    app::units::size(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

fn proxies<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TrustedProxies, D::Error> {
    let expected = "a list of addresses or networks such as 10.0.0.1,10.1.0.0/16";
    TrustedProxies::parse(&Vec::<String>::deserialize(deserializer)?).map_err(|_| de::Error::custom(expected))
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSettings {
    pub enabled: bool,
    pub private_addresses: bool,
    pub max: usize,
    pub parallel: usize,
    pub timeout: Duration,
    /// One for each retry topic.
    pub retry_delays: [Duration; outbox::topics::RETRY_DELAYS.len()],
    pub secret_overlap: Duration,
    pub refresh: Duration,
    pub ca_file: Option<PathBuf>,
    pub breaker: app::policy::breaker::Options,
}
