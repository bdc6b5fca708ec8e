//! The life of an idempotency key during one create: begin, then complete or abandon. No other module calls the key store.
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use domain::{OrderId, Subject};
use futures::future::{BoxFuture, FutureExt, Shared};
use ports::Error;
use ports::orders::idempotency::{BeginOutcome, Idempotency};

use super::context::CommandContext;
use crate::dispatch::{CreateOrder, IdempotencyKey};

/// A call of `begin` that outlives the actor which made it.
type BeginCall = Shared<BoxFuture<'static, Result<BeginOutcome, Error>>>;

/// The idempotency key of one create. The actor that runs the create and the caller that waits for it share one through clones: the actor
/// begins the key and ends it with the result, the caller releases it when the actor died before the commit.
#[derive(Clone)]
pub struct IdempotencyGuard {
    store: Arc<dyn Idempotency>,
    subject: Subject,
    idempotency_key: IdempotencyKey,
    lock: Duration,
    keep: Duration,
    /// The call that locks the key, once the actor has made it.
    begin_call: Arc<OnceLock<BeginCall>>,
}

impl IdempotencyGuard {
    /// The guard of a command's key; `None` when the client sent no key. Nothing is locked yet.
    pub fn new(context: &CommandContext, command: &CreateOrder) -> Option<Self> {
        let idempotency_key = command.idempotency_key.clone()?;
        Some(Self {
            store: Arc::clone(&context.idempotency),
            subject: command.subject.clone(),
            idempotency_key,
            lock: context.options.key_lock,
            keep: context.options.key_keep,
            begin_call: Arc::default(),
        })
    }

    /// Releases the key of an actor that died: the client may repeat the request at once. If the order exists, its durable record returns it.
    ///
    /// Waits first for the outcome of a call that was locking the key when the actor died, because a release could overtake it in the store.
    pub async fn release_after_actor_exit(&self) {
        let Some(begin_call) = self.begin_call.get().cloned() else { return };
        if may_hold_key(&begin_call.await) {
            let _ = self.store.abandon(&self.subject, &self.idempotency_key.key).await;
        }
    }

    /// Locks the key for its lock time.
    pub(super) async fn begin(&self) -> Result<BeginOutcome, Error> {
        let begin_call = self.begin_call.get_or_init(|| {
            let (store, subject, idempotency_key, lock) =
                (Arc::clone(&self.store), self.subject.clone(), self.idempotency_key.clone(), self.lock);
            async move { store.begin(&subject, &idempotency_key.key, &idempotency_key.fingerprint, lock).await }
                .boxed()
                .shared()
        });
        begin_call.clone().await
    }

    /// Stores the created order under the key. The durable record still prevents a duplicate if this fails.
    pub(super) async fn complete(&self, order_id: OrderId) {
        let Self { store, subject, idempotency_key, keep, .. } = self;
        let _ = store.complete(subject, &idempotency_key.key, &idempotency_key.fingerprint, order_id, *keep).await;
    }

    /// Unlocks the key of a create that changed nothing, or that has an unknown outcome. The key store repeats a release that failed.
    pub(super) async fn abandon(&self) {
        let _ = self.store.abandon(&self.subject, &self.idempotency_key.key).await;
    }

    pub(super) fn subject(&self) -> &Subject {
        &self.subject
    }

    pub(super) fn idempotency_key(&self) -> &IdempotencyKey {
        &self.idempotency_key
    }

    pub(super) fn keep(&self) -> Duration {
        self.keep
    }
}

/// Whether the key may be locked for this request.
fn may_hold_key(outcome: &Result<BeginOutcome, Error>) -> bool {
    match outcome {
        Ok(BeginOutcome::Acquired) => true,
        Ok(BeginOutcome::InProgress | BeginOutcome::Completed { .. }) => false,
        Err(error) => error.outcome_unknown(),
    }
}
