//! A server that has reached `maxmemory`: it answers reads, also after a lost connection.
use kit::Factory;
use ports::Error;
use ports::orders::OrderStore;
use ports::probe::Probe;
use redis::{Durability, RedisStore, RedisStoreProbe, StoreOptions};

use crate::server::{Proxy, Server};
use crate::store_worker::{P0, order_with_changes};
use crate::support::{command, store_options, until};

#[tokio::test]
async fn a_full_server_is_read_again_after_a_lost_connection() {
    let server = Server::start().await;
    let proxy = Proxy::to(&server).await;
    let options = StoreOptions { durability: Durability::Warn, ..store_options(&proxy.url(), "p:", "one") };
    let store = RedisStore::open(options).await.unwrap();
    let (probe, factory) = (RedisStoreProbe(store.clone()), Factory::seeded(1, "orders".into()));
    let order = order_with_changes(&store, &factory, 0).await;

    let () = command(&server.url(), &["CONFIG", "SET", "maxmemory", "1"]).await;
    proxy.cut();
    until("the server is marked unavailable", async || store.find(order.id).await.err()).await;
    proxy.restore();
    let found = until("the order is read", async || store.find(order.id).await.ok()).await;

    assert_eq!(found.map(|order| order.id), Some(order.id));
    let checked = probe.check().await;
    assert!(matches!(checked, Err(Error::Full(_))), "{checked:?}");
    let refused = store.commit(factory.creation("ann", P0)).await;
    assert!(matches!(refused, Err(Error::Full(_))), "{refused:?}");

    let () = command(&server.url(), &["CONFIG", "SET", "maxmemory", "0"]).await;
    until("the probe succeeds", async || probe.check().await.ok()).await;
    order_with_changes(&store, &factory, 0).await;
}
