//! Cases of `OutboxStore`: a batch is settled and the next one claimed in one call.
use ports::operators::RowFilter;
use ports::outbox::{Claim, ClaimKind, ClaimOutcome, Disposition, FencedOutcome, RowStatus, SettledClaim, Settlement};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{P0, RETRY, audit, fixture};
use crate::conformance::fixture::worker::{ALL, batch, ids, keys, worker};

pub(super) async fn a_settlement_and_the_claim_after_it_are_one_call<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let first = worker.claim(2).await;

    let (settled, claimed) = worker.settle_and_claim(&first, ALL).await;

    let second = batch(claimed);
    assert_eq!((settled, second.rows.len(), second.more), (2, 1, false));
    for id in ids(&first.rows) {
        assert_eq!(fixture.row(id).await.status, RowStatus::Sent);
    }
    assert_eq!(fixture.row(second.rows[0].id).await.status, RowStatus::InFlight);
    assert_eq!(fixture.view(P0).await.open_batch, Some(second.token));

    let (settled, claimed) = worker.settle_and_claim(&second, ALL).await;

    assert_eq!(settled, 1);
    assert!(matches!(claimed, ClaimOutcome::NoneDue { next_due: None, suspect_due: false }), "{claimed:?}");
    let view = fixture.view(P0).await;
    assert_eq!((view.open_batch, view.counter, view.depth), (None, worker.fence.counter, 0));
}

pub(super) async fn a_stale_settlement_claims_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let open = worker.claim(1).await;
    let before = fixture.view(P0).await;
    let stale = Settlement { token: open.token - 1, ..worker.settlement(&open) };
    let (fence, session) = (worker.fence.clone(), worker.session.clone());
    let claim = Claim { fence, session, limit: ALL, kind: ClaimKind::Ordinary };

    let result = backend.outbox().settle_and_claim(stale, claim).await.expect("the call succeeds");

    assert!(
        matches!(result, SettledClaim { settled: FencedOutcome::Stale, claimed: Ok(ClaimOutcome::Fenced) }),
        "{result:?}"
    );
    assert_eq!(fixture.view(P0).await, before);
    assert_eq!(worker.settle(&open).await, 1, "the batch is open");
}

pub(super) async fn rows_that_a_settlement_unblocks_are_part_of_its_claim<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let key = fixture.order_with_rows(3, P0).await.id;
    let mut worker = worker(backend, "a", P0).await;
    worker.exclude_head(key, Disposition::Retry(RETRY)).await;
    fixture.place_orders(2, P0).await;
    fixture.advance(RETRY * 2).await;
    let head = worker.claim(ALL).await;
    assert_eq!(keys(&head.rows).iter().filter(|other| **other == key).count(), 1, "its followers wait");

    let (_, claimed) = worker.settle_and_claim(&head, 1).await;

    let first = batch(claimed);
    assert_eq!((keys(&first.rows), first.more), (vec![key], true), "the earliest follower");
    let (_, claimed) = worker.settle_and_claim(&first, ALL).await;
    let second = batch(claimed);
    assert_eq!(keys(&second.rows), [key]);
    assert!(second.rows[0].sequence > first.rows[0].sequence);
}

pub(super) async fn a_statement_before_the_settlement_does_not_stop_its_claim<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let first = worker.claim(1).await;
    let rows = fixture.rows(RowFilter::default()).await;
    let waiting = rows.iter().find(|row| row.status == RowStatus::Pending).expect("two rows wait").id;
    backend.operators().park(waiting, &audit()).await.expect("the call succeeds");

    let (settled, claimed) = worker.settle_and_claim(&first, ALL).await;

    let second = batch(claimed);
    assert_eq!((settled, second.rows.len()), (1, 1), "an operator parked the other row");
    assert_ne!(second.rows[0].id, waiting);
}
