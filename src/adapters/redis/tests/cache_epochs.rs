//! The cache around outages: it never serves an order that is older than an acknowledged change.
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use ports::Error;
use ports::orders::cache::OrderCache;
use redis::Redis;

use crate::server::{Proxy, Server};
use crate::support::{cached_version, command, opened, options, orders, prefix, put, until, until_cache_is_valid, url};

#[tokio::test]
async fn an_order_put_by_one_instance_is_served_by_the_other_at_once() {
    let prefix = prefix();
    let (one, other) = (opened(options(&url(), &prefix, "one")).await, opened(options(&url(), &prefix, "other")).await);
    let [v0, v1, _] = orders();
    // The first instance reads the epoch that the second has raised.
    until_cache_is_valid(&one).await;
    put(&one, &v0).await;
    assert_eq!(cached_version(&other, &v0).await, Some(0));

    put(&other, &v1).await;

    assert_eq!(cached_version(&one, &v0).await, Some(1));
}

#[tokio::test]
async fn after_a_failed_put_no_instance_serves_the_older_version() {
    let server = Server::start().await;
    let proxy = Proxy::to(&server).await;
    let prefix = prefix();
    let cut = opened(options(&proxy.url(), &prefix, "cut")).await;
    let other = opened(options(&server.url(), &prefix, "other")).await;
    let [v0, v1, _] = orders();
    put(&other, &v0).await;
    assert_eq!((cached_version(&cut, &v0).await, cached_version(&other, &v0).await), (Some(0), Some(0)));

    proxy.cut();
    assert!(cut.put(Arc::new(v1.clone()), Duration::ZERO).await.is_err());
    assert_eq!(cached_version(&cut, &v0).await, None, "the instance whose put failed serves nothing");
    proxy.restore();

    until("the other serves no older version", async || (cached_version(&other, &v0).await != Some(0)).then_some(()))
        .await;
    until_cache_is_valid(&cut).await;
    put(&cut, &v1).await;
    until_cache_is_valid(&other).await;
    assert_eq!((cached_version(&cut, &v0).await, cached_version(&other, &v0).await), (Some(1), Some(1)));
}

#[tokio::test]
async fn after_a_failed_evict_no_instance_serves_the_order() {
    let server = Server::start().await;
    let proxy = Proxy::to(&server).await;
    let prefix = prefix();
    let cut = opened(options(&proxy.url(), &prefix, "cut")).await;
    let other = opened(options(&server.url(), &prefix, "other")).await;
    let [v0, ..] = orders();
    put(&other, &v0).await;

    proxy.cut();
    assert!(cut.evict(v0.id).await.is_err());
    proxy.restore();

    until("the other serves nothing", async || other.get(v0.id).await.is_ok_and(|order| order.is_none()).then_some(()))
        .await;
}

#[tokio::test]
async fn entries_of_an_older_snapshot_are_not_served() {
    let server = Server::start().await;
    let prefix = prefix();
    let handles =
        [opened(options(&server.url(), &prefix, "one")).await, opened(options(&server.url(), &prefix, "other")).await];
    let [v0, v1, _] = orders();
    until_cache_is_valid(&handles[0]).await;
    put(&handles[0], &v0).await;
    assert_eq!(cached_version(&handles[1], &v0).await, Some(0));
    server.save().await;
    put(&handles[0], &v1).await;
    assert_eq!(cached_version(&handles[1], &v0).await, Some(1));

    // No call is made during the restart: only the new connections reveal it.
    let server = server.killed_and_restarted(&[]).await;
    let entry = format!("{prefix}{{cache}}:order:{}", v0.id);
    assert_eq!(
        command::<Option<String>>(&server.url(), &["HGET", &entry, "v"]).await,
        Some("0".into()),
        "the snapshot is old"
    );

    for handle in &handles {
        let cached = until("the cache answers", async || handle.get(v0.id).await.ok()).await;
        assert_eq!(cached, None);
    }
    let version = until("the cache is used again", async || {
        handles[0].put(Arc::new(v1.clone()), Duration::ZERO).await.ok()?;
        cached_version(&handles[1], &v0).await
    });
    assert_eq!(version.await, 1);
}

#[tokio::test]
async fn a_missing_epoch_is_raised_above_the_epoch_of_every_entry() {
    let prefix = prefix();
    let redis = opened(options(&url(), &prefix, "one")).await;
    let [v0, ..] = orders();
    put(&redis, &v0).await;
    let epoch = format!("{prefix}{{cache}}:epoch");
    let before: u64 = command(&url(), &["GET", &epoch]).await;

    let _: i64 = command(&url(), &["DEL", &epoch]).await;

    assert_eq!(cached_version(&redis, &v0).await, None);
    until_cache_is_valid(&redis).await;
    assert_eq!(cached_version(&redis, &v0).await, None);
    assert!(command::<u64>(&url(), &["GET", &epoch]).await > before);
}

