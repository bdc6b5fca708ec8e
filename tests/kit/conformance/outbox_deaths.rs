//! Cases of `OutboxStore`: a row that kills whoever handles it is found out, alone, and its neighbours are not.
use ports::operators::RowSelector;
use ports::outbox::{BatchOutcome, ClaimKind, Claimed, ClaimedRow, RowStatus};
use ports::partitions::{AcquireReason, Acquisition};

use super::given::{Given, P0, P1, SECOND, given, instance};
use super::worker::{ALL, DEAD_AFTER, LEASE, Worker, ids, worker};
use crate::backend::Backend;

/// Trials are ten seconds apart; whether the store or its caller sees to that is nobody's promise here.
const BETWEEN_TRIALS: std::time::Duration = std::time::Duration::from_secs(11);

/// One row, already a suspect and due for its trial, in a partition that is otherwise empty.
async fn suspect<'b, B: Backend>(given: &Given<'b, B>) -> (Worker<'b, B>, ClaimedRow) {
    given.placed(P0).await;
    let mut worker = worker(given.backend, "a", P0).await;
    let mut row = None;
    for _ in 0..3 {
        let mut batch = worker.claim(ALL).await;
        worker.die_with(batch.token).await;
        row = Some(batch.rows.remove(0));
    }
    given.advance(BETWEEN_TRIALS).await;
    (worker, row.expect("it was claimed"))
}

async fn deaths<B: Backend>(given: &Given<'_, B>, row: &ClaimedRow) -> u32 {
    given.diagnose(RowSelector::Event(row.event_id)).await.deaths
}

pub(super) async fn a_death_keeps_the_attempt_and_is_carried_by_every_row_of_the_batch<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(2).await;

    worker.die_with(batch.token).await;

    for row in &batch.rows {
        assert_eq!((deaths(&given, row).await, given.row(row.id).await.retry_count), (1, 1));
        assert_ne!(given.row(row.id).await.status, RowStatus::InFlight);
    }
    let again = worker.claim(1).await;
    assert_eq!((again.rows[0].id, again.rows[0].attempt), (batch.rows[0].id, 2));
}

pub(super) async fn nobodys_death_is_carried_when_a_batch_is_returned<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;

    for _ in 0..5 {
        let batch = worker.claim(ALL).await;
        assert_eq!((batch.rows.len(), batch.rows[0].attempt), (2, 1));
        let open = worker.again(AcquireReason::Uncertain).await.expect("the batch is open");
        assert!(!open.claimer_died);
        worker.resolve(open.token, BatchOutcome::NotSent).await;
        assert_eq!(deaths(&given, &batch.rows[0]).await, 0);
    }
}

pub(super) async fn rows_that_carry_deaths_come_in_ever_smaller_pieces<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(64, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let all = worker.claim(64).await;
    assert_eq!(all.rows.len(), 64);
    worker.die_with(all.token).await;

    let eighth = worker.claim(64).await;
    assert_eq!(ids(&eighth.rows), ids(&all.rows)[..8]);
    worker.die_with(eighth.token).await;

    let one = worker.claim(64).await;
    assert_eq!(ids(&one.rows), ids(&all.rows)[..1]);
    worker.die_with(one.token).await;

    let mut pieces = 0;
    while let Claimed::Batch(piece) = worker.ask(64, ClaimKind::Ordinary).await {
        pieces += 1;
        assert!(pieces <= 64, "rows come back for ever");
        let mut worst = 0;
        for row in &piece.rows {
            worst = worst.max(deaths(&given, row).await);
        }
        assert!(worst < 3, "a suspect beside other work");
        assert!(piece.rows.len() <= (64 / 8_usize.pow(worst)).max(1), "{} rows with {worst} deaths", piece.rows.len());
        worker.settle(&piece).await;
    }
    assert_eq!(given.depth().await.sent, 63, "all but the suspect");
}

pub(super) async fn a_row_with_three_deaths_is_never_claimed_beside_other_work<B: Backend>(backend: &B) {
    let given = given(backend);
    let (mut worker, row) = suspect(&given).await;

    assert_eq!(deaths(&given, &row).await, 3);
    assert_eq!(worker.nothing().await, (None, true), "a suspect is due");
    let other = given.placed(P0).await;
    let gone = worker.drain(ALL).await;
    assert_eq!(gone.iter().map(|row| row.key).collect::<Vec<_>>(), [other.id]);
}

pub(super) async fn a_suspects_later_rows_wait_and_other_keys_go_on<B: Backend>(backend: &B) {
    let given = given(backend);
    let (mut worker, row) = suspect(&given).await;
    let order = backend.orders().find(row.key).await.expect("found").expect("there");
    given.done(given.make.change(&order, domain::Status::Shipped, P0)).await;
    given.many_placed(2, P0).await;

    let gone = worker.drain(ALL).await;

    assert_eq!(gone.len(), 2);
    assert!(gone.iter().all(|gone| gone.key != row.key), "a later row overtook the suspect");
    let trial = worker.trial().await;
    worker.settle(&trial).await;
    assert_eq!(worker.claim(ALL).await.rows[0].sequence, 2);
}

pub(super) async fn a_trial_takes_one_suspect_and_nothing_else<B: Backend>(backend: &B) {
    let given = given(backend);
    let (mut worker, row) = suspect(&given).await;
    given.many_placed(3, P0).await;

    let trial = worker.trial().await;

    assert_eq!(ids(&trial.rows), [row.id]);
    assert_eq!(trial.rows[0].attempt, 4);
}

