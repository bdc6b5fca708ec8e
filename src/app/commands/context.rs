//! Context of every command: the ports, the write gate and the command options.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::time::Duration;

use domain::{EventId, Order, OrderEvent, OrderId, RegionId, Subject};
use ports::clock::{Clock, Rng};
use ports::event_headers::EventHeaders;
use ports::inbox::Inbox;
use ports::orders::cache::OrderCache;
use ports::orders::idempotency::Idempotency;
use ports::orders::{NewRow, OrderStore, RegionStamp, TraceContext, event_key};

use crate::admission::write_gate::WriteGate;
use crate::contract;
use crate::error::CommandError;
use crate::policy::regional_clock::RegionalClock;

/// How commands are carried out.
#[derive(Clone, Debug)]
pub struct Options {
    /// Region that stamps every change.
    pub region: RegionId,
    /// Number of outbox partitions, fixed at installation.
    pub partitions: u32,
    /// Full name of the event topic.
    pub topic: Arc<str>,
    /// Version of the event schema that is written.
    pub schema_version: u32,
    /// How long a running create locks its idempotency key.
    pub key_lock: Duration,
    /// How long a used idempotency key is kept.
    pub key_keep: Duration,
    /// Whether events go through the outbox; `false` publishes them directly, without a guarantee.
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
    /// Builds the outbox row of an event, with the trace context and the id of the request that made the change.
    pub fn row(&self, event: &OrderEvent, trace: Option<TraceContext>, request_id: Option<Arc<str>>) -> NewRow {
        let (key, payload) = (event_key(event.order_id), contract::encode(event, self.schema_version));
        NewRow {
            event_id: event.id,
            contract_checksum: Some(contract::checksum(event.id, &key, event.event_type.as_str(), &payload)),
            key,
            event_type: event.event_type.as_str().into(),
            topic: Arc::clone(&self.topic),
            partition: outbox::partition::of_key(&event.order_id.to_string(), self.partitions),
            payload: payload.into(),
            sequence: event.sequence,
            occurred_at: event.occurred_at,
            stamp: Some(RegionStamp { region: event.region.clone(), hlc: event.hlc }),
            trace,
            request_id,
            headers: EventHeaders::default(),
            content_type: None,
        }
    }
}

/// A command that called the store and gave no reply.
#[derive(Clone, Debug)]
pub enum UnknownChange {
    /// An order of this owner may exist.
    Create {
        /// The owner, for the lists.
        owner: Subject,
    },
    /// This order may have changed.
    Change {
        /// The order; the store knows its owner.
        id: OrderId,
    },
}

/// Ports and options shared by all commands. It has no state of its own.
pub struct CommandContext {
    /// Orders, their events and idempotency records.
    pub orders: Arc<dyn OrderStore>,
    /// Fast store of idempotency keys.
    pub idempotency: Arc<dyn Idempotency>,
    /// Cache that receives every changed order.
    pub cache: Arc<dyn OrderCache>,
    /// Source of the times in orders and ids.
    pub clock: Arc<dyn Clock>,
    /// Source of the random bits in ids.
    pub rng: Arc<dyn Rng>,
    /// Stamps of other regions' changes, which a change of the same order follows.
    pub inbox: Arc<dyn Inbox>,
    /// How far other regions have advanced this instance's clock.
    pub regional_clock: Arc<RegionalClock>,
    /// Gate that every command checks first.
    pub gate: Arc<WriteGate>,
    /// How commands are carried out.
    pub options: Options,
}

/// Observes the calls of the store by which one command commits. Implemented outside this crate, which reads no clock.
pub trait CommitObserver: Send + Sync {
    /// The store is about to be called; the call ends when the returned value is dropped.
    fn begin(&self) -> Box<dyn Send>;
}

/// How far a command is with its commit. The caller of an actor keeps a clone: when it has waited long enough, or the actor dies, the outcome is
/// unknown only if the store was called, and an abandoned command does not call it later.
#[derive(Clone, Default)]
pub struct CommitProgress {
    /// [`BEFORE_CALL`], [`CALLED`] or [`ABANDONED`].
    step: Arc<AtomicU8>,
    observer: Option<Arc<dyn CommitObserver>>,
}

/// The store was not called, or reported that nothing was changed.
const BEFORE_CALL: u8 = 0;
/// The store was called, and may have changed something.
const CALLED: u8 = 1;
/// The caller has given up, and has reported that nothing was changed.
const ABANDONED: u8 = 2;

impl fmt::Debug for CommitProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CommitProgress").field(&self.step).finish()
    }
}

/// A call of the store, for its observer; it ends with this value.
#[must_use = "the observed call ends when it is dropped"]
pub(super) struct CommitCall {
    _observed: Option<Box<dyn Send>>,
}

