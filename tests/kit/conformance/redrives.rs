//! The suite of `RedriveLedger`: a dead letter is redriven once, and an unconfirmed reservation expires.
use futures::future::join_all;
use ports::broker::Position;
use ports::operators::Audit;
use ports::operators::redrives::{DeadLetterId, RedriveRecord};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{Fixture, HOUR, RETRY, audit, fixture};

suite! { $ redrives:
    a_free_dead_letter_is_reserved,
    a_reserved_dead_letter_is_not_reserved_twice,
    one_of_many_concurrent_reservations_wins_each_dead_letter,
    an_unconfirmed_reservation_expires,
    a_record_names_the_latest_operator,
    a_confirmed_dead_letter_is_never_reserved_again,
    a_released_dead_letter_is_free_at_once,
    a_confirmed_dead_letter_cannot_be_released,
    a_record_holds_the_operator_and_the_confirmation,
    position_and_timestamp_identify_a_dead_letter,
    an_empty_list_of_dead_letters_is_accepted,
}

impl<B: Backend> Fixture<'_, B> {
    fn dead_letter(&self, partition: u32, offset: u64) -> DeadLetterId {
        let position = Position { topic: "orders-dlt".into(), partition, offset };
        DeadLetterId { position, timestamp: self.factory.next_timestamp() }
    }

    async fn reserve(&self, dead_letters: &[DeadLetterId]) -> Vec<bool> {
        self.backend.redrives().reserve(dead_letters, RETRY, &audit()).await.expect("the reservation succeeds")
    }

    async fn confirm(&self, dead_letters: &[DeadLetterId]) {
        self.backend.redrives().confirm(dead_letters).await.expect("the confirmation succeeds");
    }

    async fn release(&self, dead_letters: &[DeadLetterId]) {
        self.backend.redrives().release(dead_letters).await.expect("the release succeeds");
    }

    async fn redrive_records(&self, dead_letters: &[DeadLetterId]) -> Vec<Option<RedriveRecord>> {
        self.backend.redrives().find(dead_letters).await.expect("the records are read")
    }
}

async fn a_free_dead_letter_is_reserved<B: Backend>(backend: &B) {
    let fixture = fixture(backend);

    assert_eq!(fixture.reserve(&[fixture.dead_letter(1, 7), fixture.dead_letter(0, 3)]).await, [true, true]);
}

async fn a_reserved_dead_letter_is_not_reserved_twice<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (first, second) = (fixture.dead_letter(0, 0), fixture.dead_letter(0, 1));
    fixture.reserve(std::slice::from_ref(&first)).await;

    assert_eq!(
        fixture.reserve(&[second, first]).await,
        [true, false],
        "the results are in the order of the dead letters"
    );
}

async fn one_of_many_concurrent_reservations_wins_each_dead_letter<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let dead_letters: Vec<DeadLetterId> = (0..40).map(|offset| fixture.dead_letter(0, offset)).collect();
    let backwards: Vec<DeadLetterId> = dead_letters.iter().rev().cloned().collect();

    let reserved =
        join_all([&dead_letters, &backwards, &dead_letters, &backwards].map(|ids| fixture.reserve(ids))).await;

    let winners = |at: usize| {
        reserved
            .iter()
            .enumerate()
            .filter(|(call, reserved)| reserved[if call % 2 == 0 { at } else { 39 - at }])
            .count()
    };
    assert!((0..40).all(|at| winners(at) == 1), "{reserved:?}");
}

async fn an_unconfirmed_reservation_expires<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let dead_letter = [fixture.dead_letter(0, 0)];
    fixture.reserve(&dead_letter).await;

    backend.advance(RETRY / 2).await;
    assert_eq!(fixture.reserve(&dead_letter).await, [false], "the reservation has not expired");
    backend.advance(RETRY / 2).await;
    assert_eq!(fixture.reserve(&dead_letter).await, [true]);
    assert_eq!(fixture.reserve(&dead_letter).await, [false], "a new reservation starts a new expiry");
}

async fn a_record_names_the_latest_operator<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let dead_letter = [fixture.dead_letter(0, 0)];
    fixture.reserve(&dead_letter).await;
    backend.advance(HOUR).await;
    let another = Audit { operator: "otto".into(), reason: "ticket 8".into() };

    assert_eq!(backend.redrives().reserve(&dead_letter, RETRY, &another).await.expect("the call succeeds"), [true]);

    assert_eq!(
        fixture.redrive_records(&dead_letter).await[0].as_ref().expect("the reservation is recorded").audit,
        another
    );
}

async fn a_confirmed_dead_letter_is_never_reserved_again<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let dead_letter = [fixture.dead_letter(0, 0)];
    fixture.reserve(&dead_letter).await;
    fixture.confirm(&dead_letter).await;

    backend.advance(HOUR).await;

    assert_eq!(fixture.reserve(&dead_letter).await, [false]);
}

async fn a_released_dead_letter_is_free_at_once<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let dead_letters = [fixture.dead_letter(0, 0), fixture.dead_letter(0, 1)];
    fixture.reserve(&dead_letters).await;

    fixture.release(&dead_letters[..1]).await;

    assert_eq!(fixture.redrive_records(&dead_letters[..1]).await, [None]);
    assert_eq!(fixture.reserve(&dead_letters).await, [true, false]);
}

async fn a_confirmed_dead_letter_cannot_be_released<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let dead_letter = [fixture.dead_letter(0, 0)];
    fixture.reserve(&dead_letter).await;
    fixture.confirm(&dead_letter).await;

    fixture.release(&dead_letter).await;

    assert_eq!(fixture.reserve(&dead_letter).await, [false]);
}

async fn a_record_holds_the_operator_and_the_confirmation<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let dead_letters = [fixture.dead_letter(2, 5), fixture.dead_letter(2, 6), fixture.dead_letter(2, 7)];
    fixture.reserve(&dead_letters[..2]).await;
    fixture.confirm(&dead_letters[..1]).await;

    let records = fixture.redrive_records(&dead_letters).await;

    let record = |at: usize| records[at].as_ref().map(|one| (one.audit.clone(), one.confirmed));
    assert_eq!((record(0), record(1), record(2)), (Some((audit(), true)), Some((audit(), false)), None));
}

async fn position_and_timestamp_identify_a_dead_letter<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let dead_letter = fixture.dead_letter(1, 1);
    fixture.reserve(std::slice::from_ref(&dead_letter)).await;
    let at = |position: Position| DeadLetterId { position, timestamp: dead_letter.timestamp };
    let others = [
        at(Position { topic: "payments-dlt".into(), ..dead_letter.position.clone() }),
        at(Position { partition: 2, ..dead_letter.position.clone() }),
        at(Position { offset: 2, ..dead_letter.position.clone() }),
        // The position exists again in a topic that was deleted and created again.
        DeadLetterId { timestamp: fixture.factory.next_timestamp(), ..dead_letter.clone() },
    ];

    assert_eq!(fixture.redrive_records(&others).await, [None, None, None, None]);
    assert_eq!(fixture.reserve(&others).await, [true; 4]);
}

async fn an_empty_list_of_dead_letters_is_accepted<B: Backend>(backend: &B) {
    let fixture = fixture(backend);

    assert_eq!(fixture.reserve(&[]).await, [] as [bool; 0]);
    fixture.confirm(&[]).await;
    fixture.release(&[]).await;
    assert_eq!(fixture.redrive_records(&[]).await, []);
}
