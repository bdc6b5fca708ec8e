//! The store on Redis: instance ids, durability settings, installations and wake-ups.
mod clock_set_back;
mod due_index;
mod full_server;
mod index_audit;
mod instance_id_renewal;
mod lost_leases;
mod rules;
mod saturation;

use std::time::Duration;

use kit::wait::scaled;
use ports::partitions::wake::{WakeChannel, WakeUp};
use ports::partitions::{InstanceId, PartitionLeases, PartitionNo};
use redis::{Durability, RedisStore, StoreOpenError, StoreOptions, delete_throwaway_keys};

use crate::server::{Proxy, Server};
use crate::support::{LIMIT, PARTITIONS, command, prefix, store_options, until, url};

async fn open_error(options: StoreOptions) -> StoreOpenError {
    RedisStore::open(options).await.err().unwrap()
}

#[tokio::test]
async fn an_installation_is_kept_and_another_number_of_partitions_is_refused() {
    let prefix = prefix();
    let absent = RedisStore::open_for_operator(store_options(&url(), &prefix, "operator")).await.err().unwrap();
    assert!(matches!(absent, StoreOpenError::NotInstalled) && !absent.is_temporary(), "{absent}");

    let first = RedisStore::open(store_options(&url(), &prefix, "a")).await.unwrap();
    let second = RedisStore::open(store_options(&url(), &prefix, "b")).await.unwrap();
    let operator = RedisStore::open_for_operator(store_options(&url(), &prefix, "operator")).await.unwrap();

    assert_eq!((first.installation().len(), first.installation()), (36, second.installation()));
    assert_eq!((operator.installation(), operator.partitions()), (first.installation(), PARTITIONS));
    let other = open_error(StoreOptions { partitions: 5, ..store_options(&url(), &prefix, "c") }).await;
    assert!(matches!(other, StoreOpenError::Partitions { configured: 5, installed: PARTITIONS }) && other.is_config());
}

#[tokio::test]
async fn an_instance_id_is_held_until_its_process_ends() {
    let prefix = prefix();
    let first = RedisStore::open(store_options(&url(), &prefix, "one")).await.unwrap();
    first.announce("127.0.0.1:8080").await.unwrap();

    let error = open_error(store_options(&url(), &prefix, "one")).await.to_string();
    assert!(error.contains("127.0.0.1:8080") && error.contains(&std::process::id().to_string()), "{error}");

    first.close().await.unwrap();
    RedisStore::open(store_options(&url(), &prefix, "one")).await.unwrap();
}

#[tokio::test]
async fn a_holder_that_reconnects_keeps_its_instance_id() {
    let server = Server::start().await;
    let proxy = Proxy::to(&server).await;
    let accepted = |url: &str| StoreOptions { durability: Durability::Warn, ..store_options(url, "p:", "one") };
    let holder = RedisStore::open(accepted(&proxy.url())).await.unwrap();
    let boot: String = command(&server.url(), &["HGET", "p:{store}:holder:one", "boot"]).await;
    let connections = async || command::<String>(&server.url(), &["CLIENT", "LIST"]).await;
    proxy.cut();
    until("the holder's connection has gone", async || (!connections().await.contains(&boot)).then_some(())).await;

    let second =
        tokio::spawn(RedisStore::open(StoreOptions { reconnect_time: scaled(LIMIT * 4), ..accepted(&server.url()) }));
    let is_named = |client: &str| client.split(' ').any(|field| field.starts_with("name=") && field != "name=");
    until("the second process has connected", async || connections().await.lines().any(is_named).then_some(())).await;
    proxy.restore();

    let error = second.await.unwrap().err().expect("the holder keeps the instance id");
    assert!(matches!(error, StoreOpenError::Held { .. }), "{error}");
    // Its connection is seen before its own maintenance task knows that the server answers again.
    let instance = InstanceId("one".into());
    until("the holder sends heartbeats again", async || holder.heartbeat(&instance, LIMIT).await.ok()).await;
}