pub(super) async fn a_trial_without_a_suspect_finds_nothing<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;

    let claimed = worker.ask(ALL, ClaimKind::Trial).await;

    assert!(matches!(claimed, Claimed::Nothing { suspect_due: false, .. }), "{claimed:?}");
    assert_eq!(worker.claim(ALL).await.rows.len(), 2, "and leaves the counter alone");
}

pub(super) async fn a_suspect_that_survives_its_trial_is_sent<B: Backend>(backend: &B) {
    let given = given(backend);
    let (mut worker, row) = suspect(&given).await;

    let trial = worker.trial().await;
    assert_eq!(worker.settle(&trial).await, 1);

    assert_eq!(given.row(row.id).await.status, RowStatus::Sent);
}

pub(super) async fn a_row_that_died_in_two_trials_is_parked_and_not_before<B: Backend>(backend: &B) {
    let given = given(backend);
    let (mut worker, row) = suspect(&given).await;

    let first = worker.trial().await;
    worker.die_with(first.token).await;
    assert_ne!(given.row(row.id).await.status, RowStatus::Parked, "one death in a trial may be chance");
    given.advance(BETWEEN_TRIALS).await;
    let second = worker.trial().await;
    worker.die_with(second.token).await;

    let parked = given.row(row.id).await;
    assert_eq!(parked.status, RowStatus::Parked);
    assert!(parked.last_failure_reason.is_some(), "an operator is told why");
    given.advance(BETWEEN_TRIALS).await;
    assert_eq!(worker.nothing().await, (None, false));
}

pub(super) async fn a_returned_trial_convicts_nobody<B: Backend>(backend: &B) {
    let given = given(backend);
    let (mut worker, row) = suspect(&given).await;

    for _ in 0..4 {
        let trial = worker.trial().await;
        let open = worker.again(AcquireReason::Uncertain).await.expect("the batch is open");
        assert!(!open.claimer_died);
        worker.resolve(trial.token, BatchOutcome::NotSent).await;
        given.advance(BETWEEN_TRIALS).await;
    }

    assert_ne!(given.row(row.id).await.status, RowStatus::Parked);
    assert_eq!(worker.trial().await.rows[0].id, row.id);
}

pub(super) async fn a_dead_owner_clears_the_deaths_of_rows_it_did_not_have_in_hand<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    for limit in [2, 1] {
        let batch = worker.claim(limit).await;
        worker.die_with(batch.token).await;
    }
    let in_hand = worker.claim(1).await.rows.remove(0);
    let other = given.rows(ports::operators::RowFilter::default()).await.remove(1);
    assert_ne!(in_hand.id, other.id);
    let before = (deaths(&given, &in_hand).await, given.diagnose(RowSelector::Event(other.event_id)).await.deaths);
    assert!(before.0 >= 1 && before.1 == 1, "{before:?}");
    given.advance(DEAD_AFTER + SECOND).await;

    let b = instance("b");
    backend.leases().heartbeat(&b, DEAD_AFTER).await.expect("heard");
    let acquired = backend.leases().acquire(P0, &b, AcquireReason::Vacant, None, LEASE).await.expect("answered");

    let Acquisition::Taken(acquired) = acquired else { panic!("its owner is dead: {acquired:?}") };
    let open = acquired.in_flight.expect("the batch was left open");
    assert!(open.claimer_died);
    backend.outbox().resolve(&acquired.fence, open.token, BatchOutcome::ClaimerDied).await.expect("answered");
    assert_eq!(given.diagnose(RowSelector::Event(other.event_id)).await.deaths, 0, "it was not in hand: innocent");
    assert!(deaths(&given, &in_hand).await > before.0.min(2), "it was in hand: one death more");
}

pub(super) async fn a_live_workers_doubt_clears_nothing<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    worker.die_with(batch.token).await;

    assert_eq!(worker.again(AcquireReason::Uncertain).await, None);

    for row in &batch.rows {
        assert_eq!(deaths(&given, row).await, 1);
    }
}

pub(super) async fn a_service_killed_at_random_parks_nothing<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(40, P0).await;
    given.placed(P1).await;
    let mut name = 0;
    let mut left = given.depth().await.pending - 1;

    // Every owner dies in its second batch: the first has gone, so each life takes something along. Some hundred lives are ample.
    while left > 0 {
        name += 1;
        assert!(name <= 200, "{left} rows are stuck: {:?}", given.depth().await);
        let owner = instance(&format!("life-{name}"));
        backend.leases().heartbeat(&owner, DEAD_AFTER).await.expect("heard");
        let acquired =
            backend.leases().acquire(P0, &owner, AcquireReason::Vacant, None, LEASE).await.expect("answered");
        let Acquisition::Taken(acquired) = acquired else { panic!("the one before is dead: {acquired:?}") };
        let mut life = Worker::of(backend, acquired.fence);
        if let Some(open) = acquired.in_flight {
            assert!(open.claimer_died);
            life.resolve(open.token, BatchOutcome::ClaimerDied).await;
        }
        for dies in [false, true] {
            let claimed = match life.ask(8, ClaimKind::Ordinary).await {
                Claimed::Nothing { suspect_due: true, .. } => life.ask(8, ClaimKind::Trial).await,
                other => other,
            };
            if let (Claimed::Batch(batch), false) = (claimed, dies) {
                life.settle(&batch).await;
            }
        }
        given.advance(DEAD_AFTER + SECOND).await;
        let depth = given.depth().await;
        assert_eq!(depth.parked, 0, "an innocent row was parked");
        left = depth.pending + depth.in_flight + depth.failed - 1;
    }
}
