//! The reference's idempotency keys: a key is in progress until its lock expires, or completed until its retention ends.
use std::time::Duration;

use async_trait::async_trait;
use domain::{OrderId, Subject};
use ports::Error;
use ports::orders::idempotency::{BeginOutcome, Idempotency};

use crate::reference::state::Reference;

#[async_trait]
impl Idempotency for Reference {
    async fn begin(
        &self,
        subject: &Subject,
        key: &str,
        _fingerprint: &[u8; 32],
        lock: Duration,
    ) -> Result<BeginOutcome, Error> {
        let now = self.now();
        let key = (subject.clone(), key.to_owned());
        let mut state = self.state.lock();
        match state.keys.get(&key) {
            Some((outcome, expiry)) if *expiry > now => Ok(outcome.clone()),
            Some(_) | None => {
                state.keys.insert(key, (BeginOutcome::InProgress, now.plus(lock)));
                Ok(BeginOutcome::Acquired)
            }
        }
    }

    async fn complete(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        order_id: OrderId,
        keep: Duration,
    ) -> Result<(), Error> {
        let completed = BeginOutcome::Completed { order_id, fingerprint: Some(*fingerprint) };
        let expiry = self.now().plus(keep);
        self.state.lock().keys.insert((subject.clone(), key.to_owned()), (completed, expiry));
        Ok(())
    }

    async fn abandon(&self, subject: &Subject, key: &str) -> Result<(), Error> {
        let key = (subject.clone(), key.to_owned());
        let mut state = self.state.lock();
        if state.keys.get(&key).is_some_and(|(outcome, _)| *outcome == BeginOutcome::InProgress) {
            state.keys.remove(&key);
        }
        Ok(())
    }
}
