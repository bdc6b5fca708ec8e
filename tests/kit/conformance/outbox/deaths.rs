//! Cases of `OutboxStore`: poison isolation. A row that kills its claimer is identified in trials, and rows claimed with it are not parked.
use crate::conformance::fixture::worker::keys;
use std::time::Duration;

use ports::operators::{RowFilter, RowSelector};
use ports::outbox::{BatchOutcome, ClaimKind, ClaimOutcome, ClaimedRow, PoisonPolicy, RowStatus};
use ports::partitions::{AcquireReason, Acquisition};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{Fixture, P0, P1, SECOND, fixture, instance};
use crate::conformance::fixture::worker::{ALL, DEAD_AFTER, LEASE, Worker, ids, worker};

/// A store keeps 10 s between two trials of a row; a case waits longer than that.
pub(super) const BETWEEN_TRIALS: Duration = Duration::from_secs(11);

/// A row that is a suspect and due for its trial, in a partition without other rows.
pub(super) async fn suspect<'b, B: Backend>(fixture: &Fixture<'b, B>) -> (Worker<'b, B>, ClaimedRow) {
    fixture.place_order(P0).await;
    let mut worker = worker(fixture.backend, "a", P0).await;
    let mut row = None;
    for _ in 0..3 {
        let mut batch = worker.claim(ALL).await;
        worker.crash_with(batch.token).await;
        row = Some(batch.rows.remove(0));
    }
    fixture.advance(BETWEEN_TRIALS).await;
    (worker, row.expect("the row was claimed"))
}

pub(super) async fn deaths<B: Backend>(fixture: &Fixture<'_, B>, row: &ClaimedRow) -> u32 {
    fixture.diagnosis(RowSelector::Event(row.event_id)).await.deaths
}

pub(super) async fn a_death_counts_for_every_row_and_keeps_the_attempts<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(2).await;

    worker.crash_with(batch.token).await;

    for row in &batch.rows {
        assert_eq!((deaths(&fixture, row).await, fixture.row(row.id).await.retry_count), (1, 1));
        assert_ne!(fixture.row(row.id).await.status, RowStatus::InFlight);
    }
    let again = worker.claim(1).await;
    assert_eq!((again.rows[0].id, again.rows[0].attempt), (batch.rows[0].id, 2));
}

pub(super) async fn a_batch_resolved_as_not_sent_counts_no_death<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;

    for _ in 0..5 {
        let batch = worker.claim(ALL).await;
        assert_eq!((batch.rows.len(), batch.rows[0].attempt), (2, 1));
        let open = worker.reacquire(AcquireReason::OutcomeUnknown).await.expect("the batch is open");
        assert!(!open.claimer_died);
        worker.resolve(open.token, BatchOutcome::NotSent).await;
        assert_eq!(deaths(&fixture, &batch.rows[0]).await, 0);
    }
}

pub(super) async fn rows_with_deaths_are_claimed_in_ever_smaller_batches<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(64, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let all = worker.claim(64).await;
    assert_eq!(all.rows.len(), 64);
    worker.crash_with(all.token).await;

    let eighth = worker.claim(64).await;
    assert_eq!(ids(&eighth.rows), ids(&all.rows)[..8]);
    worker.crash_with(eighth.token).await;

    let one = worker.claim(64).await;
    assert_eq!(ids(&one.rows), ids(&all.rows)[..1]);
    worker.crash_with(one.token).await;

    let mut batches = 0;
    while let ClaimOutcome::Batch(batch) = worker.try_claim(64, ClaimKind::Ordinary).await {
        batches += 1;
        assert!(batches <= 64, "the same rows are claimed without end");
        let mut deaths_max = 0;
        for row in &batch.rows {
            deaths_max = deaths_max.max(deaths(&fixture, row).await);
        }
        assert!(deaths_max < 3, "an ordinary claim contains a suspect");
        assert!(
            batch.rows.len() <= (64 / 8_usize.pow(deaths_max)).max(1),
            "{} rows with {deaths_max} deaths",
            batch.rows.len()
        );
        worker.settle(&batch).await;
    }
    assert_eq!(fixture.depth().await.sent, 63, "every row except the suspect");
}

