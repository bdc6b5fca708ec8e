//! What `doctor` asks of each dependency beyond what every store can tell.
use std::time::{Duration, Instant};

use ports::clock::Clock;
use ports::probe::Probe;

use super::StartError;
use crate::config::{BrokerKind, CacheKind, Config, StoreKind};

/// How long a dependency may take to answer `doctor`.
const PATIENCE: Duration = Duration::from_secs(10);
/// A clock that is off by more than this makes times in logs and rows hard to read together; nothing else hangs on it.
const SKEW_MAX: Duration = Duration::from_secs(2);
/// A transaction that is older keeps the outbox's dead rows from being cleaned, and claims grow slow.
const XMIN_MAX: Duration = Duration::from_secs(300);

/// With less than this, writes are soon refused: some 50,000 orders.
const ROOM_MIN: u64 = 64 << 20;

/// One finding about one dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Which.
    pub what: &'static str,
    /// Whether it is as it should be.
    pub fine: bool,
    /// What was found.
    pub detail: String,
    /// How long it took to answer, where that was asked.
    pub latency: Option<Duration>,
}

impl Checked {
    fn new(what: &'static str, fine: bool, detail: String) -> Self {
        Self { what, fine, detail, latency: None }
    }

    fn after(self, latency: Duration) -> Self {
        Self { latency: Some(latency), ..self }
    }

    fn bad(what: &'static str, error: impl std::fmt::Display) -> Self {
        Self::new(what, false, error.to_string())
    }
}

/// Asks every configured dependency how it is. Changes nothing but signs of life.
pub async fn checkup(config: &Config) -> Vec<Checked> {
    let mut found = Vec::new();
    if config.store.kind == StoreKind::Embedded {
        found.extend(room(config));
    }
    if config.store.kind == StoreKind::Postgres {
        found.extend(database(config).await);
    }
    if config.store.kind == StoreKind::Redis {
        found.push(redis_store(config).await);
    }
    if config.broker.kind == BrokerKind::Kafka {
        found.extend(broker(config).await);
    }
    if config.cache.kind == CacheKind::Redis {
        found.push(redis(config).await);
    }
    found
}

/// What is left on the data folder's volume. No finding where there is no folder yet.
fn room(config: &Config) -> Option<Checked> {
    let volume = rustix::fs::statvfs(&config.store.path).ok()?;
    let free = volume.f_bavail.saturating_mul(volume.f_frsize);
    let detail = format!("{} MiB are free beside {}", free >> 20, config.store.path.display());
    Some(Checked::new("room", free >= ROOM_MIN, detail))
}

#[cfg(feature = "postgres")]
async fn database(config: &Config) -> Vec<Checked> {
    let options = super::options::postgres_beside(config);
    let opened = postgres::Postgres::open_for_operator(options).await.map_err(super::store::of_postgres);
    let store = match opened {
        Ok(store) => store,
        Err(error) => return vec![Checked::bad("database", error)],
    };
    let ours = memory::SystemClock::new().now();
    let told = match store.server_report().await {
        Ok(told) => told,
        Err(error) => return vec![Checked::bad("database", error)],
    };
    let (used, most) = told.connections;
    let durable = if told.durable {
        "commits are durable"
    } else {
        "fsync or synchronous_commit is off: answered orders can be lost"
    };
    let detail = format!(
        "PostgreSQL {} answers in {:.1} ms, {used} of {most} connections in use, {durable}",
        told.version,
        told.latency.as_secs_f64() * 1e3
    );
    let skew = told.now.since(ours).max(ours.since(told.now)).saturating_sub(told.latency);
    let held = told.oldest_transaction.unwrap_or_default();
    let holds = match told.oldest_transaction {
        Some(age) => format!("the oldest transaction is {} s old", age.as_secs()),
        None => "no old transaction holds rows back".to_owned(),
    };
    vec![
        Checked::new("database", told.durable && used + 10 < most, detail).after(told.latency),
        Checked::new("clock", skew <= SKEW_MAX, format!("{} ms apart from the database's", skew.as_millis())),
        Checked::new("xmin", held <= XMIN_MAX, holds),
    ]
}

