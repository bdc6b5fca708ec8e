//! The checks of `doctor` that only one kind of dependency has: disk space, PostgreSQL's settings, Kafka's replicas, Redis's durability.
#[cfg(feature = "postgres")]
mod dead_rows;
#[cfg(feature = "postgres")]
mod earlier_adoptions;

use std::time::{Duration, Instant};

use ports::clock::Clock;
use ports::probe::Probe;

use crate::config::{BrokerKind, CacheKind, Config, StoreKind};

/// Longest time that a dependency may take to answer `doctor`.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two probes of a dependency that does not answer yet.
const PROBE_PAUSE: Duration = Duration::from_millis(200);
/// Largest accepted difference between clocks. A larger one makes times in logs and rows hard to compare; correctness does not depend on it.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(2);
/// Largest accepted age of a transaction. VACUUM cannot remove outbox rows that an older one still sees, and claims become slow.
const TRANSACTION_AGE_MAX: Duration = Duration::from_secs(300);
/// More connections of the PostgreSQL server than this must be free.
const CONNECTIONS_RESERVE: u64 = 10;
/// Least free disk space, in bytes: enough for some 50,000 orders. With less, writes are soon refused.
const DISK_FREE_MIN: u64 = 64 << 20;

/// The result of one check of one dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DependencyCheck {
    /// The name of the check, as `doctor` prints it.
    pub name: &'static str,
    /// Whether the check found no problem.
    pub ok: bool,
    /// A sentence for the operator.
    pub detail: String,
    /// The time that the dependency took to answer; `None` where the check sends no request.
    pub latency: Option<Duration>,
}

impl DependencyCheck {
    fn new(name: &'static str, ok: bool, detail: String) -> Self {
        Self { name, ok, detail, latency: None }
    }

    fn with_latency(self, latency: Duration) -> Self {
        Self { latency: Some(latency), ..self }
    }

    fn failed(name: &'static str, error: impl std::fmt::Display) -> Self {
        Self::new(name, false, error.to_string())
    }
}

/// Checks every configured dependency. Changes nothing in them, except that a connection to Redis sets keys of a prefix from which no cache reads:
/// its heartbeat and that of its probe, which expire, and an epoch, which stays.
pub async fn check_dependencies(config: &Config) -> Vec<DependencyCheck> {
    let mut checks = Vec::new();
    if config.store.kind == StoreKind::Embedded {
        checks.extend(disk_space(config));
    }
    if config.store.kind == StoreKind::Postgres {
        checks.extend(postgres(config).await);
    }
    if config.store.kind == StoreKind::Redis {
        checks.extend(redis_store(config).await);
    }
    if config.broker.kind == BrokerKind::Kafka {
        checks.extend(kafka(config).await);
    }
    if config.cache.kind == CacheKind::Redis {
        checks.push(redis_cache(config).await);
    }
    checks
}

/// The free space on the data folder's volume; `None` while the folder does not exist.
fn disk_space(config: &Config) -> Option<DependencyCheck> {
    let volume = rustix::fs::statvfs(&config.store.path).ok()?;
    let free = volume.f_bavail.saturating_mul(volume.f_frsize);
    let detail = format!("{} MiB are free on the volume of {}", free >> 20, config.store.path.display());
    Some(DependencyCheck::new("disk_space", free >= DISK_FREE_MIN, detail))
}