/// As when its host loses power: the server keeps the connections for minutes.
#[tokio::test]
async fn a_holder_that_sends_nothing_loses_its_instance_id() {
    let server = Server::start().await;
    let proxy = Proxy::to(&server).await;
    let accepted = |url: &str| StoreOptions {
        durability: Durability::Warn,
        dead_after: scaled(Duration::from_secs(4)),
        heartbeat_interval: Duration::from_millis(200),
        reconnect_time: Duration::from_millis(200),
        // The holder keeps its silent connection for longer.
        response_timeout: scaled(LIMIT * 2),
        ..store_options(url, "p:", "one")
    };
    let holder = RedisStore::open(accepted(&proxy.url())).await.unwrap();
    let held = open_error(accepted(&server.url())).await;
    assert!(matches!(held, StoreOpenError::Held { .. }), "{held}");

    proxy.silence();
    until("the instance id is free", async || RedisStore::open(accepted(&server.url())).await.ok()).await;
    proxy.restore();

    // The first heartbeats may fail on the silent connection, which does not return the holder.
    let lost = async {
        loop {
            holder.heartbeat(&InstanceId("one".into()), LIMIT).await.unwrap_err();
            if let Ok(lost) = tokio::time::timeout(Duration::from_millis(100), holder.instance_id_taken_over()).await {
                return lost;
            }
        }
    };
    assert_eq!(tokio::time::timeout(scaled(LIMIT) * 10, lost).await.unwrap().instance, "one");
}

#[tokio::test]
async fn a_taken_over_instance_id_is_reported_by_the_next_heartbeat() {
    let prefix = prefix();
    let store = RedisStore::open(store_options(&url(), &prefix, "one")).await.unwrap();
    let (instance, dead_after) = (InstanceId("one".into()), Duration::from_secs(15));
    store.heartbeat(&instance, dead_after).await.unwrap();

    let holder = format!("{prefix}{{store}}:holder:one");
    let _: u32 = command(&url(), &["HSET", &holder, "boot", "another"]).await;

    store.heartbeat(&instance, dead_after).await.unwrap_err();
    assert_eq!(tokio::time::timeout(scaled(LIMIT), store.instance_id_taken_over()).await.unwrap().instance, "one");
}

#[tokio::test]
async fn an_instance_id_that_the_server_has_lost_is_acquired_again() {
    let prefix = prefix();
    let store = RedisStore::open(store_options(&url(), &prefix, "one")).await.unwrap();
    let (one, holder) = (InstanceId("one".into()), format!("{prefix}{{store}}:holder:one"));
    let boot = || async { command::<Option<String>>(&url(), &["HGET", &holder, "boot"]).await };
    let before = boot().await;

    // A replica that has not received the holder is promoted.
    let _: i64 = command(&url(), &["DEL", &holder]).await;
    store.heartbeat(&one, LIMIT).await.unwrap();

    assert_eq!((before.is_some(), boot().await), (true, before));
    let second = open_error(store_options(&url(), &prefix, "one")).await;
    assert!(matches!(second, StoreOpenError::Held { .. }), "{second}");
}

#[tokio::test]
async fn an_installation_that_the_server_has_lost_is_written_again_by_a_heartbeat() {
    let prefix = prefix();
    let store = RedisStore::open(store_options(&url(), &prefix, "one")).await.unwrap();

    for lost in ["meta", "holder:one"] {
        let _: i64 = command(&url(), &["DEL", &format!("{prefix}{{store}}:{lost}")]).await;
    }
    store.heartbeat(&InstanceId("one".into()), LIMIT).await.unwrap();

    let restarted = RedisStore::open(store_options(&url(), &prefix, "two")).await.unwrap();
    assert_eq!((restarted.installation(), restarted.partitions()), (store.installation(), PARTITIONS));
}