#[cfg(not(feature = "postgres"))]
async fn database(_: &Config) -> Vec<Checked> {
    vec![Checked::bad("database", super::store::not_built("store.kind", "postgres"))]
}

#[cfg(feature = "kafka")]
async fn broker(config: &Config) -> Vec<Checked> {
    // The store may be the one that ails: its name stands in watermarks only, which nobody writes here.
    let installation = super::beside::installation(config).await.unwrap_or_else(|_| "doctor".into());
    match super::beside::kafka(config, &installation, false) {
        Ok(kafka) => {
            let pulse = ask("broker", &kafka::BrokerProbe(kafka.clone())).await;
            // One that does not answer is told of once.
            let kept = if pulse.fine { Some(replicas(&kafka).await) } else { None };
            std::iter::once(pulse).chain(kept).collect()
        }
        Err(error) => vec![Checked::bad("broker", error)],
    }
}

#[cfg(feature = "kafka")]
async fn replicas(kafka: &kafka::Kafka) -> Checked {
    let kept = match kafka.replicas().await {
        Ok(kept) => kept,
        Err(error) => return Checked::bad("replicas", error),
    };
    let few: Vec<String> = kept.too_few().map(|(topic, times)| format!("{topic} {times}")).collect();
    if few.is_empty() {
        let detail = format!("brokers: {}, every topic is kept as often as they allow", kept.brokers);
        return Checked::new("replicas", true, detail);
    }
    let few = few.join(", ");
    let detail = format!(
        "brokers: {}, and these topics are kept less often than they allow (kafka-reassign-partitions.sh mends it): {few}",
        kept.brokers
    );
    Checked::new("replicas", false, detail)
}

#[cfg(not(feature = "kafka"))]
async fn broker(_: &Config) -> Vec<Checked> {
    vec![Checked::bad("broker", super::store::not_built("broker.kind", "kafka"))]
}

#[cfg(feature = "redis")]
async fn redis(config: &Config) -> Checked {
    let instance = super::options::operator();
    let dice: std::sync::Arc<dyn ports::clock::Rng> = std::sync::Arc::new(super::ThreadRng);
    let options = super::options::redis(config, &instance, "doctor", &dice, &telemetry::Metrics::new());
    match redis::Redis::open(options) {
        Ok(redis) => ask("redis", &redis).await,
        Err(error) => Checked::bad("redis", StartError::Config(format!("redis.url: {error}"))),
    }
}

#[cfg(feature = "redis")]
async fn redis_store(config: &Config) -> Checked {
    let options = super::options::redis_beside(config);
    let store = match redis::RedisStore::open_beside(options).await {
        Ok(store) => store,
        Err(error) => return Checked::bad("database", error),
    };
    match store.may_lose().await {
        Ok(None) => ask("database", &redis::StoreProbe(store)).await,
        Ok(Some(said)) => Checked::bad("database", format!("this Redis may lose orders: {said}")),
        Err(error) => Checked::bad("database", error),
    }
}

#[cfg(not(feature = "redis"))]
async fn redis_store(_: &Config) -> Checked {
    Checked::bad("database", super::store::not_built("store.kind", "redis"))
}

#[cfg(not(feature = "redis"))]
async fn redis(_: &Config) -> Checked {
    Checked::bad("redis", super::store::not_built("cache.kind", "redis"))
}

/// A client that has just been made may need a moment to find its server: asked until it answers or patience ends.
#[cfg(any(feature = "kafka", feature = "redis"))]
async fn ask(what: &'static str, probe: &dyn Probe) -> Checked {
    let begun = Instant::now();
    loop {
        let asked = tokio::time::timeout(PATIENCE, probe.check()).await;
        let failed = match asked {
            Ok(Ok(pulse)) => {
                let detail = format!("answers in {:.1} ms", pulse.latency.as_secs_f64() * 1e3);
                return Checked::new(what, true, detail).after(pulse.latency);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        if begun.elapsed() >= PATIENCE {
            return Checked::bad(what, failed);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