#[cfg(feature = "postgres")]
async fn postgres(config: &Config) -> Vec<DependencyCheck> {
    let options = super::options::postgres_for_operator(config);
    let opened = postgres::Postgres::open_for_operator(options).await.map_err(super::store::from_postgres_error);
    let store = match opened {
        Ok(store) => store,
        Err(error) => return vec![DependencyCheck::failed("database", error)],
    };
    let (local_now, asked) = (memory::SystemClock::new().now(), Instant::now());
    let report = match store.server_report().await {
        Ok(report) => report,
        Err(error) => return vec![DependencyCheck::failed("database", error)],
    };
    // The server's clock is read at some moment of this time, which includes the time that two connections take.
    let answered_after = asked.elapsed();
    let (used, connections_max) = (report.connections_used, report.connections_max);
    let (commits, server): (Vec<_>, Vec<_>) =
        report.weak_settings.iter().partition(|weak| weak.name == "synchronous_commit");
    let detail = format!(
        "PostgreSQL {} answers in {:.1} ms, {used} of {connections_max} connections in use, {}",
        report.version,
        report.latency.as_secs_f64() * 1e3,
        weak_settings(&server, "commits are durable", "a crash of the machine can lose acknowledged orders"),
    );
    let others = weak_settings(
        &commits,
        "every session waits for the disk by default",
        "this program overrides it, but commits of other writers of the outbox can be lost",
    );
    let skew = clock_skew(local_now, report.now, answered_after);
    let transaction_age = report.oldest_transaction.unwrap_or_default();
    let oldest_transaction = match report.oldest_transaction {
        Some(age) if age > TRANSACTION_AGE_MAX => format!(
            "the oldest transaction is {} s old and holds back VACUUM: find it in pg_stat_activity or pg_prepared_xacts, and end it",
            age.as_secs()
        ),
        Some(age) => format!("the oldest transaction is {} s old", age.as_secs()),
        None => "no open transaction holds back VACUUM".to_owned(),
    };
    let (rows_are_live, dead_rows) = dead_rows::dead_rows(&report.dead_rows);
    let healthy = server.is_empty() && used + CONNECTIONS_RESERVE < connections_max;
    let mut checks = vec![
        DependencyCheck::new("database", healthy, detail).with_latency(report.latency),
        writes(report.write_error.as_deref()),
        DependencyCheck::new("commits", commits.is_empty(), others),
        clock(skew),
        DependencyCheck::new("xmin", transaction_age <= TRANSACTION_AGE_MAX, oldest_transaction),
        DependencyCheck::new("dead_rows", rows_are_live, dead_rows),
        slots(&report.idle_slots),
        indexes(&report.missing_indexes),
        standbys(&report.standbys),
        adopted_tables(config).await,
    ];
    checks.extend(encoding(&report.encoding));
    checks
}

/// Checks that the server accepts a write that needs disk space. Reads, and writes into allocated pages, succeed on a full disk too.
#[cfg(feature = "postgres")]
fn writes(error: Option<&str>) -> DependencyCheck {
    match error {
        None => DependencyCheck::new("writes", true, "a write that needs disk space succeeds".to_owned()),
        Some(error) => {
            DependencyCheck::failed("writes", format!("orders and events are refused until writes succeed: {error}"))
        }
    }
}

/// The problem of a database that an earlier version installed into without a check of its encoding; `None` if the encoding is UTF-8.
#[cfg(feature = "postgres")]
fn encoding(encoding: &str) -> Option<DependencyCheck> {
    let detail = || {
        format!(
            "the database has the encoding {encoding}: a text that is no UTF-8 stops the events of its partition; restore a dump into a database with \
             ENCODING 'UTF8'"
        )
    };
    (encoding != "UTF8").then(|| DependencyCheck::new("encoding", false, detail()))
}

/// Checks that the trigger function of each adopted table is the present one. A migration cannot rewrite every function of an earlier version.
#[cfg(feature = "postgres")]
async fn adopted_tables(config: &Config) -> DependencyCheck {
    match earlier_adoptions::finding(&super::options::postgres_for_operator(config)).await {
        Ok(Some(finding)) => DependencyCheck::new("adopted", false, finding),
        Ok(None) => DependencyCheck::new("adopted", true, earlier_adoptions::NONE.into()),
        Err(error) => DependencyCheck::failed("adopted", super::store::from_postgres_error(error)),
    }
}

/// Checks the adopted tables of a PostgreSQL store, as [`check_dependencies`] does among others; `None` for other stores, which adopt none.
pub async fn check_adopted_tables(config: &Config) -> Option<DependencyCheck> {
    match config.store.kind {
        #[cfg(feature = "postgres")]
        StoreKind::Postgres => Some(adopted_tables(config).await),
        _ => None,
    }
}

/// The settings that are off, with the consequence, or the text `none` if all are on.
#[cfg(feature = "postgres")]
fn weak_settings(settings: &[&postgres::WeakSetting], none: &str, consequence: &str) -> String {
    let shown: Vec<String> = settings.iter().map(|weak| format!("{} is off ({})", weak.name, weak.source)).collect();
    if shown.is_empty() { none.to_owned() } else { format!("{}: {consequence}", shown.join(", ")) }
}

