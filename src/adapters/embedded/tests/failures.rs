//! Concurrent commits, and that a refused one does not affect the others.
use std::sync::Arc;

use domain::Subject;
use embedded::{Embedded, Options};
use ports::orders::{CommitOutcome, IdempotencyRecord, OrderFilter, OrderStore, PageStart};

use crate::support::*;

#[tokio::test]
async fn concurrent_commits_all_return_and_a_refusal_affects_no_other() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = Embedded::open(options(folder.path(), &clock)).unwrap();
    let commits = (0..200_u16).map(|number| {
        let store = store.clone();
        // Every tenth changes an order that does not exist.
        tokio::spawn(async move { OrderStore::commit(&store, change(number, u64::from(number % 10 == 0))).await })
    });
    let mut done = 0;
    for commit in commits.collect::<Vec<_>>() {
        match commit.await.unwrap().unwrap() {
            CommitOutcome::Done => done += 1,
            other => assert_eq!(other, CommitOutcome::Missing),
        }
    }

    assert_eq!(done, 180);
    assert_eq!(store.count(&OrderFilter::default()).await.unwrap(), 180);
    let orders = OrderStore::list(&store, &OrderFilter::default(), PageStart::Offset(170), 100).await.unwrap();
    assert_eq!(orders.len(), 10);
}

#[tokio::test]
async fn used_key_changes_nothing_and_returns_its_order() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let idempotency_record = |number| IdempotencyRecord {
        subject: Subject::new("ann").unwrap(),
        key: "k".into(),
        fingerprint: [number as u8; 32],
        order_id: id(number),
    };
    let mut first = change(1, 0);
    first.idempotency_record = Some(idempotency_record(1));
    assert_eq!(OrderStore::commit(&store, first).await.unwrap(), CommitOutcome::Done);

    let mut second = change(2, 0);
    second.idempotency_record = Some(idempotency_record(2));
    assert_eq!(OrderStore::commit(&store, second).await.unwrap(), CommitOutcome::KeyUsed(idempotency_record(1)));
    let mut stale = change(1, 5);
    stale.idempotency_record = Some(IdempotencyRecord { key: "free".into(), ..idempotency_record(1) });
    assert_eq!(OrderStore::commit(&store, stale).await.unwrap(), CommitOutcome::Stale { current: 0 });

    assert_eq!(store.find(id(2)).await.unwrap(), None);
    let subject = Subject::new("ann").unwrap();
    let day = std::time::Duration::from_secs(86_400);
    assert_eq!(
        store.find_idempotency_record(&subject, "free", day).await.unwrap(),
        None,
        "a stale commit stores no idempotency record"
    );
    assert_eq!(store.find_idempotency_record(&subject, "k", day).await.unwrap(), Some(idempotency_record(1)));
    assert_eq!(store.count(&OrderFilter::default()).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_queue_refuses_at_once_and_every_caller_gets_a_result() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = Embedded::open(Options { queue_max: 4, ..options(folder.path(), &clock) }).unwrap();
    let refused = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let commits: Vec<_> = (0..500_u16)
        .map(|number| {
            let (store, refused) = (store.clone(), refused.clone());
            tokio::spawn(async move {
                match OrderStore::commit(&store, change(number, 0)).await {
                    Ok(committed) => assert_eq!(committed, CommitOutcome::Done),
                    Err(ports::Error::Overloaded(_)) => {
                        refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    Err(error) => panic!("{error}"),
                }
            })
        })
        .collect();
    for commit in commits {
        commit.await.unwrap();
    }

    let refused = refused.load(std::sync::atomic::Ordering::Relaxed) as u64;
    assert_eq!(store.count(&OrderFilter::default()).await.unwrap() + refused, 500);
}