impl CommitProgress {
    /// The same progress, whose calls of the store this observer sees.
    pub fn observed_by(self, observer: Arc<dyn CommitObserver>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Records that the store is about to be called. The result is dropped when the call has returned.
    ///
    /// # Errors
    /// The caller has abandoned the command: the store must not be called.
    pub(super) fn begin_commit(&self) -> Result<CommitCall, CommandError> {
        if self.step.compare_exchange(BEFORE_CALL, CALLED, SeqCst, SeqCst) == Err(ABANDONED) {
            return Err(CommandError::Expired);
        }
        Ok(CommitCall { _observed: self.observer.as_ref().map(|observer| observer.begin()) })
    }

    /// Records that the store reported that nothing was changed.
    pub(super) fn nothing_changed(&self) {
        self.step.store(BEFORE_CALL, SeqCst);
    }

    /// Gives the command up, if the store was not called; returns whether nothing was changed, and nothing will be.
    pub fn abandon(&self) -> bool {
        self.step.compare_exchange(BEFORE_CALL, ABANDONED, SeqCst, SeqCst) != Err(CALLED)
    }
}

impl CommandContext {
    pub(super) fn order_id(&self, now: domain::Timestamp) -> OrderId {
        OrderId::new_v7(now, self.rng.entropy())
    }

    pub(super) fn event_id(&self, now: domain::Timestamp) -> EventId {
        EventId::new_v7(now, self.rng.entropy())
    }

    /// The time from which the HLC stamp of a change at `now` is computed.
    pub(super) fn physical_time(&self, now: domain::Timestamp) -> domain::Timestamp {
        self.regional_clock.physical_time(now, self.clock.wall())
    }

    /// Updates the cache before the command returns, so that every later read of this instance sees the change, in lists too. The
    /// commit started at `started_at` or later; another instance may have changed the order since.
    pub(super) async fn update_cache(&self, order: &Arc<Order>, started_at: domain::Timestamp) {
        let put = self.cache.put(Arc::clone(order), self.clock.now().since(started_at));
        let (put, ()) = futures::join!(put, self.evict_lists(&order.owner));
        if put.is_err() {
            // The cache may still hold the old version. If this fails as well, the entry's time to live ends it.
            let _ = self.cache.refuse_older(order.id, order.version).await;
        }
    }

    /// Updates the cache where it has an older version than the store: the process that committed the newer one may have died before its
    /// update. A client that is refused because of its version reads the order next.
    pub(super) async fn repair_cache(&self, stored: Order, started_at: domain::Timestamp) {
        if let Ok(Some(cached)) = self.cache.get(stored.id).await
            && cached.version < stored.version
        {
            self.update_cache(&Arc::new(stored), started_at).await;
        }
    }

    /// Removes an order and its owner's lists: a change to this version, whose outcome is unknown, may have outdated both. The store may
    /// still execute it, so an older version that is read meanwhile is not cached either.
    pub(super) async fn evict_order_and_lists(&self, id: OrderId, version: u64, owner: &Subject) {
        // If this fails, the entry's time to live ends it.
        let _ = self.cache.refuse_older(id, version).await;
        self.evict_lists(owner).await;
    }

    /// Evicts the cache entries that a command of unknown outcome may have made stale.
    pub async fn evict_outdated(&self, by: &UnknownChange) {
        match by {
            UnknownChange::Create { owner } => self.evict_lists(owner).await,
            UnknownChange::Change { id } => {
                // If this fails, the entries' time to live ends them.
                let _ = self.cache.evict(*id).await;
                if let Ok(Some(order)) = self.orders.find(*id).await {
                    // The change may be the next version. If it is the one that was read, that is not cached for a while, which only costs
                    // reads of the store.
                    self.evict_order_and_lists(order.id, order.version + 1, &order.owner).await;
                }
            }
        }
    }

    /// Evicts the lists that a change may have outdated.
    pub(super) async fn evict_lists(&self, owner: &Subject) {
        // A cache that fails here serves no list from before the failure, or ends it with its time to live.
        let _ = self.cache.evict_lists(owner).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Notes the begin and the end of each call.
    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<Vec<&'static str>>>);

    impl CommitObserver for Notes {
        fn begin(&self) -> Box<dyn Send> {
            self.0.lock().unwrap().push("begin");
            Box::new(CallEnd(self.clone()))
        }
    }

    struct CallEnd(Notes);

    impl Drop for CallEnd {
        fn drop(&mut self) {
            self.0.0.lock().unwrap().push("end");
        }
    }

    fn may_have_committed(progress: &CommitProgress) -> bool {
        progress.step.load(SeqCst) == CALLED
    }

    #[test]
    fn observer_sees_each_call_of_the_store_and_clones_share_the_progress() {
        let (notes, progress) = (Notes::default(), CommitProgress::default());
        let observed = progress.clone().observed_by(Arc::new(notes.clone()));

        for _ in 0..2 {
            let call = observed.begin_commit().unwrap();
            notes.0.lock().unwrap().push("commit");
            drop(call);
        }
        assert!(may_have_committed(&progress));
        observed.nothing_changed();

        assert!(!may_have_committed(&progress));
        assert_eq!(*notes.0.lock().unwrap(), ["begin", "commit", "end", "begin", "commit", "end"]);
    }

    #[test]
    fn abandoned_command_never_calls_the_store_and_one_that_did_cannot_be_abandoned() {
        let progress = CommitProgress::default();
        drop(progress.begin_commit().unwrap());
        assert!(!progress.abandon(), "the store may have changed something");
        progress.nothing_changed();

        assert!(progress.abandon());
        assert!(matches!(progress.begin_commit(), Err(CommandError::Expired)));
        assert!(progress.abandon() && !may_have_committed(&progress));
    }
}
