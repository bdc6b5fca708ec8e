//! The suite of `Redrives`: a dead letter is sent back once, and what was left half done can be taken up.
use futures::future::join_all;
use ports::broker::Position;
use ports::operators::Audit;
use ports::redrives::{DeadLetterId, RedriveRecord};

use super::given::{Given, HOUR, RETRY, audit, given};
use crate::backend::Backend;

suite! { $ redrives:
    letters_that_nobody_took_are_the_callers,
    a_letter_in_hand_is_nobody_elses,
    of_many_who_take_the_same_letters_each_gets_others,
    a_letter_that_was_left_in_hand_is_free_in_the_end,
    whoever_takes_a_letter_later_stands_in_the_book,
    a_letter_that_arrived_is_never_taken_again,
    a_released_letter_is_free_at_once,
    a_letter_that_arrived_is_not_released,
    it_is_known_who_took_a_letter_and_what_became_of_it,
    places_topics_and_times_tell_letters_apart,
    no_letters_are_no_trouble,
}

impl<B: Backend> Given<'_, B> {
    fn letter(&self, partition: u32, offset: u64) -> DeadLetterId {
        let position = Position { topic: "orders-dlt".into(), partition, offset };
        DeadLetterId { position, timestamp: self.make.instant() }
    }

    async fn take_letters(&self, letters: &[DeadLetterId]) -> Vec<bool> {
        self.backend.redrives().reserve(letters, RETRY, &audit()).await.expect("a take is answered")
    }

    async fn letters_arrived(&self, letters: &[DeadLetterId]) {
        self.backend.redrives().confirm(letters).await.expect("answered");
    }

    async fn release_letters(&self, letters: &[DeadLetterId]) {
        self.backend.redrives().release(letters).await.expect("answered");
    }

    async fn known(&self, letters: &[DeadLetterId]) -> Vec<Option<RedriveRecord>> {
        self.backend.redrives().find(letters).await.expect("answered")
    }
}

async fn letters_that_nobody_took_are_the_callers<B: Backend>(backend: &B) {
    let given = given(backend);

    assert_eq!(given.take_letters(&[given.letter(1, 7), given.letter(0, 3)]).await, [true, true]);
}

async fn a_letter_in_hand_is_nobody_elses<B: Backend>(backend: &B) {
    let given = given(backend);
    let (first, second) = (given.letter(0, 0), given.letter(0, 1));
    given.take_letters(std::slice::from_ref(&first)).await;

    assert_eq!(given.take_letters(&[second, first]).await, [true, false], "answers come in the order of the letters");
}

async fn of_many_who_take_the_same_letters_each_gets_others<B: Backend>(backend: &B) {
    let given = given(backend);
    let letters: Vec<DeadLetterId> = (0..40).map(|offset| given.letter(0, offset)).collect();
    let backwards: Vec<DeadLetterId> = letters.iter().rev().cloned().collect();

    let taken = join_all([&letters, &backwards, &letters, &backwards].map(|asked| given.take_letters(asked))).await;

    let winners = |at: usize| {
        taken.iter().enumerate().filter(|(one, taken)| taken[if one % 2 == 0 { at } else { 39 - at }]).count()
    };
    assert!((0..40).all(|at| winners(at) == 1), "{taken:?}");
}

async fn a_letter_that_was_left_in_hand_is_free_in_the_end<B: Backend>(backend: &B) {
    let given = given(backend);
    let letter = [given.letter(0, 0)];
    given.take_letters(&letter).await;

    backend.advance(RETRY / 2).await;
    assert_eq!(given.take_letters(&letter).await, [false], "whoever has it may still be sending");
    backend.advance(RETRY / 2).await;
    assert_eq!(given.take_letters(&letter).await, [true]);
    assert_eq!(given.take_letters(&letter).await, [false], "and its time begins anew");
}

async fn whoever_takes_a_letter_later_stands_in_the_book<B: Backend>(backend: &B) {
    let given = given(backend);
    let letter = [given.letter(0, 0)];
    given.take_letters(&letter).await;
    backend.advance(HOUR).await;
    let another = Audit { operator: "otto".into(), reason: "the night shift".into() };

    assert_eq!(backend.redrives().reserve(&letter, RETRY, &another).await.expect("answered"), [true]);

    assert_eq!(given.known(&letter).await[0].as_ref().expect("known").audit, another);
}

async fn a_letter_that_arrived_is_never_taken_again<B: Backend>(backend: &B) {
    let given = given(backend);
    let letter = [given.letter(0, 0)];
    given.take_letters(&letter).await;
    given.letters_arrived(&letter).await;

    backend.advance(HOUR).await;

    assert_eq!(given.take_letters(&letter).await, [false]);
}

async fn a_released_letter_is_free_at_once<B: Backend>(backend: &B) {
    let given = given(backend);
    let letters = [given.letter(0, 0), given.letter(0, 1)];
    given.take_letters(&letters).await;

    given.release_letters(&letters[..1]).await;

    assert_eq!(given.known(&letters[..1]).await, [None]);
    assert_eq!(given.take_letters(&letters).await, [true, false]);
}

async fn a_letter_that_arrived_is_not_released<B: Backend>(backend: &B) {
    let given = given(backend);
    let letter = [given.letter(0, 0)];
    given.take_letters(&letter).await;
    given.letters_arrived(&letter).await;

    given.release_letters(&letter).await;

    assert_eq!(given.take_letters(&letter).await, [false]);
}

async fn it_is_known_who_took_a_letter_and_what_became_of_it<B: Backend>(backend: &B) {
    let given = given(backend);
    let letters = [given.letter(2, 5), given.letter(2, 6), given.letter(2, 7)];
    given.take_letters(&letters[..2]).await;
    given.letters_arrived(&letters[..1]).await;

    let known = given.known(&letters).await;

    let told = |at: usize| known[at].as_ref().map(|one| (one.audit.clone(), one.confirmed));
    assert_eq!((told(0), told(1), told(2)), (Some((audit(), true)), Some((audit(), false)), None));
}

async fn places_topics_and_times_tell_letters_apart<B: Backend>(backend: &B) {
    let given = given(backend);
    let letter = given.letter(1, 1);
    given.take_letters(std::slice::from_ref(&letter)).await;
    let at = |position: Position| DeadLetterId { position, timestamp: letter.timestamp };
    let others = [
        at(Position { topic: "payments-dlt".into(), ..letter.position.clone() }),
        at(Position { partition: 2, ..letter.position.clone() }),
        at(Position { offset: 2, ..letter.position.clone() }),
        // The same place of a topic that was made anew.
        DeadLetterId { timestamp: given.make.instant(), ..letter.clone() },
    ];

    assert_eq!(given.known(&others).await, [None, None, None, None]);
    assert_eq!(given.take_letters(&others).await, [true; 4]);
}

async fn no_letters_are_no_trouble<B: Backend>(backend: &B) {
    let given = given(backend);

    assert_eq!(given.take_letters(&[]).await, [] as [bool; 0]);
    given.letters_arrived(&[]).await;
    given.release_letters(&[]).await;
    assert_eq!(given.known(&[]).await, []);
}
