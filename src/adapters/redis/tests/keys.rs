//! Idempotency keys: whose they are, when their holder is dead, and what earlier services left.
use std::time::Duration;

use domain::OrderId;
use ports::Error;
use ports::idempotency::{BeginOutcome, Idempotency};
use redis::Redis;

use crate::support::{FINGERPRINT, LOCK, ann, opened, options, orders, prefix, say, until, url};

const KEEP: Duration = Duration::from_secs(3_600);

async fn begin(redis: &Redis) -> BeginOutcome {
    redis.begin(&ann(), "key", &FINGERPRINT, LOCK).await.unwrap()
}

fn key(prefix: &str) -> String {
    format!("{prefix}{{keys}}:key:3:ann:key")
}

fn made(order_id: OrderId) -> BeginOutcome {
    BeginOutcome::Completed { order_id, fingerprint: Some(FINGERPRINT) }
}

#[tokio::test]
async fn a_restart_frees_the_keys_of_its_former_life_at_once() {
    let prefix = prefix();
    let one = opened(options(&url(), &prefix, "one")).await;
    let other = opened(options(&url(), &prefix, "other")).await;
    assert_eq!((begin(&one).await, begin(&other).await), (BeginOutcome::Acquired, BeginOutcome::InProgress));

    // The former life is not told: it may be dead or on its way.
    let _again = opened(options(&url(), &prefix, "one")).await;

    until("the key is free", async || (begin(&other).await == BeginOutcome::Acquired).then_some(())).await;
}

#[tokio::test]
async fn keys_of_a_process_without_a_sign_of_life_are_free() {
    let prefix = prefix();
    let one = opened(options(&url(), &prefix, "one")).await;
    let other = opened(options(&url(), &prefix, "other")).await;
    assert_eq!((begin(&one).await, begin(&other).await), (BeginOutcome::Acquired, BeginOutcome::InProgress));
    let sign = format!("{prefix}{{keys}}:instance:one");
    assert!((1..=15_000).contains(&say::<i64>(&url(), &["PTTL", &sign]).await));

    let _: i64 = say(&url(), &["DEL", &sign]).await;
    assert_eq!(begin(&other).await, BeginOutcome::Acquired);

    // Who was taken for dead and is not changes nothing of what is not his any more.
    one.abandon(&ann(), "key").await.unwrap();
    one.complete(&ann(), "key", &FINGERPRINT, orders()[0].id, KEEP).await.unwrap();
    assert_eq!(begin(&one).await, BeginOutcome::InProgress);
    other.complete(&ann(), "key", &FINGERPRINT, orders()[0].id, KEEP).await.unwrap();
    assert_eq!(begin(&one).await, made(orders()[0].id));
}

#[tokio::test]
async fn who_leaves_in_order_frees_its_keys() {
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
async fn a_sign_of_life_is_renewed_and_ends_with_the_last_handle() {
    let prefix = prefix();
    let mut brisk = options(&url(), &prefix, "one");
    (brisk.heartbeat, brisk.dead_after) = (Duration::from_millis(20), Duration::from_millis(400));
    let one = opened(brisk).await;
    let other = opened(options(&url(), &prefix, "other")).await;
    assert_eq!(begin(&one).await, BeginOutcome::Acquired);

    let begun = std::time::Instant::now();
    until("its first sign would have run out", async || {
        assert_eq!(begin(&other).await, BeginOutcome::InProgress);
        (begun.elapsed() > Duration::from_millis(900)).then_some(())
    })
    .await;
    drop(one);

    until("the key is free", async || (begin(&other).await == BeginOutcome::Acquired).then_some(())).await;
}

#[tokio::test]
async fn what_earlier_services_left_is_understood() {
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
        let () = say(&url(), &["SET", &key(&prefix), &value]).await;
        assert_eq!(begin(&redis).await, expected, "{value}");
        let left: i64 = say(&url(), &["PTTL", &key(&prefix)]).await;
        assert_eq!(left > 0, expected == BeginOutcome::InProgress, "what runs for ever is given an end");
    }
}

#[tokio::test]
async fn a_value_of_a_later_format_is_left_to_the_durable_mark() {
    let prefix = prefix();
    let redis = opened(options(&url(), &prefix, "one")).await;
    let () = say(&url(), &["SET", &key(&prefix), "v4|SOMETHING"]).await;

    let begun = redis.begin(&ann(), "key", &FINGERPRINT, LOCK).await;

    assert!(matches!(begun, Err(Error::Broken(_))), "{begun:?}");
    assert_eq!(say::<String>(&url(), &["GET", &key(&prefix)]).await, "v4|SOMETHING");
}

#[tokio::test]
async fn a_completed_key_that_names_a_lost_order_is_replaced() {
    let redis = opened(options(&url(), &prefix(), "one")).await;
    let make = kit::Factory::seeded(9, "orders".into());
    let (lost, found) = (make.placed("ann").0.id, make.placed("ann").0.id);
    redis.complete(&ann(), "key", &FINGERPRINT, lost, KEEP).await.unwrap();
    assert_eq!(begin(&redis).await, made(lost));

    redis.complete(&ann(), "key", &FINGERPRINT, found, KEEP).await.unwrap();

    assert_eq!(begin(&redis).await, made(found));
}
