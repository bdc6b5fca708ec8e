//! Clock, options, orders and a partition worker for tests.
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use domain::{EventId, EventType, Hlc, Item, Items, Money, Order, OrderId, RegionId, Subject, Timestamp};
use embedded::{Embedded, Options, WriterMode};
use ports::broker::{Batch, Broker, PublishOutcome, Record};
use ports::clock::Clock;
use ports::event_headers::EventHeaders;
use ports::orders::{Commit, CommitOutcome, NewRow, OrderStore, RegionStamp, event_key};
use ports::outbox::{
    Claim, ClaimKind, ClaimOutcome, ClaimedBatch, ExclusionOutcome, FencedOutcome, OutboxStore, Settlement,
};
use ports::partitions::{
    AcquireReason, AcquiredLease, Acquisition, InstanceId, LeaseFence, PartitionLeases, PartitionNo, ProducerSessionId,
};

/// A lease that outlasts every test.
pub const TTL: Duration = Duration::from_secs(30);

/// A clock that changes only when a test advances it.
pub struct ManualClock(AtomicI64);

impl ManualClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(1_700_000_000_000)))
    }

    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as i64, Ordering::SeqCst);
    }

    pub fn turn_back(&self, by: Duration) {
        self.0.fetch_sub(by.as_millis() as i64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

pub fn instance() -> InstanceId {
    InstanceId("here:8080".into())
}

pub fn options(folder: &Path, clock: &Arc<ManualClock>) -> Options {
    let options = Options::new(folder, instance(), clock.clone());
    // A disk that is busy for seconds delays the checkpoint at the end.
    Options { partitions: 4, topic_partitions: 3, close_timeout: options.close_timeout * 10, ..options }
}

/// A store in inline mode, for virtual time.
pub fn inline(folder: &Path, clock: &Arc<ManualClock>) -> Embedded {
    Embedded::open(Options { writer_mode: WriterMode::Inline, ..options(folder, clock) }).unwrap()
}

pub fn id(number: u16) -> OrderId {
    let mut entropy = [0; 10];
    entropy[8..].copy_from_slice(&number.to_be_bytes());
    OrderId::new_v7(Timestamp::from_millis(1_700_000_000_000 + i64::from(number)), entropy)
}

/// The commit of order `number` at `version`, with one event in partition 0.
pub fn change(number: u16, version: u64) -> Commit {
    let now = Timestamp::from_millis(1_700_000_000_000);
    let items = Items::new(vec![Item::new("tea \"green\"", 2, Money::parse("4.50").unwrap()).unwrap()]).unwrap();
    let mut entropy = [7; 10];
    entropy[..2].copy_from_slice(&number.to_be_bytes());
    entropy[2] = version as u8;
    let (order, event) = Order::place(domain::NewOrder {
        id: id(number),
        event_id: EventId::new_v7(now, entropy),
        owner: Subject::new("ann").unwrap(),
        items,
        region: RegionId::new("local"),
        now,
        physical_time: now,
        received: Hlc::default(),
    });
    let row = NewRow {
        event_id: event.id,
        key: event_key(order.id),
        event_type: EventType::OrderCreated.as_str().into(),
        topic: "order.events".into(),
        partition: PartitionNo(0),
        payload: format!("{number}/{version}").into_bytes().into(),
        sequence: version + 1,
        occurred_at: now,
        stamp: Some(RegionStamp { region: event.region, hlc: event.hlc }),
        trace: None,
        request_id: None,
        headers: EventHeaders::default(),
        content_type: None,
        contract_checksum: Some(u32::MAX),
    };
    let expected = version.checked_sub(1);
    Commit { order: Order { version, ..order }, expected, events: vec![row], idempotency_record: None }
}

pub async fn place(store: &Embedded, number: u16, version: u64) {
    let committed = OrderStore::commit(store, change(number, version)).await.unwrap();
    assert_eq!(committed, CommitOutcome::Done);
}

/// A worker of partition 0.
pub struct Worker {
    pub store: Embedded,
    pub fence: LeaseFence,
    pub session: ProducerSessionId,
}

impl Worker {
    pub async fn start(store: &Embedded) -> Self {
        let acquired = acquire(store, AcquireReason::Unowned).await;
        assert_eq!(acquired.open_batch, None);
        Self::new(store, acquired).await
    }

    pub async fn new(store: &Embedded, acquired: AcquiredLease) -> Self {
        let session = store.open_session(0).await.unwrap();
        Self { store: store.clone(), fence: acquired.fence, session }
    }

    pub async fn try_claim(&self, limit: u32, kind: ClaimKind) -> ClaimOutcome {
        let claim = Claim { fence: self.fence.clone(), session: self.session.clone(), limit, kind };
        self.store.claim(claim).await.unwrap()
    }

    pub async fn claim_as(&mut self, limit: u32, kind: ClaimKind) -> ClaimedBatch {
        match self.try_claim(limit, kind).await {
            ClaimOutcome::Batch(batch) => {
                self.fence.counter = batch.token;
                batch
            }
            other => panic!("nothing claimed: {other:?}"),
        }
    }

    pub async fn claim(&mut self) -> ClaimedBatch {
        self.claim_as(100, ClaimKind::Ordinary).await
    }

    pub async fn publish(&self, batch: &ClaimedBatch) -> PublishOutcome {
        let records = batch.rows.iter().map(|row| {
            let record = Record {
                topic: row.topic.clone(),
                key: row.key.to_string().into(),
                headers: [("ce_id", row.event_id.to_string())].into_iter().collect(),
                value: row.payload.clone().unwrap(),
                timestamp: row.occurred_at,
            };
            (row.id, record)
        });
        let records = records.collect();
        let batch =
            Batch { partition: PartitionNo(0), token: batch.token, records, time_left: TTL, expected_batches: 0 };
        self.store.publish(&self.session, batch).await
    }

    pub async fn settle(&mut self, batch: &ClaimedBatch, published: PublishOutcome) -> u64 {
        let PublishOutcome::Committed(positions) = published else { panic!("{published:?}") };
        let settlement = Settlement {
            fence: self.fence.clone(),
            token: batch.token,
            positions: positions.into(),
            by_fallback: Vec::new(),
        };
        let changed = self.store.settle(settlement).await.unwrap();
        self.adopt_counter(changed)
    }

    /// Adopts the counter of a statement that must have changed rows; returns their number.
    pub fn adopt_counter(&mut self, changed: FencedOutcome) -> u64 {
        let FencedOutcome::Done { counter, rows } = changed else { panic!("stale") };
        self.fence.counter = counter;
        rows
    }

    pub fn excluded(&mut self, outcome: ExclusionOutcome, batch: &mut ClaimedBatch) -> u64 {
        let ExclusionOutcome::Done { token, rows } = outcome else { panic!("stale") };
        (batch.token, self.fence.counter) = (token, token);
        rows
    }
}

pub async fn acquire(store: &Embedded, reason: AcquireReason) -> AcquiredLease {
    let watermark = store.watermark(PartitionNo(0), None).await.unwrap();
    match store.acquire(PartitionNo(0), &instance(), reason, watermark, TTL).await.unwrap() {
        Acquisition::Acquired(acquired) => acquired,
        held => panic!("{held:?}"),
    }
}

/// The payloads of a batch, as text.
pub fn texts(batch: &ClaimedBatch) -> Vec<String> {
    batch.rows.iter().map(|row| String::from_utf8(row.payload.clone().unwrap().to_vec()).unwrap()).collect()
}
