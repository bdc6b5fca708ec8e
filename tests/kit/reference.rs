//! A backend in memory that keeps every port's word: what the suites are tried on, and what a broken backend is broken from.
//! Plain and slow on purpose; it keeps nothing on disk and knows one process only.
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{EventId, Order, OrderId, Subject, Timestamp};
use parking_lot::Mutex;
use ports::FailureType;
use ports::broker::{Broker, Position, Record};
use ports::cache::OrderCache;
use ports::clock::Clock;
use ports::idempotency::Idempotency;
use ports::inbox::{Detour, Inbox, RemoteStamp};
use ports::operators::{Audit, OutboxOperators};
use ports::orders::{IdempotencyMark, NewRow, OrderStore};
use ports::outbox::{OutboxStore, RowId, RowStatus};
use ports::partitions::{Counter, Epoch, InstanceId, PartitionLeases, PartitionNo, ProducerSessionId, Token};
use ports::probe::Probe;
use ports::rate_limit::{RateLimitPolicy, RateLimiter};
use ports::redrives::{DeadLetterId, RedriveLedger, RedriveRecord};
use ports::source::ConsumerGroups;
use ports::topics::TopicReader;

use crate::backend::Backend;
use crate::clock::TestClock;
use crate::reference_small::Small;

/// Every port in memory. Clones are the same backend.
#[derive(Clone)]
pub struct Reference {
    pub(crate) clock: TestClock,
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) small: Arc<Mutex<Small>>,
}

/// The partitions of its outbox.
pub const PARTITIONS: u32 = 8;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) orders: BTreeMap<OrderId, Order>,
    pub(crate) marks: BTreeMap<(Subject, Arc<str>), (IdempotencyMark, Timestamp)>,
    pub(crate) rows: BTreeMap<RowId, Row>,
    pub(crate) last_row: RowId,
    pub(crate) leases: Vec<Lease>,
    pub(crate) members: BTreeMap<InstanceId, (Timestamp, Duration)>,
    pub(crate) audits: Vec<Audit>,
    pub(crate) letters: BTreeMap<DeadLetterId, RedriveRecord>,
    pub(crate) consumed: BTreeMap<(String, EventId), Timestamp>,
    pub(crate) remotes: BTreeMap<OrderId, RemoteStamp>,
    pub(crate) detours: BTreeMap<(String, String), Detour>,
    pub(crate) topics: BTreeMap<String, Vec<Vec<Record>>>,
    pub(crate) watermarks: BTreeMap<PartitionNo, Token>,
    pub(crate) lanes: BTreeMap<u32, ProducerSessionId>,
    pub(crate) sessions: u64,
    pub(crate) groups: HashMap<String, BTreeMap<(String, u32), u64>>,
}

pub(crate) struct Row {
    pub(crate) id: RowId,
    pub(crate) written: NewRow,
    pub(crate) payload: Option<Arc<[u8]>>,
    pub(crate) created_at: Timestamp,
    pub(crate) status: RowStatus,
    /// It failed once: its key's later rows wait until it is SENT.
    pub(crate) head: bool,
    /// Only when parked: whether its key waits with it.
    pub(crate) holds_key: bool,
    pub(crate) attempts: u32,
    pub(crate) deaths: u32,
    pub(crate) trial_deaths: u32,
    pub(crate) due: Option<Timestamp>,
    pub(crate) token: Token,
    pub(crate) owner: Option<InstanceId>,
    pub(crate) failure: Option<(FailureType, String)>,
    /// Who parked it that had not failed.
    pub(crate) parked: Option<String>,
    pub(crate) sent_at: Option<Timestamp>,
    pub(crate) sent_to: Option<Position>,
    pub(crate) by_fallback: bool,
}

#[derive(Default)]
pub(crate) struct Lease {
    pub(crate) owner: Option<InstanceId>,
    pub(crate) epoch: Epoch,
    pub(crate) counter: Counter,
    pub(crate) open: Option<Open>,
    pub(crate) closed: Token,
    pub(crate) expires_at: Option<Timestamp>,
}

pub(crate) struct Open {
    pub(crate) token: Token,
    pub(crate) lane: ProducerSessionId,
    pub(crate) claimer_died: bool,
    pub(crate) trial: bool,
}

impl Row {
    /// It has not left, and its key's later rows wait for it.
    pub(crate) fn holds_its_key(&self) -> bool {
        match self.status {
            RowStatus::Sent => false,
            RowStatus::Parked => self.holds_key,
            RowStatus::Pending | RowStatus::InFlight | RowStatus::Failed => true,
        }
    }

    pub(crate) fn left(&self) -> bool {
        self.status == RowStatus::Sent
    }
}

impl State {
    pub(crate) fn lease(&mut self, partition: PartitionNo) -> &mut Lease {
        &mut self.leases[partition.0 as usize]
    }

    /// The rows of a batch that are still in it.
    pub(crate) fn batch(&mut self, partition: PartitionNo, token: Token) -> impl Iterator<Item = &mut Row> {
        self.rows.values_mut().filter(move |row| {
            row.status == RowStatus::InFlight && row.token == token && row.written.partition == partition
        })
    }
}

impl Reference {
    /// An empty one that lives by this clock.
    pub fn new(clock: TestClock) -> Self {
        let leases = (0..PARTITIONS).map(|_| Lease::default()).collect();
        let state = State { leases, ..State::default() };
        Self { clock, state: Arc::new(Mutex::new(state)), small: Arc::default() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

#[async_trait]
impl Backend for Reference {
    async fn fresh() -> Self {
        Self::new(TestClock::default())
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn partitions(&self) -> u32 {
        PARTITIONS
    }

    fn orders(&self) -> Arc<dyn OrderStore> {
        Arc::new(self.clone())
    }
    fn outbox(&self) -> Arc<dyn OutboxStore> {
        Arc::new(self.clone())
    }
    fn operators(&self) -> Arc<dyn OutboxOperators> {
        Arc::new(self.clone())
    }
    fn redrives(&self) -> Arc<dyn RedriveLedger> {
        Arc::new(self.clone())
    }
    fn leases(&self) -> Arc<dyn PartitionLeases> {
        Arc::new(self.clone())
    }
    fn inbox(&self) -> Arc<dyn Inbox> {
        Arc::new(self.clone())
    }
    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(self.clone())
    }
    fn sources(&self) -> Arc<dyn ConsumerGroups> {
        Arc::new(self.clone())
    }
    fn topics(&self) -> Arc<dyn TopicReader> {
        Arc::new(self.clone())
    }
    fn idempotency(&self) -> Arc<dyn Idempotency> {
        Arc::new(self.clone())
    }
    fn cache(&self) -> Arc<dyn OrderCache> {
        Arc::new(self.clone())
    }
    fn rate_limit(&self) -> Arc<dyn RateLimiter> {
        Arc::new(self.clone())
    }
    fn probes(&self) -> Vec<Arc<dyn Probe>> {
        vec![Arc::new(self.clone())]
    }

    async fn audits(&self) -> Option<Vec<Audit>> {
        Some(self.state.lock().audits.clone())
    }
    async fn lose_payload(&self, row: RowId) -> bool {
        self.state.lock().rows.get_mut(&row).is_some_and(|row| row.payload.take().is_some())
    }
    async fn set_policy(&self, tier: &str, class: &str, policy: &RateLimitPolicy) -> bool {
        self.small.lock().policies.insert((tier.to_owned(), class.to_owned()), policy.clone());
        true
    }
    async fn cut_off(&self) -> bool {
        self.small.lock().cut_off = true;
        true
    }
}
