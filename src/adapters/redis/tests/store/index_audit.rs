//! The audit of the outbox's indexes: it adds rows that an earlier release wrote, and repairs entries that disagree with the rows.
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis as client;
use kit::Factory;
use kit::wait::scaled;
use ports::outbox::{
    BatchOutcome, ClaimKind, ClaimOutcome, Disposition, FencedOutcome, OutboxStore, PoisonPolicy, RowStatus,
};
use ports::probe::Probe;
use redis::{Durability, RedisStore, RedisStoreProbe, StoreOptions};

use crate::server::Server;
use crate::store_worker::{ALL, HOUR, Worker, order_with_changes, rows};
use crate::support::{command, connection, prefix, store_options, until, url};

/// Options without the background audit, so that a test sees what its own audit repairs.
fn unaudited(prefix: &str, instance: &str) -> StoreOptions {
    StoreOptions { audit_interval: Duration::ZERO, ..store_options(&url(), prefix, instance) }
}

/// Deletes every key of a store that begins with `name`.
async fn delete(prefix: &str, name: &str) {
    let keys: Vec<String> = command(&url(), &["KEYS", &format!("{prefix}{{store}}:{name}*")]).await;
    for key in keys {
        let _: i64 = command(&url(), &["DEL", &key]).await;
    }
}

#[tokio::test]
async fn rows_of_an_earlier_release_are_indexed_at_the_start() {
    let prefix = prefix();
    let store = RedisStore::open(unaudited(&prefix, "one")).await.unwrap();
    let factory = Factory::seeded(1, "orders".into());
    // Rows 1 to 8: a key that waits for its retry, one that is parked with its key, one parked without it, one in flight.
    for _ in 0..4 {
        order_with_changes(&store, &factory, 1).await;
    }
    let mut worker = Worker::acquire(&store, "one", HOUR).await;
    let mut batch = worker.claim(ALL).await;
    let excluded = [(1, Disposition::Retry(HOUR)), (3, Disposition::ParkKey), (5, Disposition::ParkRow)];
    worker.exclude(&mut batch, &excluded).await;
    let before = rows(&store).await;

    for index in ["queue:", "due:"] {
        delete(&prefix, index).await;
    }
    let _: i64 = command(&url(), &["HDEL", &format!("{prefix}{{store}}:meta"), "index_version"]).await;
    let later = RedisStore::open(unaudited(&prefix, "two")).await.unwrap();

    assert_eq!(rows(&later).await, before, "rows are not changed");
    assert_eq!(later.audit_indexes().await.unwrap(), 0, "the index is complete");
    worker.settle(&batch).await;
    assert_eq!(worker.drain().await, [6], "row 2 waits behind row 1, row 4 behind row 3");
    use RowStatus::{Failed, Parked, Pending, Sent};
    let statuses: Vec<_> = rows(&later).await.iter().map(|row| row.status).collect();
    assert_eq!(statuses, [Failed, Pending, Parked, Pending, Parked, Sent, Sent, Sent]);
}

/// Repairs one damage of the indexes of six rows: 1, with 2 behind it, and 3 are due again, 4 and 5 are SENT, 6 waits for its retry.
/// Returns the number of repairs and what is sent then.
async fn repaired(damage: &[&[&str]]) -> (u64, Vec<i64>) {
    let prefix = prefix();
    let store = RedisStore::open(unaudited(&prefix, "one")).await.unwrap();
    let factory = Factory::seeded(1, "orders".into());
    let mut worker = Worker::acquire(&store, "one", HOUR).await;
    let mut orders = Vec::new();
    for changes in [1, 0, 1, 0] {
        orders.push(order_with_changes(&store, &factory, changes).await.id.to_string());
    }
    let mut batch = worker.claim(ALL).await;
    worker.exclude(&mut batch, &[(6, Disposition::Retry(HOUR))]).await;
    let released = [(1, Disposition::Retry(Duration::ZERO)), (3, Disposition::Retry(Duration::ZERO))];
    worker.exclude(&mut batch, &released).await;
    worker.settle(&batch).await;
    let mut all = client::pipe();
    for words in damage {
        let words: Vec<String> = words.iter().map(|word| word.replace("KEY", &orders[0])).collect();
        all.cmd(&words[0]).arg(format!("{prefix}{{store}}:{}", words[1])).arg(&words[2..]).ignore();
    }
    let () = all.query_async(&mut connection(&url()).await).await.unwrap();

    let repairs = store.audit_indexes().await.unwrap();

    assert_eq!(store.audit_indexes().await.unwrap(), 0, "{damage:?} is repaired at once");
    let lease = format!("{prefix}{{store}}:lease:0");
    worker.fence.counter = command::<String>(&url(), &["HGET", &lease, "counter"]).await.parse().unwrap();
    let sent = worker.drain().await;
    assert!(store.depth().await.unwrap().in_flight == 0, "{damage:?}");
    (repairs, sent)
}

