//! Minimal fakes of the ports behind queries and operations.
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use domain::{EventId, Order, OrderId, Status, Subject, Timestamp};
use kit::{Backend, Reference};
use parking_lot::Mutex;
use ports::Error;
use ports::clock::Clock;
use ports::operators::redrives::{DeadLetterId, RedriveLedger, RedriveRecord};
use ports::operators::*;
use ports::orders::cache::{CachedList, ListGeneration, ListKey, ListLookup, OrderCache};
use ports::orders::{Commit, CommitOutcome, IdempotencyRecord, ListBudget, OrderFilter, OrderStore, PageStart};
use ports::outbox::*;
use ports::partitions::*;
use ports::rate_limit::{RateLimitDecision, RateLimitPolicy, RateLimiter};

/// A clock that only the test advances, and how far its wall clock is behind, both in milliseconds.
pub struct FakeClock(pub AtomicI64, pub AtomicI64);
impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(SeqCst))
    }
    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(SeqCst) - self.1.load(SeqCst))
    }
}

/// Orders in memory; `unavailable` makes every call fail.
#[derive(Default)]
pub struct FakeOrderStore {
    pub all: Mutex<Vec<Order>>,
    pub unavailable: Mutex<bool>,
    /// The number of lists that were read, and the size of the largest.
    pub lists: AtomicUsize,
    pub largest_part: AtomicUsize,
}

impl FakeOrderStore {
    fn matching(&self, filter: &OrderFilter) -> Result<Vec<Order>, Error> {
        if *self.unavailable.lock() {
            return Err(Error::Unreachable("secret-host:5432 refused".into()));
        }
        let matches = |order: &&Order| {
            filter.owner.as_ref().is_none_or(|owner| *owner == order.owner)
                && filter.status.is_none_or(|status| status == order.status)
        };
        let mut orders: Vec<Order> = self.all.lock().iter().filter(matches).cloned().collect();
        orders.sort_by_key(|order| std::cmp::Reverse((order.created_at, order.id)));
        Ok(orders)
    }
}

#[async_trait]
impl OrderStore for FakeOrderStore {
    async fn commit(&self, _: Commit) -> Result<CommitOutcome, Error> {
        unreachable!("commands use FakeDispatch")
    }
    /// Waits once, as a read of a real store does.
    async fn find(&self, id: OrderId) -> Result<Option<Order>, Error> {
        tokio::task::yield_now().await;
        Ok(self.matching(&OrderFilter::default())?.into_iter().find(|order| order.id == id))
    }
    async fn list(&self, filter: &OrderFilter, from: PageStart, limit: u32) -> Result<Vec<Order>, Error> {
        let orders = self.matching(filter)?.into_iter();
        let limit = limit as usize;
        let mut part: Vec<Order> = match from {
            PageStart::Offset(skip) => orders.skip(skip as usize).take(limit).collect(),
            PageStart::After(id) => orders.filter(|order| order.id < id).take(limit).collect(),
        };
        let size = |order: &Order| order.items.as_slice().iter().map(|item| item.name().len() + 16).sum::<usize>();
        let mut budget = ListBudget::default();
        let ends = part.iter().position(|order| !budget.add(size(order)));
        part.truncate(ends.map_or(part.len(), |last| last + 1));
        self.lists.fetch_add(1, SeqCst);
        self.largest_part.fetch_max(part.iter().map(size).sum(), SeqCst);
        Ok(part)
    }
    async fn count(&self, filter: &OrderFilter) -> Result<u64, Error> {
        Ok(self.matching(filter)?.len() as u64)
    }
    async fn oldest(&self, _: Status, _: Option<OrderId>, _: u32) -> Result<Vec<OrderId>, Error> {
        Ok(Vec::new())
    }
    async fn find_idempotency_record(
        &self,
        _: &Subject,
        _: &str,
        _: Duration,
    ) -> Result<Option<IdempotencyRecord>, Error> {
        Ok(None)
    }
    async fn sweep_idempotency_records(&self, _: Duration, _: u32) -> Result<u64, Error> {
        Ok(0)
    }
}

/// A cache that is always empty.
pub struct EmptyCache;

