//! The script of injected faults: planned, permanent and random faults per port call.
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ports::Error;
use ports::broker::Record;
use ports::clock::Rng;
use ports::partitions::{PartitionNo, TimelineAcceptance, Token};
use tokio::sync::Notify;

use crate::clock::SeededRng;

/// The port calls that a script can fail, each named after the port's method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Call {
    OpenSession,
    Publish,
    Watermark,
    Fence,
    FenceAll,
    Append,
    Commit,
    /// `EventStore::publish`.
    PublishEvents,
    /// `OrderStore::find`, `list`, `count`, `oldest` and `find_idempotency_record`.
    Read,
    /// `OutboxStore::depth`.
    RowCounts,
    Claim,
    Exclude,
    Settle,
    Resolve,
    Heartbeat,
    Survey,
    Acquire,
    AcceptTimeline,
    Renew,
    Release,
    /// `Inbox::commit`.
    Consume,
    /// `Inbox::update_retry_routes`.
    UpdateRetryRoutes,
    /// `WebhookStore::record_deliveries`.
    RecordDeliveries,
    /// `OrderCache::evict_all`.
    EvictAll,
    /// `Idempotency::begin`.
    BeginKey,
    /// `OutboxStore::sweep`.
    SweepArchive,
}

/// How a call fails or is delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The call is not executed, and the caller receives `Unreachable`.
    Unreachable,
    /// The call is not executed, and the caller receives an unknown outcome.
    UnknownNotDone,
    /// The call is executed, and the caller receives an unknown outcome.
    UnknownDone,
    /// For `exclude`: the caller receives a success, and the store has lost it: it was rewound at that moment. For other calls as
    /// [`InjectedFault::Unreachable`].
    LostByStore,
    /// For `publish`: the session is fenced and the batch not published. For other calls as [`InjectedFault::Unreachable`].
    SessionLost,
    /// The call starts after this delay.
    Slow(Duration),
    /// The call is executed, and the caller receives its result after this delay. For `publish` as [`InjectedFault::Unreachable`].
    SlowReply(Duration),
    /// The call waits for [`FaultScript::release`], then starts.
    Hang,
    /// The caller's task panics.
    Panic,
}

/// A handle on the injected faults. Clones share one script.
#[derive(Clone)]
pub struct FaultScript(Arc<Shared>);

struct Shared {
    plan: Mutex<Plan>,
    rng: SeededRng,
    released: Notify,
    broker_recovered: Notify,
}

#[derive(Default)]
struct Plan {
    queued: BTreeMap<Call, VecDeque<InjectedFault>>,
    permanent: BTreeMap<Call, InjectedFault>,
    random: Vec<(Call, f64, InjectedFault)>,
    refused: Option<RecordFilter>,
    injected: Vec<(Call, InjectedFault)>,
    timeline: Timeline,
}

/// The timeline of a store whose leases are under the script.
#[derive(Clone, Default)]
pub(crate) struct Timeline {
    /// How often the store failed over.
    pub(crate) number: u32,
    /// The number of the timeline that was accepted last.
    pub(crate) accepted: u32,
    /// The watermarks of the last acceptance: the counter of an acquired lease is above them.
    pub(crate) watermarks: BTreeMap<PartitionNo, Token>,
    /// The result of the last acceptance, until its caller receives it.
    pub(crate) unanswered: Option<TimelineAcceptance>,
}

type RecordFilter = Arc<dyn Fn(&Record) -> bool + Send + Sync>;

impl FaultScript {
    /// A script without faults; the seed is for [`FaultScript::sometimes`].
    pub fn seeded(seed: u64) -> Self {
        let (plan, rng) = (Mutex::default(), SeededRng::new(seed));
        Self(Arc::new(Shared { plan, rng, released: Notify::new(), broker_recovered: Notify::new() }))
    }

    /// Injects the fault into the next call of this kind, after the faults that are already queued.
    pub fn once(&self, call: Call, fault: InjectedFault) {
        self.times(1, call, fault);
    }

    /// Injects the fault into the next `calls` calls of this kind.
    pub fn times(&self, calls: usize, call: Call, fault: InjectedFault) {
        let mut plan = self.0.plan.lock();
        plan.queued.entry(call).or_default().extend(std::iter::repeat_n(fault, calls));
    }

    /// Injects the fault into every call of this kind, until [`FaultScript::clear`].
    pub fn always(&self, call: Call, fault: InjectedFault) {
        self.0.plan.lock().permanent.insert(call, fault);
    }

