//! Idempotency keys: their holder, the death of their holder, and the values of earlier releases.
use std::cell::Cell;
use std::time::{Duration, Instant};

use domain::OrderId;
use kit::wait::scaled;
use ports::Error;
use ports::orders::idempotency::{BeginOutcome, Idempotency};
use redis::Redis;

use crate::support::{FINGERPRINT, LOCK, ann, command, opened, options, orders, prefix, until, url};

const KEEP: Duration = Duration::from_secs(3_600);

async fn begin(redis: &Redis) -> BeginOutcome {
    redis.begin(&ann(), "key", &FINGERPRINT, LOCK).await.unwrap()
}

fn key(prefix: &str) -> String {
    format!("{prefix}{{keys}}:key:3:ann:key")
}

fn completed(order_id: OrderId) -> BeginOutcome {
    BeginOutcome::Completed { order_id, fingerprint: Some(FINGERPRINT) }
}

#[tokio::test]
async fn a_restart_frees_the_keys_of_the_previous_run_at_once() {
    let prefix = prefix();
    let one = opened(options(&url(), &prefix, "one")).await;
    let other = opened(options(&url(), &prefix, "other")).await;
    assert_eq!((begin(&one).await, begin(&other).await), (BeginOutcome::Acquired, BeginOutcome::InProgress));

    // The previous run stays open: it may be dead, or its shutdown may not have finished.
    let _again = opened(options(&url(), &prefix, "one")).await;

    until("the key is free", async || (begin(&other).await == BeginOutcome::Acquired).then_some(())).await;
}

#[tokio::test]
async fn keys_of_a_process_without_a_heartbeat_are_free() {
    let prefix = prefix();
    let one = options(&url(), &prefix, "one");
    let dead_after = i64::try_from(one.dead_after.as_millis()).unwrap();
    let one = opened(one).await;
    let other = opened(options(&url(), &prefix, "other")).await;
    assert_eq!((begin(&one).await, begin(&other).await), (BeginOutcome::Acquired, BeginOutcome::InProgress));
    let heartbeat = format!("{prefix}{{keys}}:instance:one");
    assert!((1..=dead_after).contains(&command::<i64>(&url(), &["PTTL", &heartbeat]).await));

    // Its process renews it now and then.
    until("the key is free", async || {
        let _: i64 = command(&url(), &["DEL", &heartbeat]).await;
        (begin(&other).await == BeginOutcome::Acquired).then_some(())
    })
    .await;

    // A process that was judged dead and lives does not change a key that it no longer holds.
    one.abandon(&ann(), "key").await.unwrap();
    one.complete(&ann(), "key", &FINGERPRINT, orders()[0].id, KEEP).await.unwrap();
    assert_eq!(begin(&one).await, BeginOutcome::InProgress);
    other.complete(&ann(), "key", &FINGERPRINT, orders()[0].id, KEEP).await.unwrap();
    assert_eq!(begin(&one).await, completed(orders()[0].id));
}

#[tokio::test]
async fn closing_a_handle_frees_its_keys() {
    let prefix = prefix();
    let one = opened(options(&url(), &prefix, "one")).await;
    let other = opened(options(&url(), &prefix, "other")).await;
    assert_eq!((begin(&one).await, begin(&other).await), (BeginOutcome::Acquired, BeginOutcome::InProgress));

    one.close().await;
    one.close().await;

    assert_eq!(begin(&other).await, BeginOutcome::Acquired);
    assert!(one.begin(&ann(), "key", &FINGERPRINT, LOCK).await.is_err());
}

#[tokio::test]
async fn the_heartbeat_is_renewed_until_the_last_handle_is_dropped() {
    let prefix = prefix();
    let mut frequent = options(&url(), &prefix, "one");
    let dead_after = scaled(Duration::from_millis(1_500));
    (frequent.heartbeat_interval, frequent.dead_after) = (Duration::from_millis(50), dead_after);
    let one = opened(frequent).await;
    let other = opened(options(&url(), &prefix, "other")).await;
    assert_eq!(begin(&one).await, BeginOutcome::Acquired);

    let (start, last) = (Cell::new(Instant::now()), Cell::new(Instant::now()));
    until("its first heartbeat would have expired", async || {
        if begin(&other).await == BeginOutcome::Acquired {
            assert!(last.get().elapsed() > dead_after / 2, "its process was not paused, and has lost its key");
            other.abandon(&ann(), "key").await.unwrap();
            assert_eq!(begin(&one).await, BeginOutcome::Acquired);
            start.set(Instant::now());
        }
        last.set(Instant::now());
        (start.get().elapsed() > dead_after * 2).then_some(())
    })
    .await;
    drop(one);

    until("the key is free", async || (begin(&other).await == BeginOutcome::Acquired).then_some(())).await;
}

