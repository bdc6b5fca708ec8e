//! The suite of `OrderStore`: all parts commit together or not at all, and reads show what was committed.
use domain::{EventType, Status, Subject};
use futures::future::join_all;
use ports::orders::{Commit, Committed, OrderFilter};

use super::given::{DAY, HOUR, P0, P1, SECOND, given};
use super::order_pages::*;
use super::worker::{ALL, worker};
use crate::backend::Backend;

suite! { $ orders:
    an_order_its_events_and_its_mark_become_visible_together,
    an_order_reads_back_exactly_as_it_was_written,
    an_event_reads_back_exactly_as_it_was_written,
    an_order_that_does_not_exist_is_not_found,
    a_stale_version_changes_nothing,
    an_order_that_is_missing_is_not_replaced,
    an_order_that_exists_is_not_inserted_again,
    a_change_replaces_the_order_where_it_stands_at_the_expected_version,
    a_taken_mark_changes_nothing_and_says_what_it_meant,
    another_subjects_key_is_another_mark,
    a_commit_needs_neither_events_nor_a_mark,
    the_events_of_one_commit_keep_their_order,
    the_events_of_one_key_are_claimed_in_commit_order,
    one_failing_commit_takes_no_neighbour_with_it,
    of_concurrent_writers_of_one_version_one_wins,
    of_concurrent_commits_with_one_mark_one_wins,
    marks_in_opposite_orders_do_not_stop_each_other,
    orders_are_listed_newest_first,
    a_list_is_filtered_by_owner_and_by_state,
    a_page_after_an_id_is_strictly_older_whoevers_the_id_is,
    pages_by_key_show_each_order_once_although_new_ones_arrive,
    orders_of_one_millisecond_page_without_a_gap,
    a_count_counts_what_the_filter_lets_through,
    the_oldest_orders_of_a_state_come_first,
    a_mark_is_found_until_it_is_older_than_asked,
    only_old_marks_are_swept_and_at_most_so_many,
    a_swept_key_may_be_used_anew,
}

async fn an_order_its_events_and_its_mark_become_visible_together<B: Backend>(backend: &B) {
    let given = given(backend);
    let mut commit = given.make.creation("ann", P0);
    let mark = given.make.mark(&commit.order, "key-1");
    commit.mark = Some(mark.clone());

    let order = given.done(commit).await;

    assert_eq!(backend.orders().find(order.id).await.expect("found"), Some(order.clone()));
    assert_eq!(backend.orders().find_mark(&order.owner, "key-1", DAY).await.expect("found"), Some(mark));
    assert_eq!(given.depth().await.pending, 1);
    assert_eq!(worker(backend, "a", P0).await.claim(ALL).await.rows[0].key, order.id);
}

async fn an_order_reads_back_exactly_as_it_was_written<B: Backend>(backend: &B) {
    let given = given(backend);
    let mut creation = given.make.creation("Zoë | O'Neil\\ 🦀", P0);
    creation.order.items = given.make.items(500);
    let placed = given.done(creation).await;

    let found = backend.orders().find(placed.id).await.expect("found").expect("there");
    assert_eq!(found, placed);
    assert_eq!(found.items.total(), placed.items.total(), "with the scale of its prices");

    let moved = given.done(given.make.change(&placed, Status::Shipped, P0)).await;
    assert_eq!(backend.orders().find(placed.id).await.expect("found"), Some(moved));
}

async fn an_event_reads_back_exactly_as_it_was_written<B: Backend>(backend: &B) {
    let given = given(backend);
    let mut creation = given.make.creation("ann", P0);
    creation.events[0].trace = Some(given.make.trace());
    creation.events[0].payload = [0_u8, 159, 146, 150, b'\n', 255].as_slice().into();
    let row = creation.events[0].clone();
    given.done(creation).await;

    let claimed = worker(backend, "a", P0).await.claim(ALL).await.rows.remove(0);

    assert_eq!((claimed.event_id, claimed.key), (row.event_id, row.key));
    assert_eq!((&*claimed.kind, &*claimed.topic), (row.kind.as_str(), &*row.topic));
    assert_eq!(claimed.payload.as_deref(), Some(&*row.payload));
    assert_eq!((claimed.sequence, claimed.occurred_at), (row.sequence, row.occurred_at));
    assert_eq!((claimed.region, claimed.hlc, claimed.trace), (row.region, row.hlc, row.trace));
    assert_eq!(claimed.created_at, given.row(claimed.id).await.created_at);
}

