//! A server whose clock was set back: times in the future that a dead instance left do not keep its partitions without an owner.
use std::time::Duration;

use ports::partitions::{AcquireReason, Acquisition, InstanceId, PartitionLeases};
use redis::RedisStore;

use crate::store_worker::{HOUR, P0};
use crate::support::{command, prefix, store_options, url};

const DEAD_AFTER: Duration = Duration::from_secs(600);

#[tokio::test]
async fn dead_owner_from_before_the_clock_was_set_back_loses_its_leases() {
    let prefix = prefix();
    let store = RedisStore::open(store_options(&url(), &prefix, "one")).await.unwrap();
    let (dead, one) = (InstanceId("dead".into()), InstanceId("one".into()));
    let acquire = async |owner| store.acquire(P0, owner, AcquireReason::Unowned, None, HOUR).await.unwrap();
    let members = format!("{prefix}{{store}}:members");
    let is_free = async || store.survey(&one).await.unwrap().free.iter().any(|free| free.partition == P0);
    let seen_at = async || -> i64 {
        let heartbeat: String = command(&url(), &["HGET", &members, "dead"]).await;
        heartbeat.split_once(' ').unwrap().0.parse().unwrap()
    };
    let set_seen_at = async |millis: i64| {
        let heartbeat = format!("{millis} {}", DEAD_AFTER.as_millis());
        let _: i64 = command(&url(), &["HSET", &members, "dead", &heartbeat]).await;
    };
    store.heartbeat(&dead, DEAD_AFTER).await.unwrap();
    assert!(matches!(acquire(&dead).await, Acquisition::Acquired(_)));

    // The clock is set back by an hour: the heartbeat and the lease lie in the future.
    set_seen_at(seen_at().await + HOUR.as_millis() as i64).await;
    store.heartbeat(&one, DEAD_AFTER).await.unwrap();

    assert!(seen_at().await <= store.server_time().await.unwrap().millis());
    assert!(!is_free().await && matches!(acquire(&one).await, Acquisition::Held { .. }), "it may be alive");

    set_seen_at(seen_at().await - DEAD_AFTER.as_millis() as i64).await;
    assert!(is_free().await);
    assert!(matches!(acquire(&one).await, Acquisition::Acquired(_)));
}

#[tokio::test]
async fn heartbeat_less_than_a_second_ahead_stays() {
    let prefix = prefix();
    let store = RedisStore::open(store_options(&url(), &prefix, "one")).await.unwrap();
    let members = format!("{prefix}{{store}}:members");
    let ahead = format!("{} 600000", store.server_time().await.unwrap().millis() + 900);
    let _: i64 = command(&url(), &["HSET", &members, "other", &ahead]).await;

    store.heartbeat(&InstanceId("one".into()), DEAD_AFTER).await.unwrap();

    assert_eq!(command::<String>(&url(), &["HGET", &members, "other"]).await, ahead);
}
