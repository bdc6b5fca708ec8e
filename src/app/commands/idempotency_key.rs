//! The life of an idempotency key during one create: begin, then complete or abandon. Nothing else calls the key store.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use domain::{OrderId, Subject};
use ports::Error;
use ports::orders::idempotency::{BeginOutcome, Idempotency};

use super::context::CommandContext;
use crate::dispatch::{CreateOrder, KeyedIntent};

/// The idempotency key of one create. The actor that runs the create and the caller that waits for it share one through clones: the actor
/// begins the key and ends it with the result, the caller releases it when the actor died before the commit.
#[derive(Clone)]
pub struct IdempotencyGuard {
    store: Arc<dyn Idempotency>,
    subject: Subject,
    intent: KeyedIntent,
    lock: Duration,
    keep: Duration,
    acquired: Arc<AtomicBool>,
}

impl IdempotencyGuard {
    /// The guard of a command's key; `None` when the client sent no key. Nothing is locked yet.
    pub fn new(context: &CommandContext, command: &CreateOrder) -> Option<Self> {
        let intent = command.intent.clone()?;
        Some(Self {
            store: Arc::clone(&context.idempotency),
            subject: command.subject.clone(),
            intent,
            lock: context.options.key_lock,
            keep: context.options.key_keep,
            acquired: Arc::default(),
        })
    }

    /// Releases the key of an actor that died: the client may repeat the request at once. Should the order exist, its durable record answers.
    pub async fn release_after_actor_exit(&self) {
        if self.acquired.load(SeqCst) {
            let _ = self.store.abandon(&self.subject, &self.intent.key).await;
        }
    }

    /// Locks the key for its lock time.
    pub(super) async fn begin(&self) -> Result<BeginOutcome, Error> {
        let outcome = self.store.begin(&self.subject, &self.intent.key, &self.intent.fingerprint, self.lock).await;
        if matches!(outcome, Ok(BeginOutcome::Acquired)) {
            self.acquired.store(true, SeqCst);
        }
        outcome
    }

    /// Stores the created order under the key. The durable record still prevents a duplicate if this fails.
    pub(super) async fn complete(&self, order_id: OrderId) {
        let Self { store, subject, intent, keep, .. } = self;
        let _ = store.complete(subject, &intent.key, &intent.fingerprint, order_id, *keep).await;
    }

    /// Unlocks the key of a create that changed nothing, or perhaps something. The key store repeats a release that failed.
    pub(super) async fn abandon(&self) {
        let _ = self.store.abandon(&self.subject, &self.intent.key).await;
    }

    pub(super) fn subject(&self) -> &Subject {
        &self.subject
    }

    pub(super) fn intent(&self) -> &KeyedIntent {
        &self.intent
    }

    pub(super) fn keep(&self) -> Duration {
        self.keep
    }
}