async fn an_order_that_does_not_exist_is_not_found<B: Backend>(backend: &B) {
    let given = given(backend);
    let (never_written, _) = given.make.placed("ann");

    assert_eq!(backend.orders().find(never_written.id).await.expect("answered"), None);
    assert_eq!(backend.orders().find_mark(&never_written.owner, "key", DAY).await.expect("answered"), None);
}

async fn a_stale_version_changes_nothing<B: Backend>(backend: &B) {
    let given = given(backend);
    let placed = given.placed(P0).await;
    let current = given.done(given.make.change(&placed, Status::Processing, P0)).await;
    let mut late = given.make.change(&placed, Status::Cancelled, P0);
    late.mark = Some(given.make.mark(&placed, "late"));

    assert_eq!(given.commit(late).await, Committed::Stale { current: 1 });

    assert_eq!(backend.orders().find(placed.id).await.expect("found"), Some(current));
    assert_eq!(given.depth().await.pending, 2);
    assert_eq!(backend.orders().find_mark(&placed.owner, "late", DAY).await.expect("answered"), None);
}

async fn an_order_that_is_missing_is_not_replaced<B: Backend>(backend: &B) {
    let given = given(backend);
    let (never_written, _) = given.make.placed("ann");
    let mut change = given.make.change(&never_written, Status::Processing, P0);
    change.mark = Some(given.make.mark(&never_written, "key"));

    assert_eq!(given.commit(change).await, Committed::Missing);

    assert_eq!(backend.orders().find(never_written.id).await.expect("answered"), None);
    assert_eq!(given.depth().await.pending, 0);
    assert_eq!(backend.orders().find_mark(&never_written.owner, "key", DAY).await.expect("answered"), None);
}

async fn an_order_that_exists_is_not_inserted_again<B: Backend>(backend: &B) {
    let given = given(backend);
    let creation = given.make.creation("ann", P0);
    let mut again = given.make.creation("bob", P0);
    again.order.id = creation.order.id;
    let placed = given.done(creation).await;

    assert_eq!(given.commit(again).await, Committed::Stale { current: 0 });

    assert_eq!(backend.orders().find(placed.id).await.expect("found"), Some(placed));
    assert_eq!(given.depth().await.pending, 1);
}

async fn a_change_replaces_the_order_where_it_stands_at_the_expected_version<B: Backend>(backend: &B) {
    let given = given(backend);
    let placed = given.placed(P0).await;

    let moved = given.done(given.make.change(&placed, Status::Processing, P0)).await;

    assert_eq!(backend.orders().find(placed.id).await.expect("found"), Some(moved));
    assert_eq!(backend.orders().count(&OrderFilter::default()).await.expect("counted"), 1);
}

async fn a_taken_mark_changes_nothing_and_says_what_it_meant<B: Backend>(backend: &B) {
    let given = given(backend);
    let mut first = given.make.creation("ann", P0);
    let meant = given.make.mark(&first.order, "key");
    first.mark = Some(meant.clone());
    given.done(first).await;
    let mut second = given.make.creation("ann", P0);
    let mut other = given.make.mark(&second.order, "key");
    other.fingerprint = [9; 32];
    second.mark = Some(other);
    let id = second.order.id;

    assert_eq!(given.commit(second).await, Committed::KeyUsed(meant));

    assert_eq!(backend.orders().find(id).await.expect("answered"), None);
    assert_eq!(given.depth().await.pending, 1);
}

async fn another_subjects_key_is_another_mark<B: Backend>(backend: &B) {
    let given = given(backend);

    for (owner, key) in [("ann", "key"), ("bob", "key"), ("ann", "KEY"), ("ann", "key ")] {
        let mut creation = given.make.creation(owner, P0);
        creation.mark = Some(given.make.mark(&creation.order, key));
        given.done(creation).await;
    }

    assert_eq!(given.depth().await.pending, 4);
}

