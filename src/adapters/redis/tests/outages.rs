//! A server that is absent, hangs, starts, is full, or must not write: calls fail quickly, and succeed soon after its return.
use std::sync::Arc;
use std::time::{Duration, Instant};

use kit::wait::scaled;
use ports::Error;
use ports::orders::cache::OrderCache;
use ports::orders::idempotency::{BeginOutcome, Idempotency};
use ports::probe::Probe;
use ports::rate_limit::{RateLimitPolicy, RateLimiter};
use redis::{Options, Redis, RedisOpenError};

use crate::server::{Proxy, Server};
use crate::support::{
    FINGERPRINT, LOCK, ann, cached_version, command, idle, opened, options, orders, prefix, put, until,
    until_cache_is_valid, url,
};

fn policy() -> RateLimitPolicy {
    RateLimitPolicy { name: "default".into(), capacity: 120, window: Duration::from_secs(60) }
}

async fn take(redis: &Redis) -> Result<bool, Error> {
    redis.take("ann", &policy(), 1.0).await.map(|decision| decision.allowed)
}

async fn begin(redis: &Redis, key: &str) -> Result<BeginOutcome, Error> {
    redis.begin(&ann(), key, &FINGERPRINT, LOCK).await
}

async fn works_again(redis: &Redis) {
    until("tokens are taken", async || take(redis).await.ok()).await;
    until("keys are taken", async || begin(redis, "afterwards").await.ok()).await;
    until_cache_is_valid(redis).await;
    until("the probe succeeds", async || redis.check().await.ok()).await;
}