#[tokio::test]
async fn an_index_that_disagrees_with_the_rows_is_repaired() {
    let cases: [(&[&[&str]], u64); 12] = [
        (&[&["ZREM", "all", "1"]], 1),
        (&[&["ZREM", "due:0", "KEY"]], 1),
        (&[&["DEL", "due:0"]], 3),
        (&[&["DEL", "queue:KEY"]], 2),
        (&[&["ZREM", "queue:KEY", "1"]], 1),
        (&[&["ZREM", "live:0", "1"], &["ZREM", "queue:KEY", "1"], &["ZREM", "all", "1"]], 3),
        (&[&["ZADD", "live:0", "4", "4"]], 1),
        (&[&["ZADD", "queue:KEY", "0", "4"]], 1),
        (&[&["ZADD", "flight:0", "2", "2"]], 1),
        (&[&["ZADD", "live:0", "99", "99"], &["ZADD", "status:PENDING", "99", "99"]], 2),
        (&[&["ZADD", "status:SENT", "2", "2"], &["ZADD", "sent", "0", "2"]], 2),
        (&[&["HSET", "row:2", "s", "IN_FLIGHT", "tok", "1"]], 1),
    ];
    for (damage, least) in cases {
        let (repairs, sent) = repaired(damage).await;
        assert!(repairs >= least, "{damage:?}: {repairs} repairs");
        assert_eq!(sent, [1, 3, 2], "{damage:?}");
    }
}

#[tokio::test]
async fn row_that_was_not_claimed_does_not_leave_with_a_batch() {
    for end in ["settle", "published", "claimer died", "not sent", "exclude"] {
        let prefix = prefix();
        let store = RedisStore::open(unaudited(&prefix, "one")).await.unwrap();
        let order = order_with_changes(&store, &Factory::seeded(1, "orders".into()), 1).await;
        let mut worker = Worker::acquire(&store, "one", HOUR).await;
        let mut batch = worker.claim(1).await;
        let unclaimed = rows(&store).await[1].clone();
        let flight = format!("{prefix}{{store}}:flight:0");
        let _: i64 = command(&url(), &["ZADD", &flight, "2", "2"]).await;

        let outcome = match end {
            "published" => Some(BatchOutcome::Published),
            "claimer died" => Some(BatchOutcome::ClaimerDied),
            "not sent" => Some(BatchOutcome::NotSent),
            _ => None,
        };
        if let Some(outcome) = outcome {
            let resolution =
                store.resolve(&worker.fence, batch.token, outcome, &PoisonPolicy::default()).await.unwrap();
            assert!(matches!(resolution.closed, FencedOutcome::Done { rows: 1, .. }), "{end}: {resolution:?}");
        } else {
            if end == "exclude" {
                worker.exclude(&mut batch, &[(1, Disposition::Retry(HOUR))]).await;
            }
            worker.settle(&batch).await;
        }

        assert_eq!(rows(&store).await[1], unclaimed, "{end}: a row of {} that was never sent", order.id);
        assert_eq!(store.audit_indexes().await.unwrap(), 1, "{end}: the entry of the index");
    }
}

