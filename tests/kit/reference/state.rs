//! The data of the reference: orders, outbox rows, leases, the inbox, the broker's topics and what the smaller ports store.
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use domain::{EventId, Order, OrderId, Subject, Timestamp, WebhookId};
use parking_lot::Mutex;
use ports::FailureType;
use ports::broker::{Position, Record};
use ports::clock::Clock;
use ports::endpoint::webhooks::{Webhook, WebhookDelivery};
use ports::inbox::{RemoteStamp, RetryRoute};
use ports::operators::AuditEntry;
use ports::operators::redrives::{DeadLetterId, RedriveRecord};
use ports::orders::cache::{CachedList, ListKey, ListScope};
use ports::orders::idempotency::BeginOutcome;
use ports::orders::{IdempotencyRecord, NewRow};
use ports::outbox::{EventKey, RowId, RowStatus};
use ports::partitions::{Counter, Epoch, InstanceId, PartitionNo, ProducerSessionId, Token};

use crate::clock::TestClock;

/// Every port in memory. Clones share one backend.
#[derive(Clone)]
pub struct Reference {
    pub(crate) clock: TestClock,
    pub(crate) state: Arc<Mutex<State>>,
}

/// The number of the reference's outbox partitions.
pub const PARTITIONS: u32 = 8;

#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) orders: BTreeMap<OrderId, Order>,
    pub(crate) idempotency_records: BTreeMap<(Subject, Arc<str>), (IdempotencyRecord, Timestamp)>,
    pub(crate) rows: BTreeMap<RowId, Row>,
    pub(crate) last_row: RowId,
    /// The last number of each key in each topic, of the events that came through `EventStore`.
    pub(crate) sequences: BTreeMap<(Arc<str>, EventKey), u64>,
    pub(crate) leases: Vec<Lease>,
    pub(crate) members: BTreeMap<InstanceId, (Timestamp, Duration)>,
    pub(crate) audits: Vec<AuditEntry>,
    pub(crate) redrives: BTreeMap<DeadLetterId, RedriveRecord>,
    pub(crate) webhooks: BTreeMap<WebhookId, Webhook>,
    /// The deliveries of each webhook, newest first.
    pub(crate) deliveries: BTreeMap<WebhookId, Vec<WebhookDelivery>>,
    pub(crate) consumed: BTreeMap<(String, EventId), Timestamp>,
    pub(crate) remotes: BTreeMap<OrderId, RemoteStamp>,
    pub(crate) retry_routes: BTreeMap<(String, String), RetryRoute>,
    pub(crate) topics: BTreeMap<String, Vec<Vec<Record>>>,
    pub(crate) watermarks: BTreeMap<PartitionNo, Token>,
    pub(crate) sessions: BTreeMap<u32, ProducerSessionId>,
    pub(crate) sessions_opened: u64,
    pub(crate) groups: HashMap<String, BTreeMap<(String, u32), u64>>,
    /// The outcome that a repeated `begin` of a key receives, until its expiry.
    pub(crate) keys: BTreeMap<(Subject, String), (BeginOutcome, Timestamp)>,
    pub(crate) cached: BTreeMap<OrderId, Arc<Order>>,
    /// The oldest version that may be cached, by order.
    pub(crate) refused_below: BTreeMap<OrderId, u64>,
    /// Cached lists with the generation of their readers' lookup.
    pub(crate) cached_lists: HashMap<ListKey, (u64, CachedList)>,
    pub(crate) list_generations: HashMap<ListScope, u64>,
    pub(crate) buckets: BTreeMap<String, Bucket>,
    pub(crate) is_disconnected: bool,
}

#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) id: RowId,
    pub(crate) event: NewRow,
    pub(crate) payload: Option<Arc<[u8]>>,
    pub(crate) created_at: Timestamp,
    pub(crate) status: RowStatus,
    /// The row failed once: the later rows of its key wait until it is SENT.
    pub(crate) blocks_key: bool,
    /// For a PARKED row: whether the later rows of its key wait.
    pub(crate) parked_with_key: bool,
    pub(crate) attempts: u32,
    pub(crate) deaths: u32,
    pub(crate) trial_deaths: u32,
    pub(crate) due: Option<Timestamp>,
    /// The claim of the last attempt, and of the one before, which counts again if the last one is returned.
    pub(crate) last_attempts: [Option<Timestamp>; 2],
    pub(crate) token: Token,
    pub(crate) owner: Option<InstanceId>,
    pub(crate) failure: Option<(FailureType, String)>,
    /// The reason of a row that an operator parked before it failed.
    pub(crate) parked_reason: Option<String>,
    pub(crate) sent_at: Option<Timestamp>,
    pub(crate) sent_to: Option<Position>,
    pub(crate) by_fallback: bool,
}

#[derive(Clone, Default)]
pub(crate) struct Lease {
    pub(crate) owner: Option<InstanceId>,
    pub(crate) epoch: Epoch,
    pub(crate) counter: Counter,
    pub(crate) open: Option<OpenClaim>,
    pub(crate) closed: Token,
    pub(crate) expires_at: Option<Timestamp>,
}

#[derive(Clone)]
pub(crate) struct OpenClaim {
    pub(crate) token: Token,
    pub(crate) session: ProducerSessionId,
    pub(crate) claimer_died: bool,
    pub(crate) trial: bool,
}

#[derive(Clone)]
pub(crate) struct Bucket {
    pub(crate) tokens: f64,
    pub(crate) refilled_at: Timestamp,
}

impl Row {
    /// Whether the later rows of the key wait for this row.
    pub(crate) fn blocks_later_rows(&self) -> bool {
        match self.status {
            RowStatus::Sent => false,
            RowStatus::Parked => self.parked_with_key,
            RowStatus::Pending | RowStatus::InFlight | RowStatus::Failed => true,
        }
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.status == RowStatus::Sent
    }
}

impl Lease {
    /// Whether this owner holds the lease in this epoch, by the lease row alone.
    pub(crate) fn is_held_by(&self, owner: &InstanceId, epoch: Epoch) -> bool {
        self.owner.as_ref() == Some(owner) && self.epoch == epoch
    }

    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|expiry| expiry > now)
    }
}

impl State {
    pub(crate) fn lease(&mut self, partition: PartitionNo) -> &mut Lease {
        &mut self.leases[partition.0 as usize]
    }

    /// The rows that are still in an open batch, in id order.
    pub(crate) fn batch(&mut self, partition: PartitionNo, token: Token) -> impl Iterator<Item = &mut Row> {
        self.rows.values_mut().filter(move |row| {
            row.status == RowStatus::InFlight && row.token == token && row.event.partition == partition
        })
    }
}

impl Reference {
    /// A backend without data that reads its time from this clock.
    pub fn new(clock: TestClock) -> Self {
        Self::partitioned(clock, PARTITIONS)
    }

    /// A backend without data that has this many outbox partitions.
    pub fn partitioned(clock: TestClock, partitions: u32) -> Self {
        let leases = (0..partitions).map(|_| Lease::default()).collect();
        let state = State { leases, ..State::default() };
        Self { clock, state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
