//! The suite of `Idempotency`: one caller acquires a key, and a completed key returns its order.
use std::time::Duration;

use domain::{OrderId, Subject};
use futures::future::join_all;
use ports::orders::idempotency::BeginOutcome;

use crate::backend::Backend;
use crate::conformance::fixture::backend::{DAY, Fixture, HOUR, SECOND, fixture};

suite! { $ idempotency:
    a_new_key_is_acquired,
    a_key_in_use_is_in_progress,
    one_of_many_concurrent_callers_acquires_the_key,
    a_completed_key_returns_its_order_and_fingerprint,
    a_completed_key_returns_the_first_fingerprint,
    an_abandoned_key_is_free,
    abandoning_does_not_delete_a_completed_key,
    a_key_is_free_after_its_lock_expires,
    a_completed_key_outlives_its_lock,
    a_completed_key_expires_after_its_retention,
    a_key_can_be_completed_after_its_lock_expired,
    keys_of_different_subjects_are_independent,
}

const FINGERPRINT: [u8; 32] = [7; 32];
const OTHER_FINGERPRINT: [u8; 32] = [8; 32];
const LOCK: Duration = HOUR;

fn ann() -> Subject {
    Subject::new("ann").expect("the name is valid")
}

impl<B: Backend> Fixture<'_, B> {
    async fn begin(&self, key: &str) -> BeginOutcome {
        self.backend.idempotency().begin(&ann(), key, &FINGERPRINT, LOCK).await.expect("the call succeeds")
    }

    async fn complete(&self, key: &str) -> OrderId {
        let order_id = self.factory.placed("ann").0.id;
        let completed = self.backend.idempotency().complete(&ann(), key, &FINGERPRINT, order_id, DAY).await;
        completed.expect("the call succeeds");
        order_id
    }
}

async fn a_new_key_is_acquired<B: Backend>(backend: &B) {
    assert_eq!(fixture(backend).begin("key").await, BeginOutcome::Acquired);
}

async fn a_key_in_use_is_in_progress<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.begin("key").await;

    assert_eq!(fixture.begin("key").await, BeginOutcome::InProgress);
    let other = backend.idempotency().begin(&ann(), "key", &OTHER_FINGERPRINT, LOCK).await.expect("the call succeeds");
    assert_eq!(other, BeginOutcome::InProgress, "also for another fingerprint");
}

async fn one_of_many_concurrent_callers_acquires_the_key<B: Backend>(backend: &B) {
    let fixture = fixture(backend);

    let results = join_all((0..16).map(|_| fixture.begin("key"))).await;

    assert_eq!(results.iter().filter(|result| **result == BeginOutcome::Acquired).count(), 1);
    assert_eq!(results.iter().filter(|result| **result == BeginOutcome::InProgress).count(), 15);
}

async fn a_completed_key_returns_its_order_and_fingerprint<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.begin("key").await;

    let order_id = fixture.complete("key").await;

    assert_eq!(fixture.begin("key").await, BeginOutcome::Completed { order_id, fingerprint: Some(FINGERPRINT) });
}

async fn a_completed_key_returns_the_first_fingerprint<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.begin("key").await;
    let order_id = fixture.complete("key").await;

    let other = backend.idempotency().begin(&ann(), "key", &OTHER_FINGERPRINT, LOCK).await.expect("the call succeeds");

    assert_eq!(other, BeginOutcome::Completed { order_id, fingerprint: Some(FINGERPRINT) });
}

async fn an_abandoned_key_is_free<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.begin("key").await;

    backend.idempotency().abandon(&ann(), "key").await.expect("the call succeeds");

    assert_eq!(fixture.begin("key").await, BeginOutcome::Acquired);
}

async fn abandoning_does_not_delete_a_completed_key<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.begin("key").await;
    let order_id = fixture.complete("key").await;

    backend.idempotency().abandon(&ann(), "key").await.expect("the call succeeds");
    backend.idempotency().abandon(&ann(), "never-begun").await.expect("the call succeeds");

    assert_eq!(fixture.begin("key").await, BeginOutcome::Completed { order_id, fingerprint: Some(FINGERPRINT) });
}

async fn a_key_is_free_after_its_lock_expires<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.begin("key").await;

    fixture.advance(LOCK / 2).await;
    assert_eq!(fixture.begin("key").await, BeginOutcome::InProgress);
    fixture.advance(LOCK / 2 + SECOND).await;

    assert_eq!(fixture.begin("key").await, BeginOutcome::Acquired, "a refused begin does not extend the lock");
}

async fn a_completed_key_outlives_its_lock<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.begin("key").await;
    let order_id = fixture.complete("key").await;

    fixture.advance(DAY - HOUR).await;

    assert_eq!(fixture.begin("key").await, BeginOutcome::Completed { order_id, fingerprint: Some(FINGERPRINT) });
}

async fn a_completed_key_expires_after_its_retention<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.begin("key").await;
    fixture.complete("key").await;

    fixture.advance(DAY + SECOND).await;

    assert_eq!(fixture.begin("key").await, BeginOutcome::Acquired);
}

async fn a_key_can_be_completed_after_its_lock_expired<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.begin("key").await;
    fixture.advance(LOCK + SECOND).await;

    let order_id = fixture.complete("key").await;

    assert_eq!(fixture.begin("key").await, BeginOutcome::Completed { order_id, fingerprint: Some(FINGERPRINT) });
}

async fn keys_of_different_subjects_are_independent<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.begin("key").await;
    let begin = async |name: &str, key: &str| {
        let subject = Subject::new(name).expect("the name is valid");
        backend.idempotency().begin(&subject, key, &FINGERPRINT, LOCK).await.expect("the call succeeds")
    };

    // The second and third pair collide in a store that concatenates subject and key.
    for (name, key) in [("bob", "key"), ("ann", "key:2"), ("ann:key", "2"), ("ann", "Key"), ("an", "nkey")] {
        assert_eq!(begin(name, key).await, BeginOutcome::Acquired, "{name} {key}");
    }
    assert_eq!(begin("ann", "key").await, BeginOutcome::InProgress);
}