#[tokio::test]
async fn the_background_audit_repairs_and_counts() {
    let prefix = prefix();
    let metrics = telemetry::Metrics::new();
    let options = StoreOptions {
        audit_interval: Duration::from_millis(10),
        metrics: Some(Arc::clone(&metrics)),
        ..store_options(&url(), &prefix, "one")
    };
    let store = RedisStore::open(options).await.unwrap();
    order_with_changes(&store, &Factory::seeded(1, "orders".into()), 0).await;
    let mut worker = Worker::acquire(&store, "one", HOUR).await;
    assert_eq!(metrics.outbox_repairs_total.get(), 0);

    delete(&prefix, "due:").await;
    until("the key is due again", async || (metrics.outbox_repairs_total.get() == 1).then_some(())).await;

    assert_eq!(worker.drain().await, [1]);
}

#[tokio::test]
async fn of_several_instances_one_audits_until_it_is_gone() {
    let prefix = prefix();
    let auditing = |name: &str, metrics: &Arc<telemetry::Metrics>| StoreOptions {
        // An auditor that is paused for five intervals is replaced.
        audit_interval: scaled(Duration::from_millis(800)),
        metrics: Some(Arc::clone(metrics)),
        ..store_options(&url(), &prefix, name)
    };
    let [first, second] = [(), ()].map(|()| telemetry::Metrics::new());
    let one = RedisStore::open(auditing("one", &first)).await.unwrap();
    let auditor = format!("{prefix}{{store}}:auditor");
    until("one audits", async || command::<Option<String>>(&url(), &["GET", &auditor]).await).await;
    let two = RedisStore::open(auditing("two", &second)).await.unwrap();
    let factory = Factory::seeded(1, "orders".into());
    let damage = async || {
        order_with_changes(&two, &factory, 0).await;
        delete(&prefix, "due:").await;
    };

    damage().await;
    until("the first repairs", async || (first.outbox_repairs_total.get() >= 1).then_some(())).await;
    assert_eq!(second.outbox_repairs_total.get(), 0);
    one.close().await.unwrap();
    damage().await;

    until("the second repairs", async || (second.outbox_repairs_total.get() >= 1).then_some(())).await;
}

#[tokio::test]
async fn a_damaged_index_is_corrected_also_by_the_claim_that_meets_it() {
    let prefix = prefix();
    let store = RedisStore::open(unaudited(&prefix, "one")).await.unwrap();
    let order = order_with_changes(&store, &Factory::seeded(1, "orders".into()), 1).await;
    let mut worker = Worker::acquire(&store, "one", HOUR).await;
    let name = |index: &str| format!("{prefix}{{store}}:{index}");
    let _: i64 = command(&url(), &["ZADD", &name(&format!("queue:{}", order.id)), "0", "77"]).await;
    let _: i64 = command(&url(), &["ZADD", &name("due:0"), "5", "no such key"]).await;

    assert_eq!(worker.drain().await, [1, 2]);

    assert!(matches!(worker.try_claim(ALL, ClaimKind::Ordinary).await, ClaimOutcome::NoneDue { next_due: None, .. }));
    let left: i64 = command(&url(), &["ZCARD", &name("due:0")]).await;
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_redis_that_is_reconfigured_to_lose_data_fails_its_probe_or_warns() {
    let server = Server::start().await;
    let set = async |value: &str| {
        let () = command(&server.url(), &["CONFIG", "SET", "appendonly", value]).await;
    };
    set("yes").await;
    let refusing = RedisStore::open(store_options(&server.url(), "a:", "one")).await.unwrap();
    let warn = StoreOptions { durability: Durability::Warn, ..store_options(&server.url(), "b:", "one") };
    let warning = RedisStore::open(warn).await.unwrap();
    let check =
        async |store: &RedisStore| RedisStoreProbe(store.clone()).check().await.map_err(|error| error.to_string());
    check(&refusing).await.unwrap();

    set("no").await;
    assert!(check(&refusing).await.unwrap_err().contains("appendonly is no"));
    check(&warning).await.unwrap();
    assert!(warning.durability_risk().await.unwrap().is_some());

    let () = command(&server.url(), &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    set("yes").await;
    assert!(check(&refusing).await.unwrap_err().contains("allkeys-lru"));

    let () = command(&server.url(), &["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    check(&refusing).await.unwrap();
}