#[tokio::test]
async fn an_instance_ends_when_its_redis_has_another_installation() {
    let prefix = prefix();
    let rarely =
        StoreOptions { heartbeat_interval: Duration::from_secs(3_600), ..store_options(&url(), &prefix, "one") };
    let store = RedisStore::open(rarely).await.unwrap();
    let one = InstanceId("one".into());
    for lost in ["meta", "holder:one"] {
        let _: i64 = command(&url(), &["DEL", &format!("{prefix}{{store}}:{lost}")]).await;
    }
    let second = RedisStore::open(store_options(&url(), &prefix, "two")).await.unwrap();

    store.heartbeat(&one, LIMIT).await.unwrap_err();

    let lost = tokio::time::timeout(scaled(LIMIT), store.instance_id_taken_over()).await.unwrap();
    assert!(lost.by.contains(second.installation()) && lost.by.contains(store.installation()), "{lost:?}");
    second.heartbeat(&InstanceId("two".into()), LIMIT).await.unwrap();
    RedisStore::open(store_options(&url(), &prefix, "one")).await.unwrap();
}

#[tokio::test]
async fn a_redis_that_may_lose_data_is_refused_unless_the_options_accept_it() {
    let server = Server::start().await;

    let error = open_error(store_options(&server.url(), "p:", "one")).await;
    assert!(matches!(&error, StoreOpenError::NotDurable(risk) if risk.contains("appendonly")) && !error.is_temporary());

    let accepted = StoreOptions { durability: Durability::Warn, ..store_options(&server.url(), "p:", "one") };
    let store = RedisStore::open(accepted).await.unwrap();
    assert!(store.durability_risk().await.unwrap().is_some());
}

#[tokio::test]
async fn a_server_that_loads_its_append_only_file_is_temporary() {
    let server = Server::start().await;
    let () = command(&server.url(), &["EVAL", "for i = 1, 8000 do redis.call('SET', 'fill:' .. i, i) end", "0"]).await;
    let () = command(&server.url(), &["CONFIG", "SET", "appendonly", "yes"]).await;
    until("the append-only file contains the data", async || {
        let info: String = command(&server.url(), &["INFO", "persistence"]).await;
        info.contains("aof_rewrite_in_progress:0\r\n").then_some(())
    })
    .await;
    let slowly = ["--key-load-delay", "8000", "--loading-process-events-interval-bytes", "1024"];
    let server = server.killed_and_restarted(&[&["--appendonly", "yes"], &slowly[..]].concat()).await;

    let error = open_error(store_options(&server.url(), "p:", "one")).await;
    assert!(error.is_temporary() && error.to_string().contains("loading"), "{error}");

    let () = command(&server.url(), &["CONFIG", "SET", "key-load-delay", "0"]).await;
    until("the data is loaded", async || RedisStore::open(store_options(&server.url(), "p:", "one")).await.ok()).await;
}

#[tokio::test]
async fn an_absent_server_is_temporary_and_an_invalid_url_is_a_config_error() {
    let absent = open_error(store_options("redis://127.0.0.1:1", "p:", "one")).await;
    assert!(matches!(absent, StoreOpenError::Unavailable(_)) && absent.is_temporary(), "{absent}");
    let invalid = open_error(store_options("nonsense", "p:", "one")).await;
    assert!(invalid.is_config() && !invalid.is_temporary(), "{invalid}");
}