/// A slot without a reader keeps WAL until the disk is full, and rows that VACUUM could remove.
#[cfg(feature = "postgres")]
fn slots(idle: &[postgres::IdleSlot]) -> DependencyCheck {
    let shown = idle.iter().map(|slot| format!("{} keeps {} MiB", slot.name, slot.wal_bytes >> 20));
    let shown: Vec<String> = shown.collect();
    let detail = match shown.is_empty() {
        true => "every replication slot has a reader".to_owned(),
        false => format!(
            "replication slots without a reader keep WAL and hold back VACUUM: {}; drop them with pg_drop_replication_slot",
            shown.join(", ")
        ),
    };
    DependencyCheck::new("slots", idle.is_empty(), detail)
}

#[cfg(feature = "postgres")]
fn indexes(missing: &[String]) -> DependencyCheck {
    let detail = match missing.is_empty() {
        true => "none is missing".to_owned(),
        false => format!("missing or not valid: {}; create them as the migrations do", missing.join(", ")),
    };
    DependencyCheck::new("indexes", missing.is_empty(), detail)
}

/// A standby that no commit waits for may lack the last orders, and a fail-over to it loses them.
#[cfg(feature = "postgres")]
fn standbys(
    postgres::StandbyReport { asynchronous, synchronous, hidden }: &postgres::StandbyReport,
) -> DependencyCheck {
    let names = asynchronous.join(", ");
    let (ok, detail) = match (asynchronous.is_empty(), synchronous) {
        (false, 0) => (
            false,
            format!(
                "every standby is asynchronous: a fail-over to {names} loses the last orders and publishes events twice; set \
                 synchronous_standby_names"
            ),
        ),
        (false, count) => (true, format!("synchronous: {count}; asynchronous, do not fail over to it: {names}")),
        (true, _) if *hidden > 0 => {
            (true, format!("this role may not see the state of {hidden}: grant it pg_read_all_stats"))
        }
        (true, 0) => (true, "none is connected".to_owned()),
        (true, count) => (true, format!("synchronous: {count}, asynchronous: none")),
    };
    DependencyCheck::new("standbys", ok, detail)
}

#[cfg(not(feature = "postgres"))]
async fn postgres(_: &Config) -> Vec<DependencyCheck> {
    vec![DependencyCheck::failed("database", super::store::feature_missing("store.kind", "postgres"))]
}

#[cfg(feature = "kafka")]
async fn kafka(config: &Config) -> Vec<DependencyCheck> {
    // The store may be down, and then its installation name is unknown. The name is needed only to write watermarks, which a check does not.
    let installation = super::operator_access::installation(config).await.unwrap_or_else(|_| "doctor".into());
    match super::operator_access::open_kafka(config, &installation, false) {
        Ok(kafka) => {
            let broker = probe_until_answer("broker", &kafka::KafkaProbe(kafka.clone())).await;
            // A broker that does not answer is reported once.
            let replicas = if broker.ok { Some(replicas(&kafka).await) } else { None };
            std::iter::once(broker).chain(replicas).collect()
        }
        Err(error) => vec![DependencyCheck::failed("broker", error)],
    }
}

#[cfg(feature = "kafka")]
async fn replicas(kafka: &kafka::Kafka) -> DependencyCheck {
    let replicas = match kafka.replicas().await {
        Ok(replicas) => replicas,
        Err(error) => return DependencyCheck::failed("replicas", error),
    };
    let brokers = replicas.brokers;
    let too_few: Vec<String> = replicas.too_few().map(|(topic, count)| format!("{topic} has {count}")).collect();
    if too_few.is_empty() {
        let detail = format!("brokers: {brokers}; every topic has as many replicas as they permit");
        return DependencyCheck::new("replicas", true, detail);
    }
    let too_few = too_few.join(", ");
    let detail = format!(
        "brokers: {brokers}; these topics have fewer replicas than they permit (add some with kafka-reassign-partitions.sh): {too_few}"
    );
    DependencyCheck::new("replicas", false, detail)
}

#[cfg(not(feature = "kafka"))]
async fn kafka(_: &Config) -> Vec<DependencyCheck> {
    vec![DependencyCheck::failed("broker", super::store::feature_missing("broker.kind", "kafka"))]
}

#[cfg(feature = "redis")]
async fn redis_cache(config: &Config) -> DependencyCheck {
    let instance = super::options::operator_instance();
    let rng: std::sync::Arc<dyn ports::clock::Rng> = std::sync::Arc::new(super::thread_rng::ThreadRng);
    let options = super::options::redis_cache(config, &instance, "doctor", &rng, &telemetry::Metrics::new());
    match redis::Redis::open(options) {
        Ok(redis) => probe_until_answer("redis", &redis).await,
        Err(error) => DependencyCheck::failed("redis", super::cache::from_open_error(error)),
    }
}

