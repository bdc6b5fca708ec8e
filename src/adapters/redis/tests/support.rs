//! Handles, orders and polling for tests.
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use deadpool_redis::redis as client;
use domain::{Order, Status, Subject};
use kit::wait::scaled;
use kit::{Factory, SeededRng};
use ports::orders::cache::OrderCache;
use ports::partitions::InstanceId;
use ports::probe::Probe;
use redis::{Options, Redis, StoreOptions};

/// Longer than any wait of these tests: the longest delay of the maintenance task is a second.
pub const LIMIT: Duration = Duration::from_secs(5);
pub const FINGERPRINT: [u8; 32] = [7; 32];
pub const LOCK: Duration = Duration::from_secs(60);
/// The number of partitions of a test's store.
pub const PARTITIONS: u32 = 4;

/// The URL of the shared server.
pub fn url() -> String {
    std::env::var("POSTHASTE_TEST_REDIS").unwrap_or_else(|_| {
        panic!("POSTHASTE_TEST_REDIS does not name a Redis server: run `make services` first, or `make test`")
    })
}

/// A prefix that no other test uses.
pub fn prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    format!("test:{}:{now}:{}:", std::process::id(), NEXT.fetch_add(1, Relaxed))
}

/// Options whose cache accepts orders at once, because a test has no requests in progress when it opens a handle, and whose time-outs
/// tolerate a machine that is busy with other tests.
pub fn options(url: &str, prefix: &str, instance: &str) -> Options {
    static SEED: AtomicU64 = AtomicU64::new(1);
    let rng = Arc::new(SeededRng::new(SEED.fetch_add(1, Relaxed)));
    let mut options = Options::new(url, InstanceId(instance.into()), rng);
    options.prefix = prefix.into();
    options.policy_prefix = format!("{prefix}rate_limit:config:");
    options.epoch_age_min = Duration::ZERO;
    (options.permit_timeout, options.connect_timeout, options.response_timeout) =
        (scaled(LIMIT), scaled(LIMIT), scaled(LIMIT));
    options.dead_after = scaled(options.dead_after);
    options
}

/// Options of a store. Two runs of one instance draw different boot ids.
pub fn store_options(url: &str, prefix: &str, instance: &str) -> StoreOptions {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = now.wrapping_add(NEXT.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut options = StoreOptions::new(url, InstanceId(instance.into()), Arc::new(SeededRng::new(seed)));
    (options.prefix, options.partitions, options.response_timeout) = (prefix.into(), PARTITIONS, scaled(LIMIT));
    options.dead_after = scaled(options.dead_after);
    options
}

/// A handle whose cache is valid.
pub async fn opened(options: Options) -> Redis {
    let redis = Redis::open(options).unwrap();
    until_cache_is_valid(&redis).await;
    redis
}

/// Waits until the cache is valid.
pub async fn until_cache_is_valid(redis: &Redis) {
    let absent = orders()[0].id;
    until("the cache is valid", async || redis.get(absent).await.ok()).await;
}

/// The versions 0, 1 and 2 of one order.
pub fn orders() -> [Order; 3] {
    let factory = Factory::seeded(1, "orders".into());
    let placed = factory.placed("ann").0;
    let processing = factory.status_changed(&placed, Status::Processing).0;
    let shipped = factory.status_changed(&processing, Status::Shipped).0;
    [placed, processing, shipped]
}

pub fn ann() -> Subject {
    Subject::new("ann").unwrap()
}

/// Puts an order into the cache, which must succeed.
pub async fn put(redis: &Redis, order: &Order) {
    redis.put(Arc::new(order.clone()), Duration::ZERO).await.unwrap();
}

/// The version that the cache serves; `None` also when the cache fails.
pub async fn cached_version(redis: &Redis, order: &Order) -> Option<u64> {
    redis.get(order.id).await.ok().flatten().map(|order| order.version)
}

/// Waits until the handle's maintenance task has sent its first heartbeat and no call is in flight: with long intervals the next call is the
/// test's.
pub async fn idle(redis: &Redis, url: &str, prefix: &str, instance: &str) {
    let heartbeat = format!("{prefix}{{keys}}:instance:{instance}");
    until("the first heartbeat is sent and answered", async || {
        let is_sent: bool = command(url, &["EXISTS", &heartbeat]).await;
        (is_sent && redis.saturation() == Some(0.0)).then_some(())
    })
    .await;
}

/// A connection that does not belong to the adapter. The client's own time-outs would be those of an idle machine.
pub async fn connection(url: &str) -> client::aio::MultiplexedConnection {
    try_connection(url).await.unwrap()
}

async fn try_connection(url: &str) -> client::RedisResult<client::aio::MultiplexedConnection> {
    let timeout = Some(scaled(LIMIT));
    let config = client::AsyncConnectionConfig::new().set_connection_timeout(timeout).set_response_timeout(timeout);
    client::Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

/// The process of the server that answers under this URL.
pub async fn process_of(url: &str) -> Option<u32> {
    let mut connection = try_connection(url).await.ok()?;
    let text: String = client::cmd("INFO").arg("server").query_async(&mut connection).await.ok()?;
    text.lines().find_map(|line| line.strip_prefix("process_id:")?.trim().parse().ok())
}

/// Sends a command to a server, not through the adapter.
pub async fn command<T: client::FromRedisValue>(url: &str, words: &[&str]) -> T {
    let mut command = client::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(&mut connection(url).await).await.unwrap()
}

/// Polls until `find` returns a value, for several times the limit of one call.
pub async fn until<T, F: Future<Output = Option<T>>>(condition: &str, mut find: impl FnMut() -> F) -> T {
    let start = Instant::now();
    let mut interval = tokio::time::interval(Duration::from_millis(5));
    loop {
        if let Some(found) = find().await {
            return found;
        }
        assert!(start.elapsed() < scaled(LIMIT * 4), "waited too long without success until {condition}");
        interval.tick().await;
    }
}
