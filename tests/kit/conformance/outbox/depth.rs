//! Cases of `OutboxStore`: the events and the depth of the outbox, and the sweep of archived rows.
use crate::conformance::fixture::worker::orders_of;
use ports::orders::event_key;
use std::time::Duration;

use ports::operators::RowFilter;
use ports::outbox::{Disposition, RowStatus};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{DAY, HOUR, P0, P1, RETRY, SECOND, fixture};
use crate::conformance::fixture::worker::{ALL, exclusion, worker};

pub(super) async fn the_outbox_contains_its_own_events_sent_or_not<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let sent = worker.claim(1).await;
    worker.settle(&sent).await;
    let contains = async |event| backend.outbox().contains(event).await.expect("the call succeeds");

    let own: Vec<_> = fixture.rows_of(order.id).await.into_iter().map(|row| (row.event_id, row.status)).collect();

    assert_eq!(own.iter().map(|(_, status)| *status).collect::<Vec<_>>(), [RowStatus::Sent, RowStatus::Pending]);
    for (event, status) in own {
        assert!(contains(event).await, "{status:?}");
    }
    let (_, never_written) = fixture.factory.placed("ann");
    assert!(!contains(never_written.id).await);
}

pub(super) async fn depth_counts_every_status<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(5, P0).await;
    fixture.place_order(P1).await;
    let mut worker = worker(backend, "a", P0).await;
    let sent = worker.claim(1).await;
    worker.settle(&sent).await;
    let mut batch = worker.claim(3).await;
    let row = |at: usize, disposition| exclusion(batch.rows[at].id, disposition);
    worker.exclude(&[row(0, Disposition::Retry(RETRY)), row(1, Disposition::ParkRow)], &mut batch).await;

    let depth = fixture.depth().await;

    let counts = (depth.pending, depth.in_flight, depth.failed, depth.parked, depth.sent);
    assert_eq!(counts, (2, 1, 1, 1, 1));
    assert_eq!(fixture.view(P0).await.depth, 4, "unsent rows of the partition");
}

pub(super) async fn oldest_unsent_uses_the_stores_clock_and_ignores_parked_rows<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    assert_eq!(fixture.depth().await.oldest_unsent, None);
    let parked = fixture.place_order(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    fixture.advance(HOUR).await;
    let old = fixture.depth().await.oldest_unsent.expect("a row waits");
    assert!(old >= HOUR && old < HOUR + SECOND * 120, "{old:?}");

    worker.exclude_head(parked.id, Disposition::ParkKey).await;
    assert_eq!(fixture.depth().await.oldest_unsent, None);

    fixture.place_order(P0).await;
    let young = fixture.depth().await.oldest_unsent.expect("a row waits");
    assert!(young < SECOND * 120, "{young:?}");
}

pub(super) async fn oldest_unsent_ignores_rows_behind_a_parked_one<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (parked, other) = (fixture.order_with_rows(3, P0).await, fixture.order_with_rows(2, P1).await);
    let [mut of_parked, mut of_other] = [worker(backend, "a", P0).await, worker(backend, "a", P1).await];
    of_parked.exclude_head(parked.id, Disposition::ParkKey).await;
    fixture.advance(HOUR).await;
    let old = fixture.depth().await.oldest_unsent.expect("a row waits");
    assert!(old >= HOUR && old < HOUR + SECOND * 120, "the other key waits for no operator: {old:?}");

    of_other.drain(ALL).await;
    assert_eq!(fixture.statuses(other.id).await, [RowStatus::Sent; 2]);
    assert_eq!(fixture.depth().await.oldest_unsent, None);

    fixture.place_order(P0).await;
    let young = fixture.depth().await.oldest_unsent.expect("a row waits");
    assert!(young < SECOND * 120, "{young:?}");
}

pub(super) async fn a_sweep_deletes_only_old_sent_rows_up_to_its_limit<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut worker = worker(backend, "a", P0).await;
    fixture.place_orders(3, P0).await;
    // One row per batch: an archive may be stored by batch.
    worker.drain(1).await;
    fixture.advance(DAY + SECOND).await;
    let young = fixture.place_order(P0).await;
    worker.drain(ALL).await;
    fixture.advance(HOUR).await;

    backend.outbox().sweep(DAY, 2).await.expect("swept");
    assert!(fixture.depth().await.sent >= 2, "a sweep deletes at most two rows");
    let mut rounds = 0;
    while backend.outbox().sweep(DAY, 2).await.expect("swept") > 0 {
        rounds += 1;
        assert!(rounds < 20, "the sweep does not end");
    }

    let sent = fixture.rows(RowFilter { status: Some(RowStatus::Sent), ..RowFilter::default() }).await;
    assert_eq!(orders_of(&sent), [young.id]);
}

pub(super) async fn a_sweep_never_deletes_an_unsent_row<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut worker = worker(backend, "a", P0).await;
    let (waits, parked) = (fixture.order_with_rows(2, P0).await, fixture.place_order(P0).await);
    let mut batch = worker.claim(ALL).await;
    let dispositions = [(waits.id, Disposition::Retry(DAY * 50)), (parked.id, Disposition::ParkKey)];
    let excluded = dispositions.map(|(key, disposition)| {
        exclusion(batch.rows.iter().find(|row| row.key == event_key(key)).expect("claimed").id, disposition)
    });
    worker.exclude(&excluded, &mut batch).await;
    worker.settle(&batch).await;
    fixture.place_orders(3, P0).await;
    worker.drain(ALL).await;
    fixture.advance(DAY * 40).await;
    fixture.place_order(P0).await;

    for _ in 0..5 {
        backend.outbox().sweep(Duration::ZERO, 100).await.expect("swept");
    }

    use RowStatus::{Failed, Parked, Pending};
    assert_eq!(fixture.statuses(waits.id).await, [Failed, Pending]);
    assert_eq!(fixture.statuses(parked.id).await, [Parked]);
    fixture.advance(DAY * 11).await;
    let sent = worker.drain(ALL).await;
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|row| row.payload.is_some()), "unsent rows keep their payloads");
}
