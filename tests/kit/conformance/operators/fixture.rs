//! Helper of the operators' cases: rows that were excluded from a batch.
use ports::outbox::{Disposition, Exclusion, RowId};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{Fixture, P0};
use crate::conformance::fixture::worker::{ALL, Worker, exclusion, ids, worker};

/// Places `keys` orders of one row each and excludes every row with `disposition`; returns the row ids in order.
pub(super) async fn parked<'b, B: Backend>(
    fixture: &Fixture<'b, B>,
    keys: usize,
    disposition: Disposition,
) -> (Worker<'b, B>, Vec<RowId>) {
    fixture.place_orders(keys, P0).await;
    let mut worker = worker(fixture.backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;
    let excluded: Vec<Exclusion> = batch.rows.iter().map(|row| exclusion(row.id, disposition)).collect();
    worker.exclude(&excluded, &mut batch).await;
    worker.settle(&batch).await;
    (worker, ids(&batch.rows))
}
