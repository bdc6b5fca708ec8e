//! Cases of `OrderStore`: one commit, and the rows it writes.
use domain::{EventType, Status};
use ports::orders::event_key;
use ports::orders::{CommitOutcome, OrderFilter};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{DAY, P0, fixture};
use crate::conformance::fixture::worker::{ALL, worker};

pub(super) async fn an_order_its_events_and_its_idempotency_record_become_visible_together<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut commit = fixture.factory.creation("ann", P0);
    let idempotency_record = fixture.factory.idempotency_record(&commit.order, "key-1");
    commit.idempotency_record = Some(idempotency_record.clone());

    let order = fixture.committed(commit).await;

    assert_eq!(backend.orders().find(order.id).await.expect("found"), Some(order.clone()));
    assert_eq!(
        backend.orders().find_idempotency_record(&order.owner, "key-1", DAY).await.expect("found"),
        Some(idempotency_record)
    );
    assert_eq!(fixture.depth().await.pending, 1);
    assert_eq!(worker(backend, "a", P0).await.claim(ALL).await.rows[0].key, event_key(order.id));
}

pub(super) async fn an_order_reads_back_exactly_as_it_was_written<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut creation = fixture.factory.creation("Zoë | O'Neil\\ 🦀", P0);
    creation.order.items = fixture.factory.items(500);
    let placed = fixture.committed(creation).await;

    let found = backend.orders().find(placed.id).await.expect("found").expect("it exists");
    assert_eq!(found, placed);
    assert_eq!(found.items.total(), placed.items.total(), "the total keeps the scale of the prices");

    let moved = fixture.committed(fixture.factory.change(&placed, Status::Shipped, P0)).await;
    assert_eq!(backend.orders().find(placed.id).await.expect("found"), Some(moved));
}

pub(super) async fn an_event_reads_back_exactly_as_it_was_written<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut creation = fixture.factory.creation("ann", P0);
    creation.events[0].trace = Some(fixture.factory.trace());
    creation.events[0].payload = [0_u8, 159, 146, 150, b'\n', 255].as_slice().into();
    let row = creation.events[0].clone();
    fixture.committed(creation).await;

    let claimed = worker(backend, "a", P0).await.claim(ALL).await.rows.remove(0);

    assert_eq!((claimed.event_id, &claimed.key), (row.event_id, &row.key));
    assert_eq!((&*claimed.event_type, &*claimed.topic), (&*row.event_type, &*row.topic));
    assert_eq!(claimed.payload.as_deref(), Some(&*row.payload));
    assert_eq!((claimed.sequence, claimed.occurred_at), (row.sequence, row.occurred_at));
    assert_eq!((claimed.stamp, claimed.trace), (row.stamp, row.trace));
    assert_eq!((&claimed.request_id, claimed.request_id.is_some()), (&row.request_id, true));
    assert_eq!(claimed.created_at, fixture.row(claimed.id).await.created_at);
}

pub(super) async fn a_missing_order_is_not_found<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (never_written, _) = fixture.factory.placed("ann");

    assert_eq!(backend.orders().find(never_written.id).await.expect("the call succeeds"), None);
    assert_eq!(
        backend.orders().find_idempotency_record(&never_written.owner, "key", DAY).await.expect("the call succeeds"),
        None
    );
}

pub(super) async fn a_stale_version_changes_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let placed = fixture.place_order(P0).await;
    let current = fixture.committed(fixture.factory.change(&placed, Status::Processing, P0)).await;
    let mut late = fixture.factory.change(&placed, Status::Cancelled, P0);
    late.idempotency_record = Some(fixture.factory.idempotency_record(&placed, "late"));

    assert_eq!(fixture.commit(late).await, CommitOutcome::Stale { current: 1 });

    assert_eq!(backend.orders().find(placed.id).await.expect("found"), Some(current));
    assert_eq!(fixture.depth().await.pending, 2);
    assert_eq!(
        backend.orders().find_idempotency_record(&placed.owner, "late", DAY).await.expect("the call succeeds"),
        None
    );
}

