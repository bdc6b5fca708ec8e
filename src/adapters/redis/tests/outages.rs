//! A server that is not there, hangs, starts, is full, or may not write: calls fail quickly, and work again soon after.
use std::sync::Arc;
use std::time::{Duration, Instant};

use ports::Error;
use ports::cache::OrderCache;
use ports::idempotency::{BeginOutcome, Idempotency};
use ports::probe::Probe;
use ports::rate_limit::{RateLimitPolicy, RateLimiter};
use redis::{OpenError, Options, Redis};

use crate::server::{Server, Wire};
use crate::support::{FINGERPRINT, LOCK, ann, believed, opened, options, orders, prefix, put, say, shown, until, url};

fn policy() -> RateLimitPolicy {
    RateLimitPolicy { name: "default".into(), capacity: 120, window: Duration::from_secs(60) }
}

async fn take(redis: &Redis) -> Result<bool, Error> {
    redis.take("ann", &policy(), 1.0).await.map(|taken| taken.allowed)
}

async fn begin(redis: &Redis, key: &str) -> Result<BeginOutcome, Error> {
    redis.begin(&ann(), key, &FINGERPRINT, LOCK).await
}

async fn works_again(redis: &Redis) {
    until("tokens are taken", async || take(redis).await.ok()).await;
    until("keys are taken", async || begin(redis, "afterwards").await.ok()).await;
    believed(redis).await;
    redis.check().await.unwrap();
}

