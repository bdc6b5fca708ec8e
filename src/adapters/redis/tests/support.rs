//! Handles, orders and waiting for tests.
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use deadpool_redis::redis as client;
use domain::{Order, Status, Subject};
use kit::{Factory, SeededRng};
use ports::cache::OrderCache;
use ports::partitions::InstanceId;
use redis::{Options, Redis};

/// Longer than anything here takes: a pause of the keeper is a second.
pub const LIMIT: Duration = Duration::from_secs(5);
pub const FINGERPRINT: [u8; 32] = [7; 32];
pub const LOCK: Duration = Duration::from_secs(60);

/// The shared server.
pub fn url() -> String {
    std::env::var("POSTHASTE_TEST_REDIS").unwrap_or_else(|_| {
        panic!("POSTHASTE_TEST_REDIS does not name a Redis server: run `make services` first, or `make test`")
    })
}

/// A prefix that nobody else uses.
pub fn prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let begun = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    format!("test:{}:{begun}:{}:", std::process::id(), NEXT.fetch_add(1, Relaxed))
}

/// Options whose cache begins to fill at once, because nothing of a test is under way when it opens a handle, and that forgive a
/// machine that is busy with other tests.
pub fn options(url: &str, prefix: &str, instance: &str) -> Options {
    static SEED: AtomicU64 = AtomicU64::new(1);
    let dice = Arc::new(SeededRng::new(SEED.fetch_add(1, Relaxed)));
    let mut options = Options::new(url, InstanceId(instance.into()), dice);
    options.prefix = prefix.into();
    options.policies = format!("{prefix}rate_limit:config:");
    options.settle = Duration::ZERO;
    (options.connection_wait, options.connect_within, options.answer_within) = (LIMIT, LIMIT, LIMIT);
    options
}

/// A handle whose cache is believed.
pub async fn opened(options: Options) -> Redis {
    let redis = Redis::open(options).unwrap();
    believed(&redis).await;
    redis
}

/// Waits until the cache is believed.
pub async fn believed(redis: &Redis) {
    let nobody = orders()[0].id;
    until("the cache is believed", async || redis.get(nobody).await.ok()).await;
}

/// The versions 0, 1 and 2 of one order.
pub fn orders() -> [Order; 3] {
    let make = Factory::seeded(1, "orders".into());
    let placed = make.placed("ann").0;
    let processing = make.status_changed(&placed, Status::Processing).0;
    let shipped = make.status_changed(&processing, Status::Shipped).0;
    [placed, processing, shipped]
}

pub fn ann() -> Subject {
    Subject::new("ann").unwrap()
}

/// Puts an order, and sees it.
pub async fn put(redis: &Redis, order: &Order) {
    redis.put(Arc::new(order.clone())).await.unwrap();
}

/// The version that is shown, if one is; a cache that fails shows none.
pub async fn shown(redis: &Redis, order: &Order) -> Option<u64> {
    redis.get(order.id).await.ok().flatten().map(|order| order.version)
}

/// A connection beside the adapter's.
pub async fn beside(url: &str) -> client::aio::MultiplexedConnection {
    client::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// Says a command to a server, beside the adapter.
pub async fn say<T: client::FromRedisValue>(url: &str, words: &[&str]) -> T {
    let mut command = client::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(&mut beside(url).await).await.unwrap()
}

/// Looks until `look` finds something.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let begun = Instant::now();
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "waited {LIMIT:?} in vain until {what}");
        pace.tick().await;
    }
}
