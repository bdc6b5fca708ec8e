//! The renewal of the instance id of a process that sends no heartbeats, because it relays nothing.
use std::time::Duration;

use kit::wait::scaled;
use redis::{Durability, RedisStore, StoreOpenError, StoreOptions};

use crate::server::Server;
use crate::support::{LIMIT, command, prefix, store_options, until, url};

#[tokio::test]
async fn a_holder_without_heartbeats_keeps_its_instance_id_and_gets_no_quota() {
    let server = Server::start().await;
    // Without CLIENT LIST, a second process judges the holder by its renewals alone.
    let _: String = command(&server.url(), &["ACL", "SETUSER", "default", "-client"]).await;
    let dead_after = scaled(Duration::from_secs(4));
    let options = || StoreOptions {
        durability: Durability::Warn,
        heartbeat_interval: Duration::from_millis(20),
        dead_after,
        reconnect_time: Duration::ZERO,
        ..store_options(&server.url(), "p:", "one")
    };
    let seen = async || command::<u64>(&server.url(), &["HGET", "p:{store}:holder:one", "seen"]).await;
    let _holder = RedisStore::open(options()).await.unwrap();

    let opened = seen().await;
    let silence = u64::try_from(dead_after.as_millis()).unwrap();
    until("the holder is older than a silent one may be", async || (seen().await > opened + silence).then_some(()))
        .await;

    let error = RedisStore::open(options()).await.err().expect("the holder keeps the instance id");
    assert!(matches!(error, StoreOpenError::Held { .. }), "{error}");
    let members: u32 = command(&server.url(), &["HLEN", "p:{store}:members"]).await;
    assert_eq!(members, 0);
}

#[tokio::test]
async fn a_holder_without_heartbeats_notices_that_its_instance_id_was_taken_over() {
    let prefix = prefix();
    let often = StoreOptions { heartbeat_interval: Duration::from_millis(20), ..store_options(&url(), &prefix, "one") };
    let store = RedisStore::open(often).await.unwrap();

    let holder = format!("{prefix}{{store}}:holder:one");
    let _: u32 = command(&url(), &["HSET", &holder, "boot", "another"]).await;

    assert_eq!(tokio::time::timeout(scaled(LIMIT), store.instance_id_taken_over()).await.unwrap().instance, "one");
    let boot: String = command(&url(), &["HGET", &holder, "boot"]).await;
    assert_eq!(boot, "another");
}

#[tokio::test]
async fn a_closed_store_does_not_renew_its_instance_id() {
    let prefix = prefix();
    let often = StoreOptions { heartbeat_interval: Duration::from_millis(1), ..store_options(&url(), &prefix, "one") };
    let store = RedisStore::open(often).await.unwrap();

    store.close().await.unwrap();

    let holders: u32 = command(&url(), &["EXISTS", &format!("{prefix}{{store}}:holder:one")]).await;
    assert_eq!(holders, 0);
}