pub(super) async fn a_change_of_a_missing_order_changes_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (never_written, _) = fixture.factory.placed("ann");
    let mut change = fixture.factory.change(&never_written, Status::Processing, P0);
    change.idempotency_record = Some(fixture.factory.idempotency_record(&never_written, "key"));

    assert_eq!(fixture.commit(change).await, CommitOutcome::Missing);

    assert_eq!(backend.orders().find(never_written.id).await.expect("the call succeeds"), None);
    assert_eq!(fixture.depth().await.pending, 0);
    assert_eq!(
        backend.orders().find_idempotency_record(&never_written.owner, "key", DAY).await.expect("the call succeeds"),
        None
    );
}

pub(super) async fn an_existing_order_is_not_inserted_again<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let creation = fixture.factory.creation("ann", P0);
    let mut again = fixture.factory.creation("bob", P0);
    again.order.id = creation.order.id;
    let placed = fixture.committed(creation).await;

    assert_eq!(fixture.commit(again).await, CommitOutcome::Stale { current: 0 });

    assert_eq!(backend.orders().find(placed.id).await.expect("found"), Some(placed));
    assert_eq!(fixture.depth().await.pending, 1);
}

pub(super) async fn a_change_replaces_the_order_at_the_expected_version<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let placed = fixture.place_order(P0).await;

    let moved = fixture.committed(fixture.factory.change(&placed, Status::Processing, P0)).await;

    assert_eq!(backend.orders().find(placed.id).await.expect("found"), Some(moved));
    assert_eq!(backend.orders().count(&OrderFilter::default()).await.expect("counted"), 1);
}

pub(super) async fn a_used_idempotency_key_changes_nothing_and_returns_its_record<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut first = fixture.factory.creation("ann", P0);
    let used = fixture.factory.idempotency_record(&first.order, "key");
    first.idempotency_record = Some(used.clone());
    fixture.committed(first).await;
    let mut second = fixture.factory.creation("ann", P0);
    let mut other = fixture.factory.idempotency_record(&second.order, "key");
    other.fingerprint = [9; 32];
    second.idempotency_record = Some(other);
    let id = second.order.id;

    assert_eq!(fixture.commit(second).await, CommitOutcome::KeyUsed(used));

    assert_eq!(backend.orders().find(id).await.expect("the call succeeds"), None);
    assert_eq!(fixture.depth().await.pending, 1);
}

pub(super) async fn another_subjects_key_is_another_idempotency_record<B: Backend>(backend: &B) {
    let fixture = fixture(backend);

    for (owner, key) in [("ann", "key"), ("bob", "key"), ("ann", "KEY"), ("ann", "key ")] {
        let mut creation = fixture.factory.creation(owner, P0);
        creation.idempotency_record = Some(fixture.factory.idempotency_record(&creation.order, key));
        fixture.committed(creation).await;
    }

    assert_eq!(fixture.depth().await.pending, 4);
}

pub(super) async fn a_commit_needs_neither_events_nor_an_idempotency_record<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut creation = fixture.factory.creation("ann", P0);
    creation.events.clear();

    let order = fixture.committed(creation).await;

    assert_eq!(backend.orders().find(order.id).await.expect("found"), Some(order));
    assert_eq!(fixture.depth().await.pending, 0);
}

pub(super) async fn the_events_of_one_commit_keep_their_order<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut creation = fixture.factory.creation("ann", P0);
    let (moved, event) = fixture.factory.status_changed(&creation.order, Status::Shipped);
    creation.events.push(fixture.factory.row(&event, P0));
    creation.order = moved;
    fixture.committed(creation).await;

    let rows = worker(backend, "a", P0).await.drain(ALL).await;

    assert_eq!(rows.iter().map(|row| row.sequence).collect::<Vec<_>>(), [1, 2]);
    let event_types = [EventType::OrderCreated, EventType::OrderStatusChanged].map(EventType::as_str);
    assert_eq!(rows.iter().map(|row| &*row.event_type).collect::<Vec<_>>(), event_types);
}

pub(super) async fn the_events_of_one_key_are_claimed_in_commit_order<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let orders = [fixture.order_with_rows(4, P0).await, fixture.order_with_rows(3, P0).await];

    let rows = worker(backend, "a", P0).await.drain(2).await;

    for (order, last) in orders.iter().zip([4, 3]) {
        let sequences = rows.iter().filter(|row| row.key == event_key(order.id)).map(|row| row.sequence);
        assert_eq!(sequences.collect::<Vec<_>>(), (1..=last).collect::<Vec<_>>());
    }
}
