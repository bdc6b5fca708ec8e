//! Cases of `OrderStore`: concurrent commits of one order, one record, or nothing in common.
use domain::Status;
use futures::future::join_all;
use ports::orders::{Commit, CommitOutcome, OrderFilter};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{P0, P1, fixture};
use crate::conformance::fixture::worker::{ALL, worker};

pub(super) async fn a_failing_commit_does_not_fail_concurrent_commits<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let placed = fixture.place_order(P1).await;
    let current = fixture.committed(fixture.factory.change(&placed, Status::Processing, P1)).await;
    let mut marked = fixture.factory.creation("ann", P1);
    marked.idempotency_record = Some(fixture.factory.idempotency_record(&marked.order, "key"));
    fixture.committed(marked.clone()).await;
    let commits: Vec<Commit> = (0..64)
        .map(|index| match index % 8 {
            1 => fixture.factory.change(&placed, Status::Cancelled, P0),
            3 => fixture.factory.change(&fixture.factory.placed("ann").0, Status::Processing, P0),
            5 => {
                Commit { idempotency_record: marked.idempotency_record.clone(), ..fixture.factory.creation("ann", P0) }
            }
            _ => fixture.factory.creation("ann", P0),
        })
        .collect();

    let results = join_all(commits.iter().map(|commit| fixture.commit(commit.clone()))).await;

    for (index, (result, commit)) in results.iter().zip(&commits).enumerate() {
        let found = backend.orders().find(commit.order.id).await.expect("the call succeeds");
        match index % 8 {
            1 => assert_eq!((result, found), (&CommitOutcome::Stale { current: 1 }, Some(current.clone()))),
            3 => assert_eq!((result, found), (&CommitOutcome::Missing, None)),
            5 => assert_eq!(
                (Some(result), found),
                (marked.idempotency_record.clone().map(CommitOutcome::KeyUsed).as_ref(), None)
            ),
            _ => assert_eq!((result, found), (&CommitOutcome::Done, Some(commit.order.clone()))),
        }
    }
    assert_eq!(worker(backend, "a", P0).await.drain(ALL).await.len(), 40, "one row for each successful commit");
}

pub(super) async fn one_of_many_concurrent_changes_of_a_version_wins<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let placed = fixture.place_order(P0).await;
    let commits: Vec<Commit> = (0..16).map(|_| fixture.factory.change(&placed, Status::Processing, P0)).collect();

    let results = join_all(commits.into_iter().map(|commit| fixture.commit(commit))).await;

    assert_eq!(results.iter().filter(|result| **result == CommitOutcome::Done).count(), 1);
    assert_eq!(results.iter().filter(|result| **result == CommitOutcome::Stale { current: 1 }).count(), 15);
    assert_eq!(fixture.depth().await.pending, 2);
}

pub(super) async fn one_of_many_concurrent_commits_with_one_idempotency_key_wins<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let commits: Vec<Commit> = (0..16)
        .map(|_| fixture.factory.creation("ann", P0))
        .map(|commit| Commit {
            idempotency_record: Some(fixture.factory.idempotency_record(&commit.order, "key")),
            ..commit
        })
        .collect();

    let results = join_all(commits.iter().map(|commit| fixture.commit(commit.clone()))).await;

    let winners: Vec<&Commit> = commits
        .iter()
        .zip(&results)
        .filter(|(_, result)| **result == CommitOutcome::Done)
        .map(|(commit, _)| commit)
        .collect();
    let [winner] = winners[..] else { panic!("{} commits succeeded with one idempotency record", winners.len()) };
    let losers = results.iter().filter(|result| **result != CommitOutcome::Done);
    let key_used =
        CommitOutcome::KeyUsed(winner.idempotency_record.clone().expect("every commit has an idempotency record"));
    assert!(
        losers.clone().all(|result| *result == key_used),
        "each loser receives the winner's idempotency record: {results:?}"
    );
    assert_eq!(backend.orders().count(&OrderFilter::default()).await.expect("counted"), 1);
    assert_eq!(fixture.depth().await.pending, 1);
}

pub(super) async fn commits_with_records_in_opposite_orders_do_not_deadlock<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let keys: Vec<String> = (0..24).map(|key| format!("key-{key:02}")).collect();
    let marked = |key: &String| {
        let commit = fixture.factory.creation("ann", P0);
        Commit { idempotency_record: Some(fixture.factory.idempotency_record(&commit.order, key)), ..commit }
    };
    let commits: Vec<Commit> = keys.iter().chain(keys.iter().rev()).map(marked).collect();

    let results = join_all(commits.into_iter().map(|commit| fixture.commit(commit))).await;

    assert_eq!(results.iter().filter(|result| **result == CommitOutcome::Done).count(), 24);
}