/// Notifies until the receiver gets it: a receiver that has just subscribed may miss the first notification.
pub async fn notified(receiver: &RedisStore, sender: &RedisStore, wake_up: WakeUp) {
    until("the notification arrives", async || {
        sender.notify(wake_up);
        let result = tokio::time::timeout(Duration::from_millis(100), receiver.notified()).await;
        result.is_ok_and(|wake_ups| wake_ups.contains(&wake_up)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn wake_ups_reach_other_instances_of_the_same_installation_only() {
    let prefix = prefix();
    let a = RedisStore::open(store_options(&url(), &prefix, "a")).await.unwrap();
    let b = RedisStore::open(store_options(&url(), &prefix, "b")).await.unwrap();
    let other = RedisStore::open(store_options(&url(), &crate::support::prefix(), "c")).await.unwrap();

    notified(&b, &a, WakeUp::Due(PartitionNo(1))).await;
    notified(&a, &b, WakeUp::Free(PartitionNo(3))).await;

    assert!(tokio::time::timeout(Duration::from_millis(100), other.notified()).await.is_err());
}

#[tokio::test]
async fn a_subscriber_subscribes_again_after_its_connection_is_closed() {
    let server = Server::start().await;
    let open = async |name: &str| {
        let options = StoreOptions { durability: Durability::Warn, ..store_options(&server.url(), "p:", name) };
        RedisStore::open(options).await.unwrap()
    };
    let (a, b) = (open("a").await, open("b").await);
    notified(&b, &a, WakeUp::Due(PartitionNo(2))).await;
    notified(&a, &b, WakeUp::Due(PartitionNo(3))).await;

    let closed: i64 = command(&server.url(), &["CLIENT", "KILL", "TYPE", "pubsub"]).await;

    assert_eq!(closed, 2, "both instances were subscribed");
    notified(&b, &a, WakeUp::Due(PartitionNo(2))).await;
}

#[tokio::test]
async fn a_subscriber_subscribes_again_when_its_connection_is_silent() {
    let server = Server::start().await;
    let proxy = Proxy::to(&server).await;
    let open = async |url: String, name: &str| {
        let options = StoreOptions {
            durability: Durability::Warn,
            heartbeat_interval: Duration::from_millis(50),
            response_timeout: scaled(Duration::from_secs(1)),
            ..store_options(&url, "p:", name)
        };
        RedisStore::open(options).await.unwrap()
    };
    let (a, b) = (open(server.url(), "a").await, open(proxy.url(), "b").await);
    notified(&b, &a, WakeUp::Due(PartitionNo(2))).await;

    proxy.silence();

    notified(&b, &a, WakeUp::Due(PartitionNo(1))).await;
}

#[tokio::test]
async fn throwaway_keys_are_deleted_and_those_of_another_installation_stay() {
    let prefix = prefix();
    let (kept, throwaway) = (format!("{prefix}kept:"), format!("{prefix}bench[1]:"));
    for prefix in [&kept, &throwaway] {
        RedisStore::open(store_options(&url(), prefix, "one")).await.unwrap().close().await.unwrap();
    }

    delete_throwaway_keys(&store_options(&url(), &throwaway, "operator")).await.unwrap();

    let absent = RedisStore::open_for_operator(store_options(&url(), &throwaway, "operator")).await.err().unwrap();
    assert!(matches!(absent, StoreOpenError::NotInstalled), "{absent}");
    RedisStore::open_for_operator(store_options(&url(), &kept, "operator")).await.unwrap();
    let all = delete_throwaway_keys(&store_options(&url(), "", "operator")).await.unwrap_err();
    assert!(all.is_config(), "{all}");
}

#[tokio::test]
async fn instances_are_ordered_by_the_bytes_of_their_ids() {
    let store = RedisStore::open(store_options(&url(), &prefix(), "b")).await.unwrap();
    let ordered = ["B", "a", "a-b", "aa", "b", "\u{e4}"].map(|name| InstanceId(name.into()));
    for instance in ordered.iter().rev() {
        store.heartbeat(instance, LIMIT * 60).await.unwrap();
    }

    let members = store.survey(&ordered[0]).await.unwrap().members;
    assert_eq!(members.iter().map(|member| &member.instance).collect::<Vec<_>>(), ordered.iter().collect::<Vec<_>>());
    for (rank, instance) in (0..).zip(&ordered) {
        assert_eq!(store.heartbeat(instance, LIMIT * 60).await.unwrap().rank, rank, "{instance}");
    }
}