#[tokio::test]
async fn only_mistakes_of_the_configuration_prevent_opening() {
    let open = |change: fn(&mut Options)| {
        let mut options = options("redis://:secret@127.0.0.1:1", &prefix(), "one");
        change(&mut options);
        Redis::open(options)
    };

    assert!(open(|_| ()).is_ok(), "opening does not connect");
    for url in ["", "localhost", "http://localhost", "redis://:secret@"] {
        let options = options(url, &prefix(), "one");
        let error = Redis::open(options).err().unwrap_or_else(|| panic!("{url} was opened"));
        assert!(matches!(error, RedisOpenError::Url(_)) && !error.to_string().contains("secret"), "{error}");
    }
    assert!(matches!(open(|options| options.prefix = "{a}:".into()), Err(RedisOpenError::Prefix(_))));
    assert!(matches!(open(|options| options.calls_max = 0), Err(RedisOpenError::Zero("calls_max"))));
    let text = format!("{:?}", options("redis://:secret@localhost", "p:", "one"));
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn opening_outside_of_a_runtime_is_refused() {
    assert!(matches!(Redis::open(options("redis://localhost", "p:", "one")), Err(RedisOpenError::NoRuntime)));
}

#[tokio::test]
async fn calls_to_an_absent_server_fail_at_once() {
    let metrics = telemetry::Metrics::new();
    let mut options = options("redis://127.0.0.1:1", &prefix(), "one");
    options.metrics = Some(Arc::clone(&metrics));
    let redis = Redis::open(options).unwrap();
    let [v0, ..] = orders();

    let mut times = Vec::new();
    for _ in 0..200 {
        let start = Instant::now();
        assert!(matches!(take(&redis).await, Err(Error::Unreachable(_))));
        assert!(matches!(begin(&redis, "key").await, Err(Error::Unreachable(_))));
        assert!(redis.get(v0.id).await.is_err() && redis.put(Arc::new(v0.clone()), Duration::ZERO).await.is_err());
        times.push(start.elapsed());
    }
    assert!(redis.check().await.is_err());

    assert!(median(times) < scaled(Duration::from_millis(5)));
    let failures = |caller| metrics.redis_connection_failures.with([caller]).get();
    assert_eq!((failures("rate_limit"), failures("idempotency")), (200, 200));
    assert!(failures("probe") == 1 && failures("keeper") >= 1);
    assert_eq!(metrics.cache_degraded_mode_count.get(), 200);
}

/// The median: a pause of the process is in few of the times.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test]
async fn a_hanging_server_fails_one_call_with_a_timeout_and_is_used_again() {
    let server = Server::start().await;
    let mut options = options(&server.url(), &prefix(), "one");
    let defaults = Options::new("", options.instance.clone(), Arc::clone(&options.rng));
    (options.connect_timeout, options.response_timeout) = (defaults.connect_timeout, defaults.response_timeout);
    let redis = opened(options).await;
    let [v0, ..] = orders();
    until("the order is cached", async || redis.put(Arc::new(v0.clone()), Duration::ZERO).await.ok()).await;

    server.freeze();
    let start = Instant::now();
    let first = take(&redis).await;
    assert!(
        first.is_err() && start.elapsed() < scaled(Duration::from_secs(4)),
        "{first:?} after {:?}",
        start.elapsed()
    );
    let mut times = Vec::new();
    for _ in 0..200 {
        let start = Instant::now();
        assert!(take(&redis).await.is_err() && begin(&redis, "key").await.is_err());
        assert_eq!(cached_version(&redis, &v0).await, None);
        times.push(start.elapsed());
    }
    assert!(median(times) < scaled(Duration::from_micros(2_500)));
    server.thaw();

    works_again(&redis).await;
}

#[tokio::test]
async fn keys_released_during_an_outage_are_released_after_it() {
    let server = Server::start().await;
    let proxy = Proxy::to(&server).await;
    let prefix = prefix();
    let cut = opened(options(&proxy.url(), &prefix, "cut")).await;
    let other = opened(options(&server.url(), &prefix, "other")).await;
    for key in ["abandoned", "completed"] {
        assert_eq!(begin(&cut, key).await.unwrap(), BeginOutcome::Acquired);
    }
    let order_id = orders()[0].id;

    proxy.cut();
    assert!(cut.abandon(&ann(), "abandoned").await.is_err());
    assert!(cut.complete(&ann(), "completed", &FINGERPRINT, order_id, LOCK).await.is_err());
    assert_eq!(begin(&other, "completed").await.unwrap(), BeginOutcome::InProgress);
    proxy.restore();

    let completed = BeginOutcome::Completed { order_id, fingerprint: Some(FINGERPRINT) };
    until("the deferred release is sent", async || {
        (begin(&other, "completed").await.unwrap() == completed).then_some(())
    })
    .await;
    assert_eq!(begin(&other, "abandoned").await.unwrap(), BeginOutcome::Acquired);
}

#[tokio::test]
async fn flushed_server_has_lost_its_data_and_works_on() {
    let server = Server::start().await;
    let redis = opened(options(&server.url(), &prefix(), "one")).await;
    let [v0, ..] = orders();
    put(&redis, &v0).await;
    assert_eq!(begin(&redis, "key").await.unwrap(), BeginOutcome::Acquired);

    let () = command(&server.url(), &["FLUSHALL"]).await;
    let () = command(&server.url(), &["SCRIPT", "FLUSH"]).await;

    assert_eq!(begin(&redis, "key").await.unwrap(), BeginOutcome::Acquired);
    assert!(take(&redis).await.unwrap());
    assert_eq!(cached_version(&redis, &v0).await, None);
    until_cache_is_valid(&redis).await;
    put(&redis, &v0).await;
    assert_eq!(cached_version(&redis, &v0).await, Some(0));
}

#[tokio::test]
async fn a_killed_server_is_used_again_after_its_restart() {
    let server = Server::start().await;
    let redis = opened(options(&server.url(), &prefix(), "one")).await;
    assert!(take(&redis).await.unwrap());

    let server = server.killed_and_restarted(&[]).await;

    works_again(&redis).await;
    drop(server);
    until("its end is detected", async || take(&redis).await.err()).await;
}

#[tokio::test]
async fn a_loading_server_and_a_replica_are_unreachable() {
    let server = Server::start().await;
    let prefix = prefix();
    let mut options = options(&server.url(), &prefix, "one");
    // After a refused heartbeat the call below would not reach the server.
    options.heartbeat_interval = Duration::from_secs(3600);
    let redis = opened(options).await;
    idle(&redis, &server.url(), &prefix, "one").await;

    let () = command(&server.url(), &["REPLICAOF", "127.0.0.1", "1"]).await;
    let refused = begin(&redis, "key").await;
    assert!(
        matches!(&refused, Err(Error::Unreachable(reason)) if reason.contains("READONLY") || reason.contains("ReadOnly")),
        "{refused:?}"
    );
    assert!(redis.check().await.is_err());
    let later = begin(&redis, "key").await;
    assert!(
        matches!(&later, Err(Error::Unreachable(reason)) if reason.to_lowercase().contains("readonly")),
        "the reason stays known while the server is not called: {later:?}"
    );
    let () = command(&server.url(), &["REPLICAOF", "NO", "ONE"]).await;
    works_again(&redis).await;

    let () = command(&server.url(), &["EVAL", "for i = 1, 8000 do redis.call('SET', 'fill:' .. i, i) end", "0"]).await;
    server.save().await;
    let slowly = ["--key-load-delay", "8000", "--loading-process-events-interval-bytes", "1024"];
    let server = server.killed_and_restarted(&slowly).await;
    // The first call may still find the connection that the kill has closed.
    until("the server is reported as loading", async || match redis.check().await {
        Err(Error::Unreachable(reason)) if reason.to_lowercase().contains("loading") => Some(()),
        _ => None,
    })
    .await;
    let () = command(&server.url(), &["CONFIG", "SET", "key-load-delay", "0"]).await;
    works_again(&redis).await;
    drop(server);
}

#[tokio::test]
async fn a_full_server_is_reported_and_its_cache_is_invalid_meanwhile() {
    let server = Server::start().await;
    let redis = opened(options(&server.url(), &prefix(), "one")).await;
    let [v0, v1, _] = orders();
    put(&redis, &v0).await;

    let () = command(&server.url(), &["CONFIG", "SET", "maxmemory", "1"]).await;
    let full = redis.put(Arc::new(v1.clone()), Duration::ZERO).await;
    assert!(matches!(full, Err(Error::Full(_))), "{full:?}");
    assert_eq!(cached_version(&redis, &v0).await, None);
    let () = command(&server.url(), &["CONFIG", "SET", "maxmemory", "0"]).await;

    works_again(&redis).await;
    assert_eq!(cached_version(&redis, &v0).await, None);
}

#[tokio::test]
async fn more_calls_than_may_be_in_flight_are_all_answered() {
    let mut few = options(&url(), &prefix(), "one");
    few.calls_max = 2;
    let redis = opened(few).await;
    // No token comes back during the test.
    let rarely = RateLimitPolicy { window: Duration::from_secs(120 * 3_600), ..policy() };

    let calls: Vec<_> = (0..200)
        .map(|_| {
            tokio::spawn({
                let (redis, rarely) = (redis.clone(), rarely.clone());
                async move { redis.take("ann", &rarely, 1.0).await.map(|decision| decision.allowed) }
            })
        })
        .collect();
    let mut allowed = 0;
    for call in calls {
        allowed += u32::from(call.await.unwrap().unwrap());
    }

    assert!((150..=151).contains(&allowed), "{allowed}");
    assert!(redis.saturation().unwrap() <= 1.0);
}

#[tokio::test]
async fn calls_share_one_connection() {
    let server = Server::start().await;
    let redis = opened(options(&server.url(), &prefix(), "one")).await;

    let calls = (0..50).map(|_| take(&redis));
    assert!(futures::future::join_all(calls).await.into_iter().all(|taken| taken.is_ok()));

    let clients: String = command(&server.url(), &["CLIENT", "LIST"]).await;
    let ours = clients.lines().filter(|client| !client.contains(" name= ")).count();
    assert_eq!(ours, 1, "{clients}");
}

#[tokio::test]
async fn the_connection_outlives_the_thread_that_needed_it_first() {
    let server = Server::start().await;
    let redis = Redis::open(options(&server.url(), &prefix(), "one")).unwrap();

    let first = redis.clone();
    let thread = std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(take(&first))
    });
    let taken = tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();

    assert!(taken.unwrap());
    assert!(take(&redis).await.unwrap(), "the same connection, within the second before its next test");
}

#[tokio::test]
async fn calls_beyond_the_limit_are_refused_while_none_ends() {
    let server = Server::start().await;
    let prefix = prefix();
    let mut options = options(&server.url(), &prefix, "one");
    (options.calls_max, options.permit_timeout) = (1, Duration::from_millis(10));
    // The heartbeat is a call too.
    options.heartbeat_interval = Duration::from_secs(3600);
    let redis = opened(options).await;
    idle(&redis, &server.url(), &prefix, "one").await;

    server.freeze();
    let (waiting, refused) = tokio::join!(take(&redis), async {
        until("one call is in flight", async || (redis.saturation() == Some(1.0)).then_some(())).await;
        let refused = take(&redis).await;
        server.thaw();
        refused
    });

    assert!(matches!(refused, Err(Error::Overloaded(_))), "{refused:?}");
    assert!(waiting.unwrap());
    assert_eq!(redis.saturation(), Some(0.0));
}
