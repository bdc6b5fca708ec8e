//! What every command needs on its desk: the ports, the gate and the service's own name.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use domain::{EventId, Order, OrderEvent, OrderId, RegionId};
use ports::cache::OrderCache;
use ports::clock::{Clock, Rng};
use ports::idempotency::Idempotency;
use ports::orders::{NewRow, OrderStore, TraceContext};

use crate::admission::gate::Gate;
use crate::contract;

/// How commands are carried out.
#[derive(Clone, Debug)]
pub struct Options {
    /// The region that stamps every change.
    pub region: RegionId,
    /// Shares of keys, fixed at installation.
    pub partitions: u32,
    /// Where events go.
    pub topic: Arc<str>,
    /// Version of the event schema that is written.
    pub schema_version: u32,
    /// How long a key may be in use before it is free again without an answer.
    pub key_lock: Duration,
    /// How long a used key is remembered.
    pub key_keep: Duration,
    /// Whether events go through the outbox; `false` publishes directly, fire and forget.
    pub outbox: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            region: RegionId::new("local"),
            partitions: 64,
            topic: "order.events".into(),
            schema_version: contract::LATEST,
            key_lock: Duration::from_secs(60),
            key_keep: Duration::from_secs(24 * 60 * 60),
            outbox: true,
        }
    }
}

impl Options {
    /// The outbox row that tells of an event.
    pub fn row(&self, event: &OrderEvent, trace: Option<TraceContext>) -> NewRow {
        NewRow {
            event_id: event.id,
            key: event.order_id,
            kind: event.kind,
            topic: Arc::clone(&self.topic),
            partition: outbox::partition::of_key(&event.order_id.to_string(), self.partitions),
            payload: contract::encode(event, self.schema_version).into(),
            sequence: event.sequence,
            occurred_at: event.occurred_at,
            region: event.region.clone(),
            hlc: event.hlc,
            trace,
        }
    }
}

/// The desk. Shared by all commands; holds no fact of its own.
pub struct CommandContext {
    /// Orders, their events and marks.
    pub orders: Arc<dyn OrderStore>,
    /// The quick line of idempotency.
    pub idempotency: Arc<dyn Idempotency>,
    /// Told of every change.
    pub cache: Arc<dyn OrderCache>,
    /// Stamps.
    pub clock: Arc<dyn Clock>,
    /// Ids.
    pub dice: Arc<dyn Rng>,
    /// May we write?
    pub gate: Arc<Gate>,
    /// How.
    pub options: Options,
}

/// How far a command got, told to whoever waits for it: past the store only the store knows the outcome, and a key that it took must not
/// stay locked when it dies before.
#[derive(Clone, Debug, Default)]
pub struct CommitProgress(Arc<Marks>);

#[derive(Debug, Default)]
struct Marks {
    store: AtomicBool,
    key: AtomicBool,
}

impl CommitProgress {
    /// The store is about to be asked for a change.
    pub fn mark(&self) {
        self.0.store.store(true, SeqCst);
    }

    /// The store said that nothing changed, or is not asked any more.
    pub fn clear(&self) {
        self.0.store.store(false, SeqCst);
    }

    /// Whether the store may have changed something.
    pub fn reached(&self) -> bool {
        self.0.store.load(SeqCst)
    }

    /// The idempotency key is ours.
    pub fn take_key(&self) {
        self.0.key.store(true, SeqCst);
    }

    /// Whether it took the key.
    pub fn has_key(&self) -> bool {
        self.0.key.load(SeqCst)
    }
}

impl CommandContext {
    pub(super) fn order_id(&self, now: domain::Timestamp) -> OrderId {
        OrderId::at(now, self.dice.entropy())
    }

    pub(super) fn event_id(&self, now: domain::Timestamp) -> EventId {
        EventId::at(now, self.dice.entropy())
    }

    /// After an answered change every reader of this instance sees it: the cache is told before the answer goes out.
    pub(super) async fn show(&self, order: &Arc<Order>) {
        if self.cache.put(Arc::clone(order)).await.is_err() {
            // A cache that did not hear of it must not show the old one; if it cannot do that either, its own expiry does.
            let _ = self.cache.evict(order.id).await;
        }
    }
}
