//! Cases of `OutboxStore`: a row parked by its deaths in trials follows the poison policy of its topic and event type.
use domain::{OrderId, Status};
use ports::outbox::{BatchOutcome, ClaimedRow, PoisonAction, PoisonPolicy, RowStatus};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{Fixture, P0, fixture};
use crate::conformance::fixture::worker::{ALL, Worker};
use crate::conformance::outbox::deaths::{BETWEEN_TRIALS, suspect};

/// The second event of the suspect's key, which waits behind it.
async fn change_of<B: Backend>(fixture: &Fixture<'_, B>, row: &ClaimedRow) {
    let id = OrderId::parse(&row.key.to_text()).expect("an order's id");
    let order = fixture.backend.orders().find(id).await.expect("found").expect("it exists");
    fixture.committed(fixture.factory.change(&order, Status::Shipped, P0)).await;
}

/// Lets the suspect kill its claimer in two trials.
async fn die_in_two_trials<B: Backend>(fixture: &Fixture<'_, B>, worker: &mut Worker<'_, B>, policy: &PoisonPolicy) {
    for _ in 0..2 {
        let trial = worker.trial().await;
        worker.crash_under(trial.token, policy).await;
        fixture.advance(BETWEEN_TRIALS).await;
    }
}

pub(super) async fn a_row_parked_as_poison_blocks_its_key_under_block_key<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, row) = suspect(&fixture).await;
    change_of(&fixture, &row).await;
    let other_type =
        PoisonPolicy::from_iter([(&*row.event_type, PoisonAction::BlockKey), ("ANOTHER_TYPE", PoisonAction::SkipRow)]);

    die_in_two_trials(&fixture, &mut worker, &other_type).await;

    assert_eq!(fixture.row(row.id).await.status, RowStatus::Parked);
    assert_eq!(worker.expect_nothing_due().await, (None, false), "the later row of the key waits");
}

pub(super) async fn a_row_parked_as_poison_does_not_block_its_key_under_skip_row<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, row) = suspect(&fixture).await;
    change_of(&fixture, &row).await;
    let policy = PoisonPolicy::from_iter([(&*row.event_type, PoisonAction::SkipRow)]);

    die_in_two_trials(&fixture, &mut worker, &policy).await;

    assert_eq!(fixture.row(row.id).await.status, RowStatus::Parked);
    let later = worker.claim(ALL).await;
    assert_eq!(later.rows.iter().map(|row| (&row.key, row.sequence)).collect::<Vec<_>>(), [(&row.key, 2)]);
    worker.settle(&later).await;
    assert_eq!(worker.expect_nothing_due().await, (None, false), "the parked row is not claimed again");
    assert_eq!(fixture.row(row.id).await.status, RowStatus::Parked);
}

/// Whether the later row of a key is claimed after the first was parked under these rules of its topic and of its event type.
async fn key_goes_on<B: Backend>(backend: &B, of_topic: PoisonAction, of_type: PoisonAction) -> bool {
    let fixture = fixture(backend);
    let (mut worker, row) = suspect(&fixture).await;
    change_of(&fixture, &row).await;
    let mut policy = PoisonPolicy::from_iter([(&*row.event_type, of_type)]);
    policy.insert_topic(&*row.topic, of_topic);
    policy.insert_topic("another.topic", of_type);

    die_in_two_trials(&fixture, &mut worker, &policy).await;

    assert_eq!(fixture.row(row.id).await.status, RowStatus::Parked);
    let later = worker.drain(ALL).await;
    later.iter().any(|later| (&later.key, later.sequence) == (&row.key, 2))
}

pub(super) async fn skip_row_of_a_topic_comes_before_block_key_of_the_event_type<B: Backend>(backend: &B) {
    assert!(key_goes_on(backend, PoisonAction::SkipRow, PoisonAction::BlockKey).await);
}

pub(super) async fn block_key_of_a_topic_comes_before_skip_row_of_the_event_type<B: Backend>(backend: &B) {
    assert!(!key_goes_on(backend, PoisonAction::BlockKey, PoisonAction::SkipRow).await);
}

pub(super) async fn a_resolution_returns_the_rows_that_it_parked<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, row) = suspect(&fixture).await;
    let policy = PoisonPolicy::from_iter([(&*row.event_type, PoisonAction::SkipRow)]);

    let first = worker.trial().await;
    assert_eq!(worker.crash_under(first.token, &policy).await, [], "one death in a trial parks no row");
    fixture.advance(BETWEEN_TRIALS).await;
    let second = worker.trial().await;
    let parked = worker.crash_under(second.token, &policy).await;

    let [poison] = &parked[..] else { panic!("{parked:?}") };
    assert_eq!((poison.id, poison.event_id, &poison.key), (row.id, row.event_id, &row.key));
    assert_eq!((&poison.event_type, poison.attempts), (&row.event_type, second.rows[0].attempt));
    assert_eq!((&poison.request_id, row.request_id.is_some()), (&row.request_id, true));
    assert_eq!(Some(&poison.reason), fixture.row(row.id).await.last_failure_reason.as_ref());
}

pub(super) async fn a_repeated_resolution_returns_no_parked_rows<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, _) = suspect(&fixture).await;
    let policy = PoisonPolicy::default();
    let first = worker.trial().await;
    worker.crash_under(first.token, &policy).await;
    fixture.advance(BETWEEN_TRIALS).await;
    let second = worker.trial().await;
    assert_eq!(worker.crash_under(second.token, &policy).await.len(), 1);

    let outcome = BatchOutcome::ClaimerDied;
    let again = backend.outbox().resolve(&worker.fence, second.token, outcome, &policy).await;

    assert_eq!(again.expect("a repetition succeeds").parked, []);
}
