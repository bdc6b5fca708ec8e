//! What the cache shows around outages: never an order that an answered change has made old.
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ports::Error;
use ports::cache::OrderCache;
use redis::Redis;

use crate::server::{Server, Wire};
use crate::support::{believed, opened, options, orders, prefix, put, say, shown, until, url};

#[tokio::test]
async fn what_one_instance_puts_the_other_sees_at_once() {
    let prefix = prefix();
    let (one, other) = (opened(options(&url(), &prefix, "one")).await, opened(options(&url(), &prefix, "other")).await);
    let [v0, v1, _] = orders();
    // The first to come learns that the second has raised the epoch.
    believed(&one).await;
    put(&one, &v0).await;
    assert_eq!(shown(&other, &v0).await, Some(0));

    put(&other, &v1).await;

    assert_eq!(shown(&one, &v0).await, Some(1));
}

#[tokio::test]
async fn a_put_that_failed_leaves_nothing_old_once_the_server_is_back() {
    let server = Server::start().await;
    let wire = Wire::to(&server).await;
    let prefix = prefix();
    let cut = opened(options(&wire.url(), &prefix, "cut")).await;
    let other = opened(options(&server.url(), &prefix, "other")).await;
    let [v0, v1, _] = orders();
    put(&other, &v0).await;
    assert_eq!((shown(&cut, &v0).await, shown(&other, &v0).await), (Some(0), Some(0)));

    wire.cut();
    assert!(cut.put(Arc::new(v1.clone())).await.is_err());
    assert_eq!(shown(&cut, &v0).await, None, "who failed to tell shows nothing");
    wire.mend();

    until("the other shows nothing old", async || (shown(&other, &v0).await != Some(0)).then_some(())).await;
    believed(&cut).await;
    put(&cut, &v1).await;
    believed(&other).await;
    assert_eq!((shown(&cut, &v0).await, shown(&other, &v0).await), (Some(1), Some(1)));
}

#[tokio::test]
async fn an_evict_that_failed_is_made_good_as_well() {
    let server = Server::start().await;
    let wire = Wire::to(&server).await;
    let prefix = prefix();
    let cut = opened(options(&wire.url(), &prefix, "cut")).await;
    let other = opened(options(&server.url(), &prefix, "other")).await;
    let [v0, ..] = orders();
    put(&other, &v0).await;

    wire.cut();
    assert!(cut.evict(v0.id).await.is_err());
    wire.mend();

    until("the other shows nothing", async || other.get(v0.id).await.is_ok_and(|order| order.is_none()).then_some(()))
        .await;
}

#[tokio::test]
async fn a_server_back_from_an_older_snapshot_shows_nothing_of_it() {
    let server = Server::start().await;
    let prefix = prefix();
    let handles =
        [opened(options(&server.url(), &prefix, "one")).await, opened(options(&server.url(), &prefix, "other")).await];
    let [v0, v1, _] = orders();
    believed(&handles[0]).await;
    put(&handles[0], &v0).await;
    assert_eq!(shown(&handles[1], &v0).await, Some(0));
    server.save().await;
    put(&handles[0], &v1).await;
    assert_eq!(shown(&handles[1], &v0).await, Some(1));

    // Nobody asks anything while it is away: only the new connections tell.
    let server = server.killed_and_restarted(&[]).await;
    let entry = format!("{prefix}{{cache}}:order:{}", v0.id);
    assert_eq!(
        say::<Option<String>>(&server.url(), &["HGET", &entry, "v"]).await,
        Some("0".into()),
        "the snapshot is old"
    );

    for handle in &handles {
        let seen = until("the cache answers", async || handle.get(v0.id).await.ok()).await;
        assert_eq!(seen, None);
    }
    let seen = until("it is used again", async || {
        handles[0].put(Arc::new(v1.clone())).await.ok()?;
        shown(&handles[1], &v0).await
    });
    assert_eq!(seen.await, 1);
}

#[tokio::test]
async fn an_epoch_that_was_evicted_alone_is_raised_above_every_entry() {
    let prefix = prefix();
    let redis = opened(options(&url(), &prefix, "one")).await;
    let [v0, ..] = orders();
    put(&redis, &v0).await;
    let epoch = format!("{prefix}{{cache}}:epoch");
    let before: u64 = say(&url(), &["GET", &epoch]).await;

    let _: i64 = say(&url(), &["DEL", &epoch]).await;

    assert_eq!(shown(&redis, &v0).await, None);
    believed(&redis).await;
    assert_eq!(shown(&redis, &v0).await, None);
    assert!(say::<u64>(&url(), &["GET", &epoch]).await > before);
}