#[tokio::test]
async fn only_mistakes_of_the_configuration_keep_it_from_opening() {
    let open = |change: fn(&mut Options)| {
        let mut options = options("redis://:secret@127.0.0.1:1", &prefix(), "one");
        change(&mut options);
        Redis::open(options)
    };

    assert!(open(|_| ()).is_ok(), "nobody listens there, and nobody is asked");
    for url in ["", "localhost", "http://localhost", "redis://:secret@", "rediss://:secret@localhost"] {
        let mut options = options(url, &prefix(), "one");
        options.url = url.into();
        let error = Redis::open(options).err().unwrap_or_else(|| panic!("{url} was opened"));
        assert!(matches!(error, OpenError::Url(_)) && !error.to_string().contains("secret"), "{error}");
    }
    assert!(matches!(open(|options| options.prefix = "{a}:".into()), Err(OpenError::Prefix(_))));
    assert!(matches!(open(|options| options.connections = 0), Err(OpenError::Zero("connections"))));
    let shown = format!("{:?}", options("redis://:secret@localhost", "p:", "one"));
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn outside_of_a_runtime_it_says_so() {
    assert!(matches!(Redis::open(options("redis://localhost", "p:", "one")), Err(OpenError::NoRuntime)));
}

#[tokio::test]
async fn a_server_that_is_not_there_costs_nobody_time() {
    let metrics = telemetry::Metrics::new();
    let mut options = options("redis://127.0.0.1:1", &prefix(), "one");
    options.metrics = Some(Arc::clone(&metrics));
    let redis = Redis::open(options).unwrap();
    let [v0, ..] = orders();

    let begun = Instant::now();
    for _ in 0..200 {
        assert!(matches!(take(&redis).await, Err(Error::Unreachable(_))));
        assert!(matches!(begin(&redis, "key").await, Err(Error::Unreachable(_))));
        assert!(redis.get(v0.id).await.is_err() && redis.put(Arc::new(v0.clone())).await.is_err());
    }
    assert!(redis.check().await.is_err());

    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let failures = |who| metrics.redis_connection_failures.with([who]).get();
    assert_eq!((failures("rate_limit"), failures("idempotency")), (200, 200));
    assert!(failures("probe") == 1 && failures("keeper") >= 1);
    assert_eq!(metrics.cache_degraded_mode_count.get(), 200);
}

#[tokio::test]
async fn a_server_that_hangs_is_waited_for_once_and_found_again() {
    let server = Server::start().await;
    let mut options = options(&server.url(), &prefix(), "one");
    let defaults = Options::new("", options.instance.clone(), Arc::clone(&options.dice));
    (options.connect_within, options.answer_within) = (defaults.connect_within, defaults.answer_within);
    let redis = opened(options).await;
    let [v0, ..] = orders();
    put(&redis, &v0).await;

    server.freeze();
    let begun = Instant::now();
    let first = take(&redis).await;
    assert!(first.is_err() && begun.elapsed() < Duration::from_secs(1), "{first:?} after {:?}", begun.elapsed());
    let begun = Instant::now();
    for _ in 0..200 {
        assert!(take(&redis).await.is_err() && begin(&redis, "key").await.is_err());
        assert_eq!(shown(&redis, &v0).await, None);
    }
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    server.thaw();

    works_again(&redis).await;
}

#[tokio::test]
async fn keys_that_ended_during_an_outage_are_ended_after_it() {
    let server = Server::start().await;
    let wire = Wire::to(&server).await;
    let prefix = prefix();
    let cut = opened(options(&wire.url(), &prefix, "cut")).await;
    let other = opened(options(&server.url(), &prefix, "other")).await;
    for key in ["refused", "made"] {
        assert_eq!(begin(&cut, key).await.unwrap(), BeginOutcome::Acquired);
    }
    let order_id = orders()[0].id;

    wire.cut();
    assert!(cut.abandon(&ann(), "refused").await.is_err());
    assert!(cut.complete(&ann(), "made", &FINGERPRINT, order_id, LOCK).await.is_err());
    assert_eq!(begin(&other, "made").await.unwrap(), BeginOutcome::InProgress);
    wire.mend();

    let made = BeginOutcome::Completed { order_id, fingerprint: Some(FINGERPRINT) };
    until("the one tells what it made", async || (begin(&other, "made").await.unwrap() == made).then_some(())).await;
    assert_eq!(begin(&other, "refused").await.unwrap(), BeginOutcome::Acquired);
}

#[tokio::test]
async fn a_flush_in_the_middle_only_forgets() {
    let server = Server::start().await;
    let redis = opened(options(&server.url(), &prefix(), "one")).await;
    let [v0, ..] = orders();
    put(&redis, &v0).await;
    assert_eq!(begin(&redis, "key").await.unwrap(), BeginOutcome::Acquired);

    let () = say(&server.url(), &["FLUSHALL"]).await;
    let () = say(&server.url(), &["SCRIPT", "FLUSH"]).await;

    assert_eq!(begin(&redis, "key").await.unwrap(), BeginOutcome::Acquired);
    assert!(take(&redis).await.unwrap());
    assert_eq!(shown(&redis, &v0).await, None);
    believed(&redis).await;
    put(&redis, &v0).await;
    assert_eq!(shown(&redis, &v0).await, Some(0));
}

#[tokio::test]
async fn a_server_that_was_killed_is_used_again_soon_after_its_restart() {
    let server = Server::start().await;
    let redis = opened(options(&server.url(), &prefix(), "one")).await;
    assert!(take(&redis).await.unwrap());

    let server = server.killed_and_restarted(&[]).await;

    works_again(&redis).await;
    drop(server);
    until("its end is noticed", async || take(&redis).await.err()).await;
}

#[tokio::test]
async fn a_server_that_loads_or_may_not_write_is_not_there_yet() {
    let server = Server::start().await;
    let redis = opened(options(&server.url(), &prefix(), "one")).await;

    let () = say(&server.url(), &["REPLICAOF", "127.0.0.1", "1"]).await;
    let refused = begin(&redis, "key").await;
    assert!(
        matches!(&refused, Err(Error::Unreachable(why)) if why.contains("READONLY") || why.contains("ReadOnly")),
        "{refused:?}"
    );
    assert!(redis.check().await.is_err());
    let () = say(&server.url(), &["REPLICAOF", "NO", "ONE"]).await;
    works_again(&redis).await;

    let () = say(&server.url(), &["EVAL", "for i = 1, 8000 do redis.call('SET', 'fill:' .. i, i) end", "0"]).await;
    server.save().await;
    let slowly = ["--key-load-delay", "100", "--loading-process-events-interval-bytes", "1024"];
    let server = server.killed_and_restarted(&slowly).await;
    let loading = redis.check().await;
    assert!(
        matches!(&loading, Err(Error::Unreachable(why)) if why.contains("oading") || why.contains("LOADING")),
        "{loading:?}"
    );
    works_again(&redis).await;
    drop(server);
}

#[tokio::test]
async fn a_server_that_is_full_says_so_and_its_cache_is_not_believed_meanwhile() {
    let server = Server::start().await;
    let redis = opened(options(&server.url(), &prefix(), "one")).await;
    let [v0, v1, _] = orders();
    put(&redis, &v0).await;

    let () = say(&server.url(), &["CONFIG", "SET", "maxmemory", "1"]).await;
    let full = redis.put(Arc::new(v1.clone())).await;
    assert!(matches!(full, Err(Error::Full(_))), "{full:?}");
    assert_eq!(shown(&redis, &v0).await, None);
    let () = say(&server.url(), &["CONFIG", "SET", "maxmemory", "0"]).await;

    works_again(&redis).await;
    assert_eq!(shown(&redis, &v0).await, None);
}

#[tokio::test]
async fn more_callers_than_connections_are_served_in_turn() {
    let mut few = options(&url(), &prefix(), "one");
    few.connections = 2;
    let redis = opened(few).await;

    let calls: Vec<_> = (0..200)
        .map(|_| {
            tokio::spawn({
                let redis = redis.clone();
                async move { take(&redis).await }
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