async fn a_commit_needs_neither_events_nor_a_mark<B: Backend>(backend: &B) {
    let given = given(backend);
    let mut creation = given.make.creation("ann", P0);
    creation.events.clear();

    let order = given.done(creation).await;

    assert_eq!(backend.orders().find(order.id).await.expect("found"), Some(order));
    assert_eq!(given.depth().await.pending, 0);
}

async fn the_events_of_one_commit_keep_their_order<B: Backend>(backend: &B) {
    let given = given(backend);
    let mut creation = given.make.creation("ann", P0);
    let (moved, event) = given.make.moved(&creation.order, Status::Shipped);
    creation.events.push(given.make.row(&event, P0));
    creation.order = moved;
    given.done(creation).await;

    let rows = worker(backend, "a", P0).await.drain(ALL).await;

    assert_eq!(rows.iter().map(|row| row.sequence).collect::<Vec<_>>(), [1, 2]);
    let kinds = [EventType::OrderCreated, EventType::OrderStatusChanged].map(EventType::as_str);
    assert_eq!(rows.iter().map(|row| &*row.kind).collect::<Vec<_>>(), kinds);
}

async fn the_events_of_one_key_are_claimed_in_commit_order<B: Backend>(backend: &B) {
    let given = given(backend);
    let lines = [given.line(4, P0).await, given.line(3, P0).await];

    let rows = worker(backend, "a", P0).await.drain(2).await;

    for (line, last) in lines.iter().zip([4, 3]) {
        let sequences = rows.iter().filter(|row| row.key == line.id).map(|row| row.sequence);
        assert_eq!(sequences.collect::<Vec<_>>(), (1..=last).collect::<Vec<_>>());
    }
}

async fn one_failing_commit_takes_no_neighbour_with_it<B: Backend>(backend: &B) {
    let given = given(backend);
    let placed = given.placed(P1).await;
    let current = given.done(given.make.change(&placed, Status::Processing, P1)).await;
    let mut marked = given.make.creation("ann", P1);
    marked.mark = Some(given.make.mark(&marked.order, "key"));
    given.done(marked.clone()).await;
    let commits: Vec<Commit> = (0..64)
        .map(|turn| match turn % 8 {
            1 => given.make.change(&placed, Status::Cancelled, P0),
            3 => given.make.change(&given.make.placed("ann").0, Status::Processing, P0),
            5 => Commit { mark: marked.mark.clone(), ..given.make.creation("ann", P0) },
            _ => given.make.creation("ann", P0),
        })
        .collect();

    let answers = join_all(commits.iter().map(|commit| given.commit(commit.clone()))).await;

    for (turn, (answer, commit)) in answers.iter().zip(&commits).enumerate() {
        let found = backend.orders().find(commit.order.id).await.expect("answered");
        match turn % 8 {
            1 => assert_eq!((answer, found), (&Committed::Stale { current: 1 }, Some(current.clone()))),
            3 => assert_eq!((answer, found), (&Committed::Missing, None)),
            5 => assert_eq!((Some(answer), found), (marked.mark.clone().map(Committed::KeyUsed).as_ref(), None)),
            _ => assert_eq!((answer, found), (&Committed::Done, Some(commit.order.clone()))),
        }
    }
    assert_eq!(worker(backend, "a", P0).await.drain(ALL).await.len(), 40, "a row for each that was done");
}

async fn of_concurrent_writers_of_one_version_one_wins<B: Backend>(backend: &B) {
    let given = given(backend);
    let placed = given.placed(P0).await;
    let commits: Vec<Commit> = (0..16).map(|_| given.make.change(&placed, Status::Processing, P0)).collect();

    let answers = join_all(commits.into_iter().map(|commit| given.commit(commit))).await;

    assert_eq!(answers.iter().filter(|answer| **answer == Committed::Done).count(), 1);
    assert_eq!(answers.iter().filter(|answer| **answer == Committed::Stale { current: 1 }).count(), 15);
    assert_eq!(given.depth().await.pending, 2);
}