#[async_trait]
impl OrderCache for EmptyCache {
    async fn get(&self, _: OrderId) -> Result<Option<Arc<Order>>, Error> {
        Ok(None)
    }
    async fn put(&self, _: Arc<Order>, _: Duration) -> Result<(), Error> {
        Ok(())
    }
    async fn refuse_older(&self, _: OrderId, _: u64) -> Result<(), Error> {
        Ok(())
    }
    async fn evict(&self, _: OrderId) -> Result<(), Error> {
        Ok(())
    }
    async fn get_list(&self, _: &ListKey) -> Result<ListLookup, Error> {
        Ok(ListLookup { generation: ListGeneration(0), found: None })
    }
    async fn put_list(&self, _: &ListKey, _: ListGeneration, _: CachedList, _: Duration) -> Result<(), Error> {
        Ok(())
    }
    async fn evict_lists(&self, _: &Subject) -> Result<(), Error> {
        Ok(())
    }
    async fn evict_all(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// One bucket with a number of tokens; records the requested bucket names.
pub struct FakeRateLimiter {
    pub tokens: Mutex<u32>,
    pub requested: Mutex<Vec<String>>,
}

#[async_trait]
impl RateLimiter for FakeRateLimiter {
    async fn take(&self, bucket: &str, _: &RateLimitPolicy, _: f64) -> Result<RateLimitDecision, Error> {
        self.requested.lock().push(bucket.to_owned());
        let mut tokens = self.tokens.lock();
        let allowed = *tokens > 0;
        *tokens = tokens.saturating_sub(1);
        Ok(RateLimitDecision { allowed, remaining: *tokens, next_in: Duration::from_millis(500) })
    }
}

/// Fails when no call is left; `u32::MAX` calls never end.
fn use_one(calls_left: &AtomicU32) -> Result<(), Error> {
    let next = |left: u32| if left == u32::MAX { Some(left) } else { left.checked_sub(1) };
    let used = calls_left.fetch_update(SeqCst, SeqCst, next);
    used.map(|_| ()).map_err(|_| Error::Unreachable("secret-host:5432 refused".into()))
}

/// A ledger of redrives that becomes unreachable.
pub struct FakeRedrives {
    pub ledger: Reference,
    /// Reservations until the store is unreachable.
    pub reservations_left: AtomicU32,
    /// Confirmations until the store is unreachable.
    pub confirmations_left: AtomicU32,
    /// Reads until the store is unreachable.
    pub reads_left: AtomicU32,
}

#[async_trait]
impl RedriveLedger for FakeRedrives {
    async fn reserve(&self, ids: &[DeadLetterId], timeout: Duration, audit: &Audit) -> Result<Vec<bool>, Error> {
        use_one(&self.reservations_left)?;
        self.ledger.redrives().reserve(ids, timeout, audit).await
    }
    async fn confirm(&self, ids: &[DeadLetterId]) -> Result<(), Error> {
        use_one(&self.confirmations_left)?;
        self.ledger.redrives().confirm(ids).await
    }
    async fn release(&self, ids: &[DeadLetterId]) -> Result<(), Error> {
        self.ledger.redrives().release(ids).await
    }
    async fn find(&self, ids: &[DeadLetterId]) -> Result<Vec<Option<RedriveRecord>>, Error> {
        use_one(&self.reads_left)?;
        self.ledger.redrives().find(ids).await
    }
}

/// An outbox with four rows of one key: sent, parked, pending and failed.
pub struct FakeOutbox {
    pub rows: Mutex<Vec<RowView>>,
    pub audits: Mutex<Vec<Audit>>,
    /// The rows that were redriven one by one.
    pub redriven_rows: Mutex<Vec<RowId>>,
    /// Reads until the store is unreachable.
    pub reads_left: AtomicU32,
    /// Time that a retry or park of one row takes.
    pub action_time: Mutex<Duration>,
}

pub const KEY: &str = "019a9c1e-7b1a-7c3e-9d55-2f6b1c0a4e11";
pub fn event(n: u8) -> EventId {
    EventId::new_v7(Timestamp::from_millis(1_000), [n; 10])
}

impl Default for FakeOutbox {
    fn default() -> Self {
        let row = |id: i64, status, next_attempt_at| RowView {
            id,
            event_id: event(id as u8),
            key: EventKey::parse(KEY).unwrap(),
            event_type: "ORDER_CREATED".into(),
            partition: PartitionNo(7),
            status,
            lease_owner: Some(InstanceId("one".into())),
            lease_version: 5,
            retry_count: 2,
            next_attempt_at,
            last_attempt_at: Some(Timestamp::from_millis(2_000)),
            failure_type: (status == RowStatus::Parked).then_some(ports::FailureType::Network),
            last_failure_reason: (status == RowStatus::Parked).then(|| "refused".to_owned()),
            created_at: Timestamp::from_millis(1_000),
            sent_at: (status == RowStatus::Sent).then(|| Timestamp::from_millis(2_000)),
        };
        let rows = vec![
            row(1, RowStatus::Sent, None),
            row(2, RowStatus::Parked, None),
            row(3, RowStatus::Pending, None),
            row(4, RowStatus::Failed, Some(Timestamp::from_millis(9_000))),
        ];
        Self {
            rows: Mutex::new(rows),
            audits: Mutex::default(),
            redriven_rows: Mutex::default(),
            reads_left: AtomicU32::new(u32::MAX),
            action_time: Mutex::default(),
        }
    }
}

#[async_trait]
impl OutboxOperators for FakeOutbox {
    async fn rows(&self, filter: &RowFilter, limit: u32) -> Result<Vec<RowView>, Error> {
        use_one(&self.reads_left)?;
        let matches = |row: &&RowView| {
            filter.status.is_none_or(|status| status == row.status)
                && filter.key.as_ref().is_none_or(|key| *key == row.key)
                && filter.partition.is_none_or(|partition| partition == row.partition)
                && filter.event_type.as_ref().is_none_or(|event_type| *event_type == row.event_type)
                && (filter.failure_type.is_none() || filter.failure_type == row.failure_type)
                && filter.after.is_none_or(|after| row.id > after)
        };
        Ok(self.rows.lock().iter().filter(matches).take(limit as usize).cloned().collect())
    }
    async fn row(&self, id: RowId) -> Result<Option<RowView>, Error> {
        use_one(&self.reads_left)?;
        Ok(self.rows.lock().iter().find(|row| row.id == id).cloned())
    }
    async fn diagnose(&self, selector: RowSelector) -> Result<Option<RowDiagnosis>, Error> {
        let rows = self.rows.lock();
        let row = rows.iter().find(|row| match &selector {
            RowSelector::Key(key) => row.key == *key && row.status != RowStatus::Sent,
            RowSelector::Event(event) => row.event_id == *event,
        });
        Ok(row.cloned().map(|row| RowDiagnosis {
            head: (row.id == 3).then(|| rows[1].clone()),
            owner: Some(InstanceId("one".into())),
            epoch: 4,
            deaths: 0,
            sent_to: (row.id == 1)
                .then(|| RecordLocation { topic: "order.events".into(), partition_offset: Some((3, 17)) }),
            by_fallback: false,
            row,
        }))
    }
    async fn event(&self, _: RowId) -> Result<Option<ClaimedRow>, Error> {
        Ok(None)
    }
    async fn audit_entries(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditEntry>, Error> {
        let entry = |(index, audit): (usize, &Audit)| AuditEntry {
            id: index as AuditId + 1,
            at: Timestamp::from_millis(2_000),
            action: "retry".into(),
            row: Some(2),
            audit: audit.clone(),
        };
        let matches = |entry: &AuditEntry| {
            filter.after.is_none_or(|after| entry.id < after)
                && filter.row.is_none_or(|row| entry.row == Some(row))
                && filter.action.is_none_or(|action| entry.action == action.as_str())
                && filter.operator.as_ref().is_none_or(|operator| entry.audit.operator == *operator)
        };
        let audits = self.audits.lock();
        Ok(audits.iter().enumerate().rev().map(entry).filter(matches).take(limit as usize).collect())
    }
    async fn redrive_row(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        self.redriven_rows.lock().push(id);
        self.set_status(id, RowStatus::Pending, audit)
    }
    async fn retry(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        self.await_action().await;
        self.set_status(id, RowStatus::Pending, audit)
    }
    async fn park(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        self.await_action().await;
        self.set_status(id, RowStatus::Parked, audit)
    }
    async fn redrive(
        &self,
        filter: &RowFilter,
        limit: u32,
        mode: RedriveMode,
        audit: &Audit,
    ) -> Result<OperatorOutcome, Error> {
        if mode == RedriveMode::Execute {
            self.audits.lock().push(audit.clone());
        }
        let parked =
            |row: &&RowView| row.status == RowStatus::Parked && filter.after.is_none_or(|after| row.id > after);
        let matched = self.rows.lock().iter().filter(parked).take(limit as usize).count();
        Ok(OperatorOutcome::Done(matched as u64))
    }
}

impl FakeOutbox {
    async fn await_action(&self) {
        let time = *self.action_time.lock();
        if !time.is_zero() {
            let waited = tokio::time::timeout(time, std::future::pending::<()>()).await;
            waited.expect_err("the time is over");
        }
    }

    fn set_status(&self, id: RowId, to: RowStatus, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let mut rows = self.rows.lock();
        let Some(row) = rows.iter_mut().find(|row| row.id == id) else { return Ok(OperatorOutcome::Missing) };
        if row.status == RowStatus::Sent {
            return Ok(OperatorOutcome::WrongStatus(row.status));
        }
        row.status = to;
        self.audits.lock().push(audit.clone());
        Ok(OperatorOutcome::Done(1))
    }
}
