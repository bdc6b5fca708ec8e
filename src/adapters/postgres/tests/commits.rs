//! Group commit, also of several instances.
mod foreign_locks;

use domain::Status;
use futures::future::join_all;
use kit::Factory;
use ports::Error;
use ports::orders::{Commit, CommitOutcome, OrderFilter, OrderStore};
use ports::partitions::PartitionNo;

use crate::support::Database;

const P0: PartitionNo = PartitionNo(0);

#[tokio::test]
async fn instances_with_the_same_commits_in_opposite_orders_do_not_deadlock() {
    let database = Database::migrated().await;
    let stores = [database.store("a").await, database.store("b").await];
    let factory = Factory::seeded(9, "orders".into());
    let placed: Vec<_> = (0..12).map(|_| factory.creation("ann", P0)).collect();
    for creation in &placed {
        stores[0].commit(creation.clone()).await.unwrap();
    }
    let with_record = |key: usize| {
        let commit = factory.creation("ann", P0);
        Commit { idempotency_record: Some(factory.idempotency_record(&commit.order, &format!("key-{key}"))), ..commit }
    };
    let changes: Vec<Commit> =
        placed.iter().map(|creation| factory.change(&creation.order, Status::Shipped, P0)).collect();
    let one: Vec<Commit> = (0..12).map(with_record).chain(changes.clone()).collect();
    let mut other: Vec<Commit> = (0..12).map(with_record).chain(changes).collect();
    other.reverse();

    let commit_all = |store: usize, commits: Vec<Commit>| {
        join_all(
            commits.into_iter().map(move |commit| (store, commit)).map(|(store, commit)| stores[store].commit(commit)),
        )
    };
    let (first, second) = futures::join!(commit_all(0, one), commit_all(1, other));

    let results: Vec<CommitOutcome> = first.into_iter().chain(second).map(|result| result.unwrap()).collect();
    assert_eq!(
        results.iter().filter(|result| **result == CommitOutcome::Done).count(),
        24,
        "each idempotency record and each change once"
    );
    assert_eq!(stores[0].count(&OrderFilter::default()).await.unwrap(), 24);
}

#[tokio::test]
async fn commit_that_cannot_be_written_fails_alone() {
    let database = Database::migrated().await;
    let store = database.store("a").await;
    let factory = Factory::seeded(9, "orders".into());
    let mut commits: Vec<Commit> = (0..32).map(|_| factory.creation("ann", P0)).collect();
    // The server rejects NUL in texts.
    commits[7].events[0].topic = "or\0ders".into();
    commits[20].events[0].event_id = commits[3].events[0].event_id;

    let results = join_all(commits.iter().map(|commit| store.commit(commit.clone()))).await;

    for (number, result) in results.iter().enumerate() {
        match number {
            7 => assert!(matches!(result, Err(Error::Rejected(_))), "{result:?}"),
            // Of two events with one id either may be the first.
            3 | 20 => assert!(matches!(result, Ok(CommitOutcome::Done) | Err(Error::Rejected(_))), "{result:?}"),
            _ => assert_eq!(result.as_ref().unwrap(), &CommitOutcome::Done, "commit {number}"),
        }
    }
    assert_eq!(store.count(&OrderFilter::default()).await.unwrap(), 30);
}

#[tokio::test]
async fn full_queue_refuses_at_once() {
    let database = Database::migrated().await;
    let options = postgres::Options { queue_max: 1, committers: 1, ..database.options("a") };
    let store = postgres::Postgres::open(options).await.unwrap();
    let factory = Factory::seeded(9, "orders".into());

    let results = join_all((0..64).map(|_| store.commit(factory.creation("ann", P0)))).await;

    let refused = results.iter().filter(|result| matches!(result, Err(Error::Overloaded(_)))).count();
    let done = results.iter().filter(|result| matches!(result, Ok(CommitOutcome::Done))).count();
    assert!(refused > 0 && refused + done == 64, "{refused} refused, {done} done");
}

#[tokio::test]
async fn commits_queued_before_closing_are_committed() {
    let database = Database::migrated().await;
    let store = database.store("a").await;
    let factory = Factory::seeded(9, "orders".into());
    let commits: Vec<_> = (0..40).map(|_| factory.creation("ann", P0)).collect();

    let queued = join_all(commits.into_iter().map(|commit| store.commit(commit)));
    let (results, closed) = futures::join!(queued, store.close());

    closed.unwrap();
    assert!(results.into_iter().all(|result| result.unwrap() == CommitOutcome::Done));
    assert!(matches!(store.commit(factory.creation("ann", P0)).await, Err(Error::Unreachable(_))));
}