async fn of_concurrent_commits_with_one_mark_one_wins<B: Backend>(backend: &B) {
    let given = given(backend);
    let commits: Vec<Commit> = (0..16)
        .map(|_| given.make.creation("ann", P0))
        .map(|commit| Commit { mark: Some(given.make.mark(&commit.order, "key")), ..commit })
        .collect();

    let answers = join_all(commits.iter().map(|commit| given.commit(commit.clone()))).await;

    let winners: Vec<&Commit> = commits
        .iter()
        .zip(&answers)
        .filter(|(_, answer)| **answer == Committed::Done)
        .map(|(commit, _)| commit)
        .collect();
    let [winner] = winners[..] else { panic!("{} commits won one mark", winners.len()) };
    let losers = answers.iter().filter(|answer| **answer != Committed::Done);
    let meant = Committed::KeyUsed(winner.mark.clone().expect("each has one"));
    assert!(losers.clone().all(|answer| *answer == meant), "each loser is told what the key meant: {answers:?}");
    assert_eq!(backend.orders().count(&OrderFilter::default()).await.expect("counted"), 1);
    assert_eq!(given.depth().await.pending, 1);
}

async fn marks_in_opposite_orders_do_not_stop_each_other<B: Backend>(backend: &B) {
    let given = given(backend);
    let wanted: Vec<String> = (0..24).map(|key| format!("key-{key:02}")).collect();
    let marked = |key: &String| {
        let commit = given.make.creation("ann", P0);
        Commit { mark: Some(given.make.mark(&commit.order, key)), ..commit }
    };
    let commits: Vec<Commit> = wanted.iter().chain(wanted.iter().rev()).map(marked).collect();

    let answers = join_all(commits.into_iter().map(|commit| given.commit(commit))).await;

    assert_eq!(answers.iter().filter(|answer| **answer == Committed::Done).count(), 24);
}

async fn a_mark_is_found_until_it_is_older_than_asked<B: Backend>(backend: &B) {
    let given = given(backend);
    let mut creation = given.make.creation("ann", P0);
    let mark = given.make.mark(&creation.order, "key");
    creation.mark = Some(mark.clone());
    given.done(creation).await;
    let find = async |keep| backend.orders().find_mark(&mark.subject, "key", keep).await.expect("answered");

    given.advance(DAY - HOUR).await;
    assert_eq!(find(DAY).await.as_ref(), Some(&mark));

    given.advance(HOUR + SECOND).await;
    assert_eq!(find(DAY).await, None);
    assert_eq!(find(DAY * 2).await.as_ref(), Some(&mark), "no one has swept it");
}

async fn only_old_marks_are_swept_and_at_most_so_many<B: Backend>(backend: &B) {
    let given = given(backend);
    let write = async |key: &str| {
        let mut creation = given.make.creation("ann", P0);
        creation.mark = Some(given.make.mark(&creation.order, key));
        given.done(creation).await;
    };
    for key in ["old-1", "old-2", "old-3"] {
        write(key).await;
    }
    given.advance(DAY + SECOND).await;
    write("young").await;
    given.advance(HOUR).await;

    let sweep = async || backend.orders().sweep_marks(DAY, 2).await.expect("swept");
    assert_eq!((sweep().await, sweep().await, sweep().await), (2, 1, 0));

    let ann = Subject::new("ann").expect("a name");
    assert_eq!(backend.orders().find_mark(&ann, "old-1", DAY * 9).await.expect("answered"), None);
    assert!(backend.orders().find_mark(&ann, "young", DAY).await.expect("answered").is_some());
    assert_eq!(backend.orders().count(&OrderFilter::default()).await.expect("counted"), 4, "orders stay");
}

async fn a_swept_key_may_be_used_anew<B: Backend>(backend: &B) {
    let given = given(backend);
    let marked = || {
        let commit = given.make.creation("ann", P0);
        Commit { mark: Some(given.make.mark(&commit.order, "key")), ..commit }
    };
    given.done(marked()).await;
    given.advance(DAY + SECOND).await;
    backend.orders().sweep_marks(DAY, 10).await.expect("swept");

    let second = marked();
    given.done(second.clone()).await;

    let found = backend.orders().find_mark(&second.order.owner, "key", DAY).await.expect("answered");
    assert_eq!(found, second.mark);
}
