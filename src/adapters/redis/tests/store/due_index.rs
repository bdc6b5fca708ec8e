//! The sorted set of what is due: what waits costs a claim nothing, and the set follows from the rows after any sequence of statements.
use std::collections::BTreeMap;

use kit::{Factory, SeededRng};
use ports::clock::Rng;
use ports::operators::{Audit, OutboxOperators, RowSelector};
use ports::outbox::{BatchOutcome, ClaimKind, ClaimOutcome, Disposition, OutboxStore, PoisonPolicy, RowStatus};
use redis::{Durability, RedisStore, StoreOptions};

use crate::server::Server;
use crate::store_worker::{ALL, HOUR, P0, Worker, change, order_with_changes, rows};
use crate::support::{command, prefix, store_options, url};

/// Commands on hashes and sorted sets that the server has run so far, those inside of scripts too. Only statements of the store use them.
async fn commands_run(url: &str) -> u64 {
    let info: String = command(url, &["INFO", "commandstats"]).await;
    let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
    info.lines().filter(|line| line.starts_with("cmdstat_h") || line.starts_with("cmdstat_z")).filter_map(calls).sum()
}

/// A store on a server of its own, whose commands only this test causes: no heartbeat, wake channel or audit.
async fn quiet_store(server: &Server) -> RedisStore {
    let options = StoreOptions {
        durability: Durability::Warn,
        notify: false,
        audit_interval: std::time::Duration::ZERO,
        heartbeat_interval: HOUR,
        ..store_options(&server.url(), "p:", "one")
    };
    RedisStore::open(options).await.unwrap()
}

#[tokio::test]
async fn diagnosis_of_a_key_reads_no_row_of_its_history() {
    let server = Server::start().await;
    let store = quiet_store(&server).await;
    let factory = Factory::seeded(1, "orders".into());
    let mut worker = Worker::acquire(&store, "one", HOUR).await;
    let order = order_with_changes(&store, &factory, 300).await;
    worker.drain().await;
    let key = rows(&store).await[0].key.clone();
    let diagnose = async || store.diagnose(RowSelector::Key(key.clone())).await.unwrap().unwrap();
    // The first diagnosis loads the script.
    diagnose().await;
    let cheap = async |status: RowStatus| {
        let before = commands_run(&server.url()).await;
        let row = diagnose().await.row;
        let commands = commands_run(&server.url()).await - before;
        assert!(commands < 20, "{commands} commands for a key with 301 SENT rows");
        assert_eq!(row.status, status);
        row.id
    };

    let last = cheap(RowStatus::Sent).await;
    let order = change(&store, &factory, order).await;
    let first = cheap(RowStatus::Pending).await;
    let mut batch = worker.claim(ALL).await;
    worker.exclude(&mut batch, &[(first, Disposition::ParkRow)]).await;
    change(&store, &factory, order).await;
    let parked = cheap(RowStatus::Parked).await;

    assert_eq!((last, first, parked), (301, 302, 302));
}

#[tokio::test]
async fn rows_that_are_not_due_cost_a_claim_nothing() {
    let server = Server::start().await;
    let store = quiet_store(&server).await;
    let factory = Factory::seeded(1, "orders".into());
    let mut worker = Worker::acquire(&store, "one", HOUR).await;
    // The first claim loads the script.
    assert!(matches!(worker.try_claim(ALL, ClaimKind::Ordinary).await, ClaimOutcome::NoneDue { next_due: None, .. }));
    let before = commands_run(&server.url()).await;
    worker.try_claim(ALL, ClaimKind::Ordinary).await;
    let of_an_empty_claim = commands_run(&server.url()).await - before;

    // 300 keys wait for a retry, each with a later row, and 100 are parked with one.
    for _ in 0..400 {
        order_with_changes(&store, &factory, 1).await;
    }
    let mut batch = worker.claim(ALL).await;
    let heads: Vec<_> = batch.rows.iter().filter(|row| row.sequence == 1).map(|row| row.id).collect();
    let disposition = |index: usize| if index < 300 { Disposition::Retry(HOUR) } else { Disposition::ParkKey };
    let excluded: Vec<_> = heads.iter().enumerate().map(|(index, id)| (*id, disposition(index))).collect();
    worker.exclude(&mut batch, &excluded).await;
    worker.settle(&batch).await;
    let before = commands_run(&server.url()).await;
    let claimed = worker.try_claim(ALL, ClaimKind::Ordinary).await;
    let with_800_rows = commands_run(&server.url()).await - before;

    assert!(matches!(claimed, ClaimOutcome::NoneDue { next_due: Some(due), .. } if due <= HOUR && due > HOUR / 2));
    assert_eq!(with_800_rows, of_an_empty_claim);
}