#[tokio::test]
async fn an_unreachable_server_or_a_lower_epoch_makes_an_instance_raise_the_epoch() {
    let server = Server::start().await;
    let proxy = Proxy::to(&server).await;
    let prefix = prefix();
    let mut options = options(&proxy.url(), &prefix, "one");
    options.heartbeat_interval = Duration::from_millis(20);
    let redis = opened(options).await;
    let key = format!("{prefix}{{cache}}:epoch");
    let epoch = async || command::<u64>(&server.url(), &["GET", &key]).await;
    let before = epoch().await;

    proxy.cut();
    until("a call fails", async || redis.get(orders()[0].id).await.err()).await;
    proxy.restore();
    let raised = until("the epoch is raised", async || Some(epoch().await).filter(|epoch| *epoch > before)).await;

    let () = command(&server.url(), &["SET", &key, "7"]).await;
    until("it is raised again", async || (epoch().await > raised).then_some(())).await;
}

#[tokio::test]
async fn an_instance_caches_no_orders_under_an_epoch_that_it_has_just_read() {
    let prefix = prefix();
    let quick = opened(options(&url(), &prefix, "quick")).await;
    let mut slow = options(&url(), &prefix, "slow");
    slow.epoch_age_min = Duration::from_secs(3_600);
    let slow = opened(slow).await;
    let [v0, v1, v2] = orders();
    // The quick instance reads the epoch that the slow one has raised.
    assert_eq!(cached_version(&quick, &v0).await, None);

    put(&slow, &v1).await;
    assert_eq!(cached_version(&quick, &v0).await, None, "the slow instance stored only the version");
    put(&quick, &v0).await;
    assert_eq!(cached_version(&quick, &v0).await, None, "the stored version refuses older ones");
    put(&quick, &v2).await;
    assert_eq!((cached_version(&quick, &v0).await, cached_version(&slow, &v0).await), (Some(2), Some(2)));
    put(&slow, &v2).await;
    assert_eq!(cached_version(&quick, &v0).await, None);
}

#[tokio::test]
async fn an_evicted_order_keeps_its_version_and_refuses_older_ones() {
    let redis = opened(options(&url(), &prefix(), "one")).await;
    let [v0, v1, _] = orders();
    put(&redis, &v1).await;
    redis.evict(v1.id).await.unwrap();

    put(&redis, &v0).await;

    assert_eq!(cached_version(&redis, &v0).await, None);
}

#[tokio::test]
async fn a_put_is_completed_after_its_future_is_dropped() {
    let redis = opened(options(&url(), &prefix(), "one")).await;
    let [v0, ..] = orders();

    let mut call = redis.put(Arc::new(v0.clone()), Duration::ZERO);
    let started = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending())).await;
    drop(call);

    assert!(started);
    assert_eq!(until("the order is served", async || cached_version(&redis, &v0).await).await, 0);
}

#[tokio::test]
async fn entries_of_an_unknown_format_are_misses_and_are_replaced() {
    let prefix = prefix();
    let redis = opened(options(&url(), &prefix, "one")).await;
    let [v0, ..] = orders();
    put(&redis, &v0).await;
    let entry = format!("{prefix}{{cache}}:order:{}", v0.id);
    let _: i64 = command(&url(), &["HSET", &entry, "o", "[99,\"a later format\"]"]).await;
    assert_eq!(redis.get(v0.id).await.unwrap(), None);

    let () = command(&url(), &["SET", &entry, "no hash"]).await;
    assert!(matches!(redis.get(v0.id).await, Err(Error::Broken(_))));
    put(&redis, &v0).await;

    assert_eq!(cached_version(&redis, &v0).await, Some(0));
}

#[tokio::test]
async fn the_ttl_of_an_entry_is_the_option_minus_at_most_a_fifth() {
    let prefix = prefix();
    let redis: Redis = opened(options(&url(), &prefix, "one")).await;
    let mut ttls = Vec::new();
    for seed in 0..16 {
        let order = kit::Factory::seeded(seed, "orders".into()).placed("ann").0;
        let started = Instant::now();
        put(&redis, &order).await;
        let entry = format!("{prefix}{{cache}}:order:{}", order.id);
        let ttl = command::<i64>(&url(), &["PTTL", &entry]).await;
        // The time from then on has passed of the smallest one.
        let passed = i64::try_from(started.elapsed().as_millis()).unwrap();
        assert!(ttl <= 300_000 && ttl + passed >= 239_000, "{ttl} after {passed}");
        ttls.push(ttl);
    }

    ttls.dedup();
    assert!(ttls.len() > 8, "they do not expire together");
}