pub(super) async fn a_row_with_three_deaths_is_never_in_an_ordinary_claim<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, row) = suspect(&fixture).await;

    assert_eq!(deaths(&fixture, &row).await, 3);
    assert_eq!(worker.expect_nothing_due().await, (None, true), "a suspect is due");
    let other = fixture.place_order(P0).await;
    let sent = worker.drain(ALL).await;
    assert_eq!(keys(&sent), [other.id]);
}

pub(super) async fn a_suspect_blocks_its_key_and_no_other<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, row) = suspect(&fixture).await;
    let order = backend.orders().find(keys(std::slice::from_ref(&row))[0]).await.expect("found").expect("it exists");
    fixture.committed(fixture.factory.change(&order, domain::Status::Shipped, P0)).await;
    fixture.place_orders(2, P0).await;

    let sent = worker.drain(ALL).await;

    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|sent| sent.key != row.key), "a later row overtook the suspect");
    let trial = worker.trial().await;
    worker.settle(&trial).await;
    assert_eq!(worker.claim(ALL).await.rows[0].sequence, 2);
}

pub(super) async fn a_trial_claims_one_suspect_and_nothing_else<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, row) = suspect(&fixture).await;
    fixture.place_orders(3, P0).await;

    let trial = worker.trial().await;

    assert_eq!(ids(&trial.rows), [row.id]);
    assert_eq!(trial.rows[0].attempt, 4);
}

pub(super) async fn a_trial_without_a_suspect_finds_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;

    let claimed = worker.try_claim(ALL, ClaimKind::Trial).await;

    assert!(matches!(claimed, ClaimOutcome::NoneDue { suspect_due: false, .. }), "{claimed:?}");
    assert_eq!(worker.claim(ALL).await.rows.len(), 2, "the counter did not change");
}

pub(super) async fn a_suspect_that_survives_its_trial_is_sent<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, row) = suspect(&fixture).await;

    let trial = worker.trial().await;
    assert_eq!(worker.settle(&trial).await, 1);

    assert_eq!(fixture.row(row.id).await.status, RowStatus::Sent);
}

pub(super) async fn a_second_death_in_a_trial_parks_the_row<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, row) = suspect(&fixture).await;

    let first = worker.trial().await;
    worker.crash_with(first.token).await;
    assert_ne!(fixture.row(row.id).await.status, RowStatus::Parked, "one death in a trial parks no row");
    fixture.advance(BETWEEN_TRIALS).await;
    let second = worker.trial().await;
    worker.crash_with(second.token).await;

    let parked = fixture.row(row.id).await;
    assert_eq!(parked.status, RowStatus::Parked);
    assert!(parked.last_failure_reason.is_some(), "the row shows why it was parked");
    fixture.advance(BETWEEN_TRIALS).await;
    assert_eq!(worker.expect_nothing_due().await, (None, false));
}

pub(super) async fn a_trial_resolved_as_not_sent_counts_no_death<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, row) = suspect(&fixture).await;

    for _ in 0..4 {
        let trial = worker.trial().await;
        let open = worker.reacquire(AcquireReason::OutcomeUnknown).await.expect("the batch is open");
        assert!(!open.claimer_died);
        worker.resolve(trial.token, BatchOutcome::NotSent).await;
        fixture.advance(BETWEEN_TRIALS).await;
    }

    assert_ne!(fixture.row(row.id).await.status, RowStatus::Parked);
    assert_eq!(worker.trial().await.rows[0].id, row.id);
}

