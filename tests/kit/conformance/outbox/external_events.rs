//! Cases of `OutboxStore`: events of other services, whose keys are texts and whose types the order service does not know.
use ports::operators::{RowFilter, RowSelector};
use ports::orders::NewRow;
use ports::outbox::{Disposition, EventKey, RowStatus};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{Fixture, P0, RETRY, SECOND, fixture};
use crate::conformance::fixture::worker::{ALL, exclusion, ids, worker};

/// Commits rows together with an order that has no event of its own.
async fn write<B: Backend>(fixture: &Fixture<'_, B>, rows: Vec<NewRow>) {
    let mut commit = fixture.factory.creation("ann", P0);
    commit.events = rows;
    fixture.committed(commit).await;
}

pub(super) async fn an_event_of_another_service_is_claimed_as_it_was_written<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut row = fixture.factory.external_row("customer \"7\" / müller", 3, P0);
    row.trace = Some(fixture.factory.trace());
    write(&fixture, vec![row.clone()]).await;

    let claimed = worker(backend, "a", P0).await.claim(ALL).await.rows.remove(0);

    assert_eq!((claimed.event_id, &claimed.key), (row.event_id, &row.key));
    assert_eq!((&claimed.event_type, &claimed.topic, claimed.sequence), (&row.event_type, &row.topic, 3));
    assert_eq!((claimed.payload.as_deref(), claimed.occurred_at), (Some(&*row.payload), row.occurred_at));
    assert_eq!((claimed.stamp, claimed.trace), (None, row.trace));
    assert_eq!((claimed.headers, claimed.content_type), (row.headers, row.content_type));
    assert_eq!((claimed.request_id, claimed.contract_checksum), (row.request_id, None));
}

pub(super) async fn later_rows_of_a_text_key_wait_for_their_head<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let row = |key: &str, sequence| fixture.factory.external_row(key, sequence, P0);
    write(&fixture, vec![row("customer-7", 1), row("customer-8", 1), row("customer-7", 2)]).await;
    let mut worker = worker(backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;
    let [head, other, follower] = ids(&batch.rows)[..] else { panic!("three rows are due: {:?}", batch.rows) };

    let returned = worker.exclude(&[exclusion(head, Disposition::Retry(RETRY))], &mut batch).await;
    batch.rows.retain(|row| row.id == other);
    worker.settle(&batch).await;

    assert_eq!(returned, 2, "the head and its follower leave the batch");
    worker.expect_nothing_due().await;
    assert_eq!(fixture.row(other).await.status, RowStatus::Sent);
    fixture.advance(RETRY + SECOND).await;
    assert_eq!(ids(&worker.drain(ALL).await), [head, follower]);
}

pub(super) async fn operators_find_rows_by_text_key_and_by_any_type<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (first, second) =
        (fixture.factory.external_row("customer-7", 1, P0), fixture.factory.external_row("Customer-7", 1, P0));
    write(&fixture, vec![first.clone(), second]).await;
    let found =
        async |filter| fixture.rows(filter).await.into_iter().map(|row| row.key.to_string()).collect::<Vec<_>>();
    let of_key = |key: &EventKey| RowFilter { key: Some(key.clone()), ..RowFilter::default() };

    assert_eq!(found(of_key(&first.key)).await, ["customer-7"]);
    assert_eq!(found(of_key(&EventKey::from_text("customer-9"))).await, Vec::<String>::new());
    assert_eq!(found(of_key(&EventKey::from_stored(first.key.group(), None))).await, Vec::<String>::new());
    let of_type = RowFilter { event_type: Some(first.event_type.to_string()), ..RowFilter::default() };
    assert_eq!(found(of_type).await, ["customer-7", "Customer-7"]);
    let diagnosis = fixture.diagnosis(RowSelector::Key(first.key.clone())).await;
    assert_eq!((diagnosis.row.event_id, diagnosis.row.key), (first.event_id, first.key));
}