#[cfg(feature = "redis")]
async fn redis_store(config: &Config) -> Vec<DependencyCheck> {
    let options = super::options::redis_store_for_operator(config);
    let store = match redis::RedisStore::open_for_operator(options).await {
        Ok(store) => store,
        Err(error) => return vec![DependencyCheck::failed("database", error)],
    };
    let (local_now, asked) = (memory::SystemClock::new().now(), Instant::now());
    let clock = match store.server_time().await {
        Ok(server_now) => clock(clock_skew(local_now, server_now, asked.elapsed())),
        // A store that does not answer is reported once, by the check of the database.
        Err(error) => return vec![DependencyCheck::failed("database", error)],
    };
    let database = match store.durability_risk().await {
        Ok(None) => probe_until_answer("database", &redis::RedisStoreProbe(store)).await,
        Ok(Some(risk)) => DependencyCheck::failed("database", format!("this Redis may lose orders: {risk}")),
        Err(error) => DependencyCheck::failed("database", error),
    };
    vec![database, clock]
}

#[cfg(not(feature = "redis"))]
async fn redis_store(_: &Config) -> Vec<DependencyCheck> {
    vec![DependencyCheck::failed("database", super::store::feature_missing("store.kind", "redis"))]
}

#[cfg(not(feature = "redis"))]
async fn redis_cache(_: &Config) -> DependencyCheck {
    DependencyCheck::failed("redis", super::store::feature_missing("cache.kind", "redis"))
}

/// Repeats the probe until the dependency answers or the timeout has passed: a new client needs a moment to connect.
#[cfg(any(feature = "kafka", feature = "redis"))]
async fn probe_until_answer(name: &'static str, probe: &dyn Probe) -> DependencyCheck {
    let started = Instant::now();
    loop {
        let result = tokio::time::timeout(ANSWER_TIMEOUT, probe.check()).await;
        let error = match result {
            Ok(Ok(report)) => {
                let detail = format!("answers in {:.1} ms", report.latency.as_secs_f64() * 1e3);
                return DependencyCheck::new(name, true, detail).with_latency(report.latency);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()),
        };
        if started.elapsed() >= ANSWER_TIMEOUT {
            return DependencyCheck::failed(name, error);
        }
        tokio::time::sleep(PROBE_PAUSE).await;
    }
}

#[cfg(any(feature = "postgres", feature = "redis"))]
fn clock(skew: Duration) -> DependencyCheck {
    let detail = format!("differs from the database's clock by {} ms", skew.as_millis());
    DependencyCheck::new("clock", skew <= CLOCK_SKEW_MAX, detail)
}

/// How far the database's clock differs at least. It answered up to `answered_after` later than `local`, so its time may only seem to be ahead.
#[cfg(any(feature = "postgres", feature = "redis"))]
fn clock_skew(local: domain::Timestamp, database: domain::Timestamp, answered_after: Duration) -> Duration {
    database.since(local).saturating_sub(answered_after).max(local.since(database))
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use std::time::Duration;

    use postgres::StandbyReport;

    use super::{clock_skew, standbys};

    #[test]
    fn standby_that_no_commit_waits_for_is_named() {
        let cases: [(&[&str], u64, u64, bool, &str); 5] = [
            (&[], 0, 0, true, "none is connected"),
            (&["b", "c"], 0, 0, false, "a fail-over to b, c loses the last orders"),
            (&["b"], 1, 0, true, "do not fail over to it: b"),
            (&[], 2, 0, true, "synchronous: 2"),
            (&[], 0, 3, true, "may not see the state of 3"),
        ];
        for (names, synchronous, hidden, ok, detail) in cases {
            let asynchronous = names.iter().map(|name| (*name).to_owned()).collect();
            let check = standbys(&StandbyReport { asynchronous, synchronous, hidden });
            assert!(check.ok == ok && check.detail.contains(detail), "{check:?}");
        }
    }

    #[test]
    fn slow_answer_hides_no_clock_that_is_behind() {
        let seconds = |seconds: i64| domain::Timestamp::from_millis(seconds * 1_000);
        for (database, answered_after, skew) in [(103, 3, 0), (103, 1, 2), (96, 0, 4), (96, 3, 4), (100, 5, 0)] {
            let found = clock_skew(seconds(100), seconds(database), Duration::from_secs(answered_after));
            assert_eq!(found, Duration::from_secs(skew), "{database} after {answered_after} s");
        }
    }
}
