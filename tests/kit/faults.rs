//! Faults to inject: a script says which call meets which mishap, and wrappers around ports play it. The handle stays with the test,
//! which may change the script while the service runs. What chance there is comes from a seed.
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ports::Error;
use ports::broker::Record;
use ports::clock::Rng;
use tokio::sync::Notify;

use crate::clock::SeededDice;

pub use crate::faults_broker::FaultyBroker;
pub use crate::faults_store::{FaultyLeases, FaultyOrders, FaultyOutbox};

/// The calls a script knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// `Broker::open_session`.
    OpenLane,
    /// `Broker::publish`.
    Publish,
    /// `Broker::watermark`.
    Watermark,
    /// `Broker::fence`.
    Fence,
    /// `Broker::append`.
    Append,
    /// `OrderStore::commit`.
    Commit,
    /// `OrderStore::find`, `list`, `count`, `oldest`, `find_mark`.
    Read,
    /// `OutboxStore::claim`.
    Claim,
    /// `OutboxStore::exclude`.
    Exclude,
    /// `OutboxStore::settle`.
    Settle,
    /// `OutboxStore::resolve`.
    Resolve,
    /// `PartitionLeases::heartbeat`.
    Heartbeat,
    /// `PartitionLeases::acquire`.
    Acquire,
    /// `PartitionLeases::renew`.
    Renew,
    /// `PartitionLeases::release`.
    Release,
}

/// What a call may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// Nothing was done, and the caller knows.
    Unreachable,
    /// Nothing was done, and the caller does not know.
    UnknownNotDone,
    /// It was done, and the caller does not know.
    UnknownDone,
    /// Of `publish` only: the lane is fenced, nothing was done. Elsewhere as [`Mishap::Unreachable`].
    LaneLost,
    /// It takes so long, then goes on.
    Slow(Duration),
    /// It stands still until [`Script::release`], then goes on.
    Hang,
    /// The caller's task dies.
    Panic,
}

/// A handle on what goes wrong. Clones are the same script.
#[derive(Clone)]
pub struct Script(Arc<Shared>);

struct Shared {
    plan: Mutex<Plan>,
    dice: SeededDice,
    released: Notify,
}

#[derive(Default)]
struct Plan {
    queued: BTreeMap<Call, VecDeque<Mishap>>,
    standing: BTreeMap<Call, Mishap>,
    odds: Vec<(Call, f64, Mishap)>,
    refused: Option<Refusal>,
    met: Vec<(Call, Mishap)>,
}

type Refusal = Arc<dyn Fn(&Record) -> bool + Send + Sync>;

impl Script {
    /// A script in which nothing goes wrong yet; its seed is for [`Script::sometimes`].
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Shared { plan: Mutex::default(), dice: SeededDice::new(seed), released: Notify::new() }))
    }

    /// The next call of this kind meets this, after what was queued before.
    pub fn once(&self, call: Call, mishap: Mishap) {
        self.times(1, call, mishap);
    }

    /// So many next calls of this kind meet this.
    pub fn times(&self, calls: usize, call: Call, mishap: Mishap) {
        let mut plan = self.0.plan.lock();
        plan.queued.entry(call).or_default().extend(std::iter::repeat_n(mishap, calls));
    }

    /// Every call of this kind meets this, until [`Script::calm`].
    pub fn always(&self, call: Call, mishap: Mishap) {
        self.0.plan.lock().standing.insert(call, mishap);
    }

    /// A call of this kind meets this with this probability, 0.0..=1.0.
    pub fn sometimes(&self, probability: f64, call: Call, mishap: Mishap) {
        self.0.plan.lock().odds.push((call, probability, mishap));
    }

    /// The broker refuses the records that this picks, in `publish` and `append`.
    pub fn refuse(&self, picks: impl Fn(&Record) -> bool + Send + Sync + 'static) {
        self.0.plan.lock().refused = Some(Arc::new(picks));
    }

    /// Nothing goes wrong any more; what hangs goes on.
    pub fn calm(&self) {
        let mut plan = self.0.plan.lock();
        *plan = Plan { met: std::mem::take(&mut plan.met), ..Plan::default() };
        drop(plan);
        self.release();
    }

    /// What hangs goes on.
    pub fn release(&self) {
        self.0.released.notify_waiters();
    }

    /// What was met so far, in order: a simulation that met nothing has proved nothing.
    pub fn met(&self) -> Vec<(Call, Mishap)> {
        self.0.plan.lock().met.clone()
    }

    pub(crate) fn refuses(&self, record: &Record) -> bool {
        let picks = self.0.plan.lock().refused.clone();
        picks.is_some_and(|picks| picks(record))
    }

    fn draw(&self, call: Call) -> Option<Mishap> {
        let mut plan = self.0.plan.lock();
        let queued = plan.queued.get_mut(&call).and_then(VecDeque::pop_front);
        let planned = queued.or_else(|| plan.standing.get(&call).copied());
        let mut odds = plan.odds.iter().filter(|(of, ..)| *of == call);
        let drawn = planned.or_else(|| odds.find(|(_, odds, _)| self.0.dice.fraction() < *odds).map(|odd| odd.2));
        plan.met.extend(drawn.map(|mishap| (call, mishap)));
        drawn
    }

    /// What the call meets. What only takes time is over when this returns.
    pub(crate) async fn meet(&self, call: Call) -> Option<Mishap> {
        let mut released = std::pin::pin!(self.0.released.notified());
        // Listening begins before the draw: a release in between is not slept through.
        released.as_mut().enable();
        match self.draw(call)? {
            Mishap::Slow(wait) => tokio::time::sleep(wait).await,
            Mishap::Hang => released.await,
            Mishap::Panic => panic!("injected: {call:?}"),
            told => return Some(told),
        }
        None
    }

    /// Plays the script around a call.
    pub(crate) async fn around<T>(
        &self,
        call: Call,
        run: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        match self.meet(call).await {
            None => run.await,
            Some(Mishap::UnknownDone) => {
                run.await?;
                Err(Error::Unknown(format!("injected: the answer of {call:?} was lost")))
            }
            Some(Mishap::UnknownNotDone) => Err(Error::Unknown(format!("injected: {call:?} was lost"))),
            Some(_) => Err(Error::Unreachable(format!("injected: {call:?}"))),
        }
    }
}