#[tokio::test]
async fn a_pending_row_is_due_also_after_the_clock_was_set_back() {
    let prefix = prefix();
    let store = RedisStore::open(store_options(&url(), &prefix, "one")).await.unwrap();
    let factory = Factory::seeded(1, "orders".into());
    order_with_changes(&store, &factory, 1).await;
    let tomorrow = (std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap() + HOUR * 24).as_millis().to_string();
    for id in 1..=2 {
        let row = format!("{prefix}{{store}}:row:{id}");
        let _: i64 = command(&url(), &["HSET", &row, "c", &tomorrow]).await;
    }

    assert_eq!(Worker::acquire(&store, "one", HOUR).await.drain().await, [1, 2]);
}

#[tokio::test]
async fn rows_of_failed_keys_are_claimed_before_a_backlog() {
    let prefix = prefix();
    let store = RedisStore::open(store_options(&url(), &prefix, "one")).await.unwrap();
    let factory = Factory::seeded(1, "orders".into());
    order_with_changes(&store, &factory, 0).await;
    let mut worker = Worker::acquire(&store, "one", HOUR).await;
    let mut batch = worker.claim(ALL).await;
    worker.exclude(&mut batch, &[(1, Disposition::Retry(std::time::Duration::ZERO))]).await;
    worker.settle(&batch).await;
    for _ in 0..5 {
        order_with_changes(&store, &factory, 0).await;
    }

    let ids: Vec<_> = worker.claim(3).await.rows.iter().map(|row| row.id).collect();

    assert_eq!(ids, [1, 2, 3]);
}

/// Random statements, as workers and operators send them; checks after each batch that no row passes an earlier one of its key.
async fn random_statements(seed: u64) {
    let prefix = prefix();
    let options = StoreOptions { audit_interval: std::time::Duration::ZERO, ..store_options(&url(), &prefix, "one") };
    let store = RedisStore::open(options).await.unwrap();
    let (factory, rng) = (Factory::seeded(seed, "orders".into()), SeededRng::new(seed));
    let below = |most: usize| (rng.next_u64() % most as u64) as usize;
    let audit = Audit { operator: "kit".into(), reason: "random".into() };
    let (mut orders, mut worker) = (Vec::new(), Worker::acquire(&store, "one", HOUR).await);
    for _ in 0..120 {
        match below(6) {
            0 => orders.push(order_with_changes(&store, &factory, below(3)).await),
            1 if !orders.is_empty() => {
                let index = below(orders.len());
                orders[index] = change(&store, &factory, orders[index].clone()).await;
            }
            2 => {
                let all = rows(&store).await;
                if !all.is_empty() {
                    let id = all[below(all.len())].id;
                    let changed =
                        if below(2) == 0 { store.park(id, &audit).await } else { store.retry(id, &audit).await };
                    changed.unwrap();
                    worker.fence.counter = store_counter(&prefix).await;
                }
            }
            3 => {
                store.sweep(std::time::Duration::ZERO, 3).await.unwrap();
            }
            _ => random_batch(&store, &mut worker, &below).await,
        }
        assert_eq!(store.audit_indexes().await.unwrap(), 0, "seed {seed}: an index disagrees with the rows");
    }
}

async fn random_batch(store: &RedisStore, worker: &mut Worker<'_>, below: &impl Fn(usize) -> usize) {
    let before = rows(store).await;
    let kind = if below(4) == 0 { ClaimKind::Trial } else { ClaimKind::Ordinary };
    let ClaimOutcome::Batch(mut batch) = worker.try_claim(1 + below(8) as u32, kind).await else { return };
    let mut first_unsent = BTreeMap::new();
    for row in before.iter().filter(|row| row.status != RowStatus::Sent) {
        first_unsent.entry(row.key.clone()).or_insert_with(Vec::new).push(row);
    }
    for row in &batch.rows {
        let earlier = first_unsent[&row.key].iter().filter(|earlier| earlier.id < row.id);
        for earlier in earlier {
            let in_batch = batch.rows.iter().any(|claimed| claimed.id == earlier.id);
            assert!(in_batch || earlier.status == RowStatus::Parked, "row {} passed {earlier:?}", row.id);
        }
    }
    let dispositions = [
        Disposition::Retry(std::time::Duration::ZERO),
        Disposition::Retry(HOUR),
        Disposition::ParkKey,
        Disposition::ParkRow,
    ];
    let excluded: Vec<_> =
        batch.rows.iter().filter(|_| below(3) == 0).map(|row| (row.id, dispositions[below(4)])).collect();
    if !excluded.is_empty() {
        worker.exclude(&mut batch, &excluded).await;
    }
    let outcome = [BatchOutcome::Published, BatchOutcome::NotSent, BatchOutcome::ClaimerDied][below(3)];
    store.resolve(&worker.fence, batch.token, outcome, &PoisonPolicy::default()).await.unwrap();
    worker.fence.counter += 1;
}

async fn store_counter(prefix: &str) -> u64 {
    let lease = format!("{prefix}{{store}}:lease:{}", P0.0);
    command::<String>(&url(), &["HGET", &lease, "counter"]).await.parse().unwrap()
}

#[tokio::test]
async fn the_index_follows_from_the_rows_after_any_statements() {
    for seed in 1..=6 {
        random_statements(seed).await;
    }
}