pub(super) async fn an_owners_death_clears_the_deaths_of_rows_not_in_flight<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    for limit in [2, 1] {
        let batch = worker.claim(limit).await;
        worker.crash_with(batch.token).await;
    }
    let claimed_row = worker.claim(1).await.rows.remove(0);
    let other = fixture.rows(RowFilter::default()).await.remove(1);
    assert_ne!(claimed_row.id, other.id);
    let before =
        (deaths(&fixture, &claimed_row).await, fixture.diagnosis(RowSelector::Event(other.event_id)).await.deaths);
    assert!(before.0 >= 1 && before.1 == 1, "{before:?}");
    fixture.advance(DEAD_AFTER + SECOND).await;

    let b = instance("b");
    backend.leases().heartbeat(&b, DEAD_AFTER).await.expect("the heartbeat is stored");
    let acquired =
        backend.leases().acquire(P0, &b, AcquireReason::Unowned, None, LEASE).await.expect("the call succeeds");

    let Acquisition::Acquired(acquired) = acquired else { panic!("the owner is dead: {acquired:?}") };
    let open = acquired.open_batch.expect("the batch is open");
    assert!(open.claimer_died);
    backend
        .outbox()
        .resolve(&acquired.fence, open.token, BatchOutcome::ClaimerDied, &PoisonPolicy::default())
        .await
        .expect("the call succeeds");
    assert_eq!(
        fixture.diagnosis(RowSelector::Event(other.event_id)).await.deaths,
        0,
        "a row not in flight loses its deaths"
    );
    assert!(deaths(&fixture, &claimed_row).await > before.0.min(2), "a row in flight gets one more death");
}

pub(super) async fn reacquiring_with_an_unknown_outcome_clears_no_deaths<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    worker.crash_with(batch.token).await;

    assert_eq!(worker.reacquire(AcquireReason::OutcomeUnknown).await, None);

    for row in &batch.rows {
        assert_eq!(deaths(&fixture, row).await, 1);
    }
}

pub(super) async fn a_service_killed_at_random_parks_no_row<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(40, P0).await;
    fixture.place_order(P1).await;
    let (mut owners, mut killed_with_a_batch, mut killed_rows) = (0, 0, 0);
    let mut left = fixture.depth().await.pending - 1;

    // Every owner settles its first batch and dies in its second, so each owner sends some rows: 200 owners are enough.
    while left > 0 {
        owners += 1;
        assert!(owners <= 200, "{left} rows are not sent: {:?}", fixture.depth().await);
        let owner = instance(&format!("owner-{owners}"));
        backend.leases().heartbeat(&owner, DEAD_AFTER).await.expect("the heartbeat is stored");
        let acquired =
            backend.leases().acquire(P0, &owner, AcquireReason::Unowned, None, LEASE).await.expect("the call succeeds");
        let Acquisition::Acquired(acquired) = acquired else { panic!("the previous owner is dead: {acquired:?}") };
        let mut worker = Worker::of(backend, acquired.fence);
        if let Some(open) = acquired.open_batch {
            assert!(open.claimer_died);
            worker.resolve(open.token, BatchOutcome::ClaimerDied).await;
        }
        for dies in [false, true] {
            let claimed = match worker.try_claim(8, ClaimKind::Ordinary).await {
                ClaimOutcome::NoneDue { suspect_due: true, .. } => worker.try_claim(8, ClaimKind::Trial).await,
                other => other,
            };
            match (claimed, dies) {
                (ClaimOutcome::Batch(batch), false) => drop(worker.settle(&batch).await),
                (ClaimOutcome::Batch(batch), true) => {
                    (killed_with_a_batch, killed_rows) = (killed_with_a_batch + 1, killed_rows + batch.rows.len());
                }
                (ClaimOutcome::NoneDue { .. } | ClaimOutcome::Fenced, _) => {}
            }
        }
        fixture.advance(DEAD_AFTER + SECOND).await;
        let depth = fixture.depth().await;
        assert_eq!(depth.parked, 0, "a healthy row was parked");
        left = depth.pending + depth.in_flight + depth.failed - 1;
    }
    // Only an owner that dies with rows in flight tries the rule.
    assert!(
        killed_with_a_batch >= 3 && killed_rows >= 12,
        "{killed_with_a_batch} of {owners} owners, {killed_rows} rows"
    );
}
