//! The suite of `Idempotency`: of two who use a key one has it, and what it made is remembered.
use domain::{OrderId, Subject};
use futures::future::join_all;
use ports::idempotency::BeginOutcome;

use super::given::{DAY, Given, HOUR, SECOND, given};
use crate::backend::Backend;

suite! { $ idempotency:
    a_fresh_key_is_ours,
    a_key_in_use_is_running,
    of_concurrent_callers_one_gets_the_key,
    a_completed_key_tells_the_order_and_what_was_asked,
    a_completed_key_tells_what_was_asked_first,
    an_abandoned_key_is_free,
    abandoning_forgets_nothing_that_was_made,
    a_key_is_free_when_its_lock_time_is_over,
    a_completed_key_outlives_its_lock_time,
    a_completed_key_is_forgotten_after_its_keep,
    a_key_can_be_completed_after_its_lock_was_lost,
    subjects_and_keys_are_kept_apart,
}

const FINGERPRINT: [u8; 32] = [7; 32];
const OTHER: [u8; 32] = [8; 32];
const LOCK: std::time::Duration = HOUR;

fn ann() -> Subject {
    Subject::new("ann").expect("a name")
}

impl<B: Backend> Given<'_, B> {
    async fn begin(&self, key: &str) -> BeginOutcome {
        self.backend.idempotency().begin(&ann(), key, &FINGERPRINT, LOCK).await.expect("answered")
    }

    async fn complete(&self, key: &str) -> OrderId {
        let order_id = self.make.placed("ann").0.id;
        let completed = self.backend.idempotency().complete(&ann(), key, &FINGERPRINT, order_id, DAY).await;
        completed.expect("answered");
        order_id
    }
}

async fn a_fresh_key_is_ours<B: Backend>(backend: &B) {
    assert_eq!(given(backend).begin("key").await, BeginOutcome::Acquired);
}

async fn a_key_in_use_is_running<B: Backend>(backend: &B) {
    let given = given(backend);
    given.begin("key").await;

    assert_eq!(given.begin("key").await, BeginOutcome::InProgress);
    let other = backend.idempotency().begin(&ann(), "key", &OTHER, LOCK).await.expect("answered");
    assert_eq!(other, BeginOutcome::InProgress, "whatever is asked");
}

async fn of_concurrent_callers_one_gets_the_key<B: Backend>(backend: &B) {
    let given = given(backend);

    let answers = join_all((0..16).map(|_| given.begin("key"))).await;

    assert_eq!(answers.iter().filter(|answer| **answer == BeginOutcome::Acquired).count(), 1);
    assert_eq!(answers.iter().filter(|answer| **answer == BeginOutcome::InProgress).count(), 15);
}

async fn a_completed_key_tells_the_order_and_what_was_asked<B: Backend>(backend: &B) {
    let given = given(backend);
    given.begin("key").await;

    let order_id = given.complete("key").await;

    assert_eq!(given.begin("key").await, BeginOutcome::Completed { order_id, fingerprint: Some(FINGERPRINT) });
}

async fn a_completed_key_tells_what_was_asked_first<B: Backend>(backend: &B) {
    let given = given(backend);
    given.begin("key").await;
    let order_id = given.complete("key").await;

    let other = backend.idempotency().begin(&ann(), "key", &OTHER, LOCK).await.expect("answered");

    assert_eq!(other, BeginOutcome::Completed { order_id, fingerprint: Some(FINGERPRINT) });
}

async fn an_abandoned_key_is_free<B: Backend>(backend: &B) {
    let given = given(backend);
    given.begin("key").await;

    backend.idempotency().abandon(&ann(), "key").await.expect("answered");

    assert_eq!(given.begin("key").await, BeginOutcome::Acquired);
}

async fn abandoning_forgets_nothing_that_was_made<B: Backend>(backend: &B) {
    let given = given(backend);
    given.begin("key").await;
    let order_id = given.complete("key").await;

    backend.idempotency().abandon(&ann(), "key").await.expect("answered");
    backend.idempotency().abandon(&ann(), "never-begun").await.expect("answered");

    assert_eq!(given.begin("key").await, BeginOutcome::Completed { order_id, fingerprint: Some(FINGERPRINT) });
}

async fn a_key_is_free_when_its_lock_time_is_over<B: Backend>(backend: &B) {
    let given = given(backend);
    given.begin("key").await;

    given.advance(LOCK / 2).await;
    assert_eq!(given.begin("key").await, BeginOutcome::InProgress);
    given.advance(LOCK / 2 + SECOND).await;

    assert_eq!(given.begin("key").await, BeginOutcome::Acquired, "asking in between did not prolong it");
}

async fn a_completed_key_outlives_its_lock_time<B: Backend>(backend: &B) {
    let given = given(backend);
    given.begin("key").await;
    let order_id = given.complete("key").await;

    given.advance(DAY - HOUR).await;

    assert_eq!(given.begin("key").await, BeginOutcome::Completed { order_id, fingerprint: Some(FINGERPRINT) });
}

async fn a_completed_key_is_forgotten_after_its_keep<B: Backend>(backend: &B) {
    let given = given(backend);
    given.begin("key").await;
    given.complete("key").await;

    given.advance(DAY + SECOND).await;

    assert_eq!(given.begin("key").await, BeginOutcome::Acquired);
}

async fn a_key_can_be_completed_after_its_lock_was_lost<B: Backend>(backend: &B) {
    let given = given(backend);
    given.begin("key").await;
    given.advance(LOCK + SECOND).await;

    let order_id = given.complete("key").await;

    assert_eq!(given.begin("key").await, BeginOutcome::Completed { order_id, fingerprint: Some(FINGERPRINT) });
}

async fn subjects_and_keys_are_kept_apart<B: Backend>(backend: &B) {
    let given = given(backend);
    given.begin("key").await;
    let begin = async |name: &str, key: &str| {
        let subject = Subject::new(name).expect("a name");
        backend.idempotency().begin(&subject, key, &FINGERPRINT, LOCK).await.expect("answered")
    };

    // The second pair would meet in a store that glues name and key together.
    for (name, key) in [("bob", "key"), ("ann", "key:2"), ("ann:key", "2"), ("ann", "Key"), ("an", "nkey")] {
        assert_eq!(begin(name, key).await, BeginOutcome::Acquired, "{name} {key}");
    }
    assert_eq!(begin("ann", "key").await, BeginOutcome::InProgress);
}