    /// Injects the fault into a call of this kind with this probability, 0.0..=1.0.
    pub fn sometimes(&self, probability: f64, call: Call, fault: InjectedFault) {
        self.0.plan.lock().random.push((call, probability, fault));
    }

    /// Makes the broker refuse the records that the filter selects, in `publish` and `append`.
    pub fn refuse(&self, filter: impl Fn(&Record) -> bool + Send + Sync + 'static) {
        self.0.plan.lock().refused = Some(Arc::new(filter));
    }

    /// The store is on another timeline: no partition can be acquired until it is accepted. Stop the processes that hold leases before.
    pub fn change_timeline(&self) {
        self.0.plan.lock().timeline.number += 1;
    }

    /// Whether the present timeline is accepted.
    pub fn is_timeline_accepted(&self) -> bool {
        let Timeline { number, accepted, .. } = self.timeline();
        number == accepted
    }

    pub(crate) fn timeline(&self) -> Timeline {
        self.0.plan.lock().timeline.clone()
    }

    pub(crate) fn set_timeline(&self, timeline: Timeline) {
        self.0.plan.lock().timeline = timeline;
    }

    /// Removes every fault and releases the calls that hang.
    pub fn clear(&self) {
        let mut plan = self.0.plan.lock();
        let (injected, timeline) = (std::mem::take(&mut plan.injected), plan.timeline.clone());
        *plan = Plan { injected, timeline, ..Plan::default() };
        drop(plan);
        self.release();
    }

    /// Releases the calls that hang.
    pub fn release(&self) {
        self.0.released.notify_waiters();
    }

    /// The broker has recovered: one call of `Broker::recovered` returns.
    pub fn signal_broker_recovery(&self) {
        self.0.broker_recovered.notify_one();
    }

    pub(crate) async fn broker_recovered(&self) {
        self.0.broker_recovered.notified().await;
    }

    /// The faults injected so far, in order. Tests assert them: a scenario without its faults tests no recovery.
    pub fn injected(&self) -> Vec<(Call, InjectedFault)> {
        self.0.plan.lock().injected.clone()
    }

    pub(crate) fn refuses(&self, record: &Record) -> bool {
        let filter = self.0.plan.lock().refused.clone();
        filter.is_some_and(|filter| filter(record))
    }

    fn draw(&self, call: Call) -> Option<InjectedFault> {
        let mut plan = self.0.plan.lock();
        let queued = plan.queued.get_mut(&call).and_then(VecDeque::pop_front);
        let planned = queued.or_else(|| plan.permanent.get(&call).copied());
        let mut random = plan.random.iter().filter(|(of, ..)| *of == call);
        let fault = planned.or_else(|| random.find(|(_, odds, _)| self.0.rng.fraction() < *odds).map(|odds| odds.2));
        plan.injected.extend(fault.map(|fault| (call, fault)));
        fault
    }

    /// The fault that the caller must apply. Delays have passed and panics were raised when this returns.
    pub(crate) async fn next_fault(&self, call: Call) -> Option<InjectedFault> {
        let mut released = std::pin::pin!(self.0.released.notified());
        // Registered before the draw, so that a release in between is not missed.
        released.as_mut().enable();
        match self.draw(call)? {
            InjectedFault::Slow(delay) => tokio::time::sleep(delay).await,
            InjectedFault::Hang => released.await,
            InjectedFault::Panic => panic!("injected: {call:?}"),
            fault => return Some(fault),
        }
        None
    }

    /// Executes a call with the fault that the script injects into it, if there is one.
    pub(crate) async fn apply<T>(
        &self,
        call: Call,
        run: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        outcome_under(call, self.next_fault(call).await, run).await
    }
}

/// The outcome of a call under this fault.
pub(crate) async fn outcome_under<T>(
    call: Call,
    fault: Option<InjectedFault>,
    run: impl Future<Output = Result<T, Error>> + Send,
) -> Result<T, Error> {
    match fault {
        None => run.await,
        Some(InjectedFault::UnknownDone) => {
            run.await?;
            Err(Error::Unknown(format!("injected: the reply to {call:?} was lost")))
        }
        Some(InjectedFault::SlowReply(delay)) => {
            let result = run.await;
            tokio::time::sleep(delay).await;
            result
        }
        Some(InjectedFault::UnknownNotDone) => Err(Error::Unknown(format!("injected: {call:?} was lost"))),
        Some(_) => Err(Error::Unreachable(format!("injected: {call:?}"))),
    }
}