#[tokio::test]
async fn whoever_could_not_reach_the_server_or_finds_it_forgetful_raises_the_epoch() {
    let server = Server::start().await;
    let wire = Wire::to(&server).await;
    let prefix = prefix();
    let mut brisk = options(&wire.url(), &prefix, "one");
    brisk.heartbeat = Duration::from_millis(20);
    let redis = opened(brisk).await;
    let key = format!("{prefix}{{cache}}:epoch");
    let epoch = async || say::<u64>(&server.url(), &["GET", &key]).await;
    let before = epoch().await;

    wire.cut();
    until("a sign of life fails", async || redis.get(orders()[0].id).await.err()).await;
    wire.mend();
    let raised = until("the epoch is raised", async || Some(epoch().await).filter(|epoch| *epoch > before)).await;

    let () = say(&server.url(), &["SET", &key, "7"]).await;
    until("it is raised again", async || (epoch().await > raised).then_some(())).await;
}

#[tokio::test]
async fn a_slow_hand_caches_nothing_under_an_epoch_it_has_just_met() {
    let prefix = prefix();
    let quick = opened(options(&url(), &prefix, "quick")).await;
    let mut slow = options(&url(), &prefix, "slow");
    slow.settle = Duration::from_secs(3_600);
    let slow = opened(slow).await;
    let [v0, v1, v2] = orders();
    // The quick one learns the epoch that the slow one has raised.
    assert_eq!(shown(&quick, &v0).await, None);

    put(&slow, &v1).await;
    assert_eq!(shown(&quick, &v0).await, None, "only the version was left behind");
    put(&quick, &v0).await;
    assert_eq!(shown(&quick, &v0).await, None, "and it forbids older ones");
    put(&quick, &v2).await;
    assert_eq!((shown(&quick, &v0).await, shown(&slow, &v0).await), (Some(2), Some(2)));
    put(&slow, &v2).await;
    assert_eq!(shown(&quick, &v0).await, None);
}

#[tokio::test]
async fn an_evicted_order_leaves_its_version_behind() {
    let redis = opened(options(&url(), &prefix(), "one")).await;
    let [v0, v1, _] = orders();
    put(&redis, &v1).await;
    redis.evict(v1.id).await.unwrap();

    put(&redis, &v0).await;

    assert_eq!(shown(&redis, &v0).await, None);
}

#[tokio::test]
async fn a_put_whose_caller_went_away_is_finished() {
    let redis = opened(options(&url(), &prefix(), "one")).await;
    let [v0, ..] = orders();

    let mut call = redis.put(Arc::new(v0.clone()));
    let begun = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending())).await;
    drop(call);

    assert!(begun);
    assert_eq!(until("it is shown", async || shown(&redis, &v0).await).await, 0);
}

#[tokio::test]
async fn entries_that_are_strange_are_misses_and_give_way() {
    let prefix = prefix();
    let redis = opened(options(&url(), &prefix, "one")).await;
    let [v0, ..] = orders();
    put(&redis, &v0).await;
    let entry = format!("{prefix}{{cache}}:order:{}", v0.id);
    let _: i64 = say(&url(), &["HSET", &entry, "o", "[99,\"a later format\"]"]).await;
    assert_eq!(redis.get(v0.id).await.unwrap(), None);

    let () = say(&url(), &["SET", &entry, "no hash"]).await;
    assert!(matches!(redis.get(v0.id).await, Err(Error::Broken(_))));
    put(&redis, &v0).await;

    assert_eq!(shown(&redis, &v0).await, Some(0));
}

#[tokio::test]
async fn entries_live_as_long_as_the_options_say_minus_a_fifth_at_most() {
    let prefix = prefix();
    let redis: Redis = opened(options(&url(), &prefix, "one")).await;
    let mut lives = Vec::new();
    for seed in 0..16 {
        let order = kit::Factory::seeded(seed, "orders".into()).placed("ann").0;
        put(&redis, &order).await;
        let entry = format!("{prefix}{{cache}}:order:{}", order.id);
        lives.push(say::<i64>(&url(), &["PTTL", &entry]).await);
    }

    assert!(lives.iter().all(|life| (230_000..=300_000).contains(life)), "{lives:?}");
    lives.dedup();
    assert!(lives.len() > 8, "they do not expire together");
}
