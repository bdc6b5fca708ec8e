//! The saturation of the store: how many calls its Redis has not answered.
use futures::future::join_all;
use ports::probe::Probe;
use redis::{Durability, RedisStore, RedisStoreProbe, StoreOptions};

use crate::server::Server;
use crate::support::{store_options, until};

/// The default thresholds of `backpressure.saturation`.
const ELEVATED: f64 = 0.75;
const CRITICAL: f64 = 0.90;
/// Creates and changes that are admitted in a burst, and a claim of each partition.
const USUAL_CALLS: usize = 256 + 64;
/// As many calls as [`StoreOptions`] permits.
const CALLS_MAX: usize = 512;

/// The frozen server keeps the calls in flight, so that their number does not depend on its speed.
#[tokio::test]
async fn usual_concurrency_is_no_saturation_and_a_full_queue_is_critical() {
    let server = Server::start().await;
    let options = StoreOptions { durability: Durability::Warn, ..store_options(&server.url(), "p:", "one") };
    let store = RedisStore::open(options).await.unwrap();
    let probe = RedisStoreProbe(store.clone());
    let saturation = || probe.saturation().unwrap();
    let begin = |calls: usize| {
        let call = |store: RedisStore| tokio::spawn(async move { store.server_time().await });
        (0..calls).map(|_| call(store.clone())).collect::<Vec<_>>()
    };
    let share = |calls: usize| calls as f64 / CALLS_MAX as f64;
    server.freeze();

    let usual = begin(USUAL_CALLS);
    until("all calls are in flight", async || (saturation() >= share(USUAL_CALLS)).then_some(())).await;
    let with_usual_calls = saturation();
    let more = begin(CALLS_MAX);
    until("the queue is full", async || (saturation() >= CRITICAL).then_some(())).await;
    server.thaw();

    assert!(with_usual_calls < ELEVATED, "{with_usual_calls}");
    for call in join_all(usual.into_iter().chain(more)).await {
        call.unwrap().unwrap();
    }
    until("the queue is empty again", async || (saturation() < share(USUAL_CALLS)).then_some(())).await;
}