#[tokio::test]
async fn values_of_earlier_releases_are_understood() {
    let prefix = prefix();
    let redis = opened(options(&url(), &prefix, "one")).await;
    let id = orders()[0].id;
    let cases = [
        (id.to_string(), BeginOutcome::Completed { order_id: id, fingerprint: None }),
        ("IN_FLIGHT:host-1".into(), BeginOutcome::InProgress),
        (format!("V2|COMPLETED|{id}|1700000000000"), BeginOutcome::Completed { order_id: id, fingerprint: None }),
        ("V2|IN_PROGRESS||1700000000000".into(), BeginOutcome::InProgress),
    ];
    for (value, expected) in cases {
        let () = command(&url(), &["SET", &key(&prefix), &value]).await;
        assert_eq!(begin(&redis).await, expected, "{value}");
        let left: i64 = command(&url(), &["PTTL", &key(&prefix)]).await;
        assert_eq!(left > 0, expected == BeginOutcome::InProgress, "a value without an expiry is given one");
    }
}

#[tokio::test]
async fn a_value_of_a_later_format_is_not_changed() {
    let prefix = prefix();
    let redis = opened(options(&url(), &prefix, "one")).await;
    let () = command(&url(), &["SET", &key(&prefix), "v4|SOMETHING"]).await;

    let result = redis.begin(&ann(), "key", &FINGERPRINT, LOCK).await;

    assert!(matches!(result, Err(Error::Broken(_))), "{result:?}");
    assert_eq!(command::<String>(&url(), &["GET", &key(&prefix)]).await, "v4|SOMETHING");
}

#[tokio::test]
async fn a_completed_key_that_names_a_lost_order_is_replaced() {
    let redis = opened(options(&url(), &prefix(), "one")).await;
    let factory = kit::Factory::seeded(9, "orders".into());
    let (lost, found) = (factory.placed("ann").0.id, factory.placed("ann").0.id);
    redis.complete(&ann(), "key", &FINGERPRINT, lost, KEEP).await.unwrap();
    assert_eq!(begin(&redis).await, completed(lost));

    redis.complete(&ann(), "key", &FINGERPRINT, found, KEEP).await.unwrap();

    assert_eq!(begin(&redis).await, completed(found));
}

/// Options that find an earlier service's keys under a prefix of the test's own.
fn with_legacy_keys(prefix: &str) -> redis::Options {
    let mut options = options(&url(), prefix, "one");
    options.legacy_key_prefix = Some(format!("{prefix}idempotency:"));
    options
}

#[tokio::test]
async fn a_key_that_an_earlier_service_completed_returns_its_order() {
    let prefix = prefix();
    let (redis, order_id) = (opened(with_legacy_keys(&prefix)).await, orders()[0].id);
    let legacy = format!("{prefix}idempotency:key");
    for value in [order_id.to_string(), format!("V2|COMPLETED|{order_id}|17"), format!("COMPLETED:{order_id}")] {
        let () = command(&url(), &["SET", &legacy, &value]).await;
        let expected = BeginOutcome::Completed { order_id, fingerprint: None };
        assert_eq!(begin(&redis).await, expected, "{value}");
        assert_eq!(begin(&redis).await, expected, "the own key was released");
        assert_eq!(command::<String>(&url(), &["GET", &legacy]).await, value, "the key is not changed");
    }

    // Without the prefix, or where this service has used the key itself, the earlier service's key is not read.
    let other = opened(options(&url(), &prefix, "two")).await;
    assert_eq!(begin(&other).await, BeginOutcome::Acquired);
    other.complete(&ann(), "key", &FINGERPRINT, orders()[1].id, KEEP).await.unwrap();
    assert_eq!(begin(&redis).await, completed(orders()[1].id));
}

#[tokio::test]
async fn a_key_that_an_earlier_service_holds_is_in_progress_until_it_expires() {
    let prefix = prefix();
    let redis = opened(with_legacy_keys(&prefix)).await;
    let legacy = format!("{prefix}idempotency:key");
    for value in ["IN_FLIGHT:host-1", "V2|IN_PROGRESS||17", "IN_PROGRESS"] {
        let () = command(&url(), &["SET", &legacy, value]).await;
        assert_eq!(begin(&redis).await, BeginOutcome::InProgress, "{value}");
        let left: i64 = command(&url(), &["PTTL", &legacy]).await;
        assert!((1..=LOCK.as_millis() as i64).contains(&left), "{value} would block its key for ever: {left}");
    }
    let () = command(&url(), &["SET", &legacy, "IN_FLIGHT:host-1", "PX", "50000"]).await;
    assert_eq!(begin(&redis).await, BeginOutcome::InProgress);
    assert!(command::<i64>(&url(), &["PTTL", &legacy]).await <= 50_000, "an expiry of its own is kept");

    let _: i64 = command(&url(), &["DEL", &legacy]).await;

    assert_eq!(begin(&redis).await, BeginOutcome::Acquired);
}

#[tokio::test]
async fn an_unknown_value_of_an_earlier_service_is_ignored() {
    let prefix = prefix();
    let redis = opened(with_legacy_keys(&prefix)).await;
    let () = command(&url(), &["SET", &format!("{prefix}idempotency:key"), "{\"state\":7}"]).await;

    assert_eq!(begin(&redis).await, BeginOutcome::Acquired);
    redis.complete(&ann(), "key", &FINGERPRINT, orders()[0].id, KEEP).await.unwrap();
    assert_eq!(begin(&redis).await, completed(orders()[0].id));
}
