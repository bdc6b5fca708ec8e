//! The orders of the reference, committed with their rows and idempotency records.
use std::time::Duration;

use async_trait::async_trait;
use domain::{Order, OrderId, Status, Subject, Timestamp};
use ports::Error;
use ports::orders::{Commit, CommitOutcome, IdempotencyRecord, ListBudget, NewRow, OrderFilter, OrderStore, PageStart};
use ports::outbox::{RowId, RowStatus};

use crate::reference::state::{Reference, Row, State};

impl State {
    /// Commits, and gives the events the ids from `first_row` on.
    pub(crate) fn commit(&mut self, commit: Commit, first_row: RowId, now: Timestamp) -> CommitOutcome {
        let current = self.orders.get(&commit.order.id).map(|order| order.version);
        match (commit.expected, current) {
            (Some(expected), Some(current)) if expected != current => return CommitOutcome::Stale { current },
            (None, Some(current)) => return CommitOutcome::Stale { current },
            (Some(_), None) => return CommitOutcome::Missing,
            (Some(_), Some(_)) | (None, None) => {}
        }
        if let Some(idempotency_record) = commit.idempotency_record {
            let key = (idempotency_record.subject.clone(), idempotency_record.key.clone());
            if let Some((used, _)) = self.idempotency_records.get(&key) {
                return CommitOutcome::KeyUsed(used.clone());
            }
            self.idempotency_records.insert(key, (idempotency_record, now));
        }
        self.orders.insert(commit.order.id, commit.order);
        for (id, event) in (first_row..).zip(commit.events) {
            self.write(id, event, now);
        }
        CommitOutcome::Done
    }

    pub(crate) fn write(&mut self, id: RowId, event: NewRow, now: Timestamp) {
        self.last_row = self.last_row.max(id);
        let row = Row {
            id,
            payload: Some(event.payload.clone()),
            event,
            created_at: now,
            status: RowStatus::Pending,
            blocks_key: false,
            parked_with_key: false,
            attempts: 0,
            deaths: 0,
            trial_deaths: 0,
            due: None,
            token: 0,
            owner: None,
            failure: None,
            parked_reason: None,
            sent_at: None,
            last_attempts: [None; 2],
            sent_to: None,
            by_fallback: false,
        };
        self.rows.insert(row.id, row);
    }
}

fn matches_filter(filter: &OrderFilter, order: &Order) -> bool {
    filter.owner.as_ref().is_none_or(|owner| *owner == order.owner)
        && filter.status.is_none_or(|status| status == order.status)
}

/// The orders up to the one that ends a list by size. A stored item has its name and a price.
fn within_budget(mut orders: Vec<Order>) -> Vec<Order> {
    let mut budget = ListBudget::default();
    let size = |order: &Order| order.items.as_slice().iter().map(|item| item.name().len() + 16).sum();
    let ends = orders.iter().position(|order| !budget.add(size(order)));
    orders.truncate(ends.map_or(orders.len(), |last| last + 1));
    orders
}

#[async_trait]
impl OrderStore for Reference {
    async fn commit(&self, commit: Commit) -> Result<CommitOutcome, Error> {
        if let Some(row) = commit.events.iter().find(|row| row.partition.0 >= crate::reference::state::PARTITIONS) {
            return Err(Error::Rejected(format!("writing event {}: no partition {}", row.event_id, row.partition)));
        }
        let mut state = self.state.lock();
        let first_row = state.last_row + 1;
        Ok(state.commit(commit, first_row, self.now()))
    }

    async fn find(&self, id: OrderId) -> Result<Option<Order>, Error> {
        Ok(self.state.lock().orders.get(&id).cloned())
    }

    async fn list(&self, filter: &OrderFilter, from: PageStart, limit: u32) -> Result<Vec<Order>, Error> {
        let state = self.state.lock();
        let newest_first = state.orders.values().rev().filter(|order| matches_filter(filter, order)).cloned();
        let limit = limit as usize;
        let matching: Vec<Order> = match from {
            PageStart::Offset(skip) => {
                newest_first.skip(usize::try_from(skip).unwrap_or(usize::MAX)).take(limit).collect()
            }
            PageStart::After(id) => newest_first.filter(|order| order.id < id).take(limit).collect(),
        };
        Ok(within_budget(matching))
    }

    async fn count(&self, filter: &OrderFilter) -> Result<u64, Error> {
        Ok(self.state.lock().orders.values().filter(|order| matches_filter(filter, order)).count() as u64)
    }

    async fn oldest(&self, status: Status, after: Option<OrderId>, limit: u32) -> Result<Vec<OrderId>, Error> {
        let state = self.state.lock();
        let oldest_first = state.orders.values().filter(|order| order.status == status).map(|order| order.id);
        Ok(oldest_first.filter(|id| after.is_none_or(|after| *id > after)).take(limit as usize).collect())
    }

    async fn find_idempotency_record(
        &self,
        subject: &Subject,
        key: &str,
        keep: Duration,
    ) -> Result<Option<IdempotencyRecord>, Error> {
        let now = self.now();
        let state = self.state.lock();
        let found = state.idempotency_records.get(&(subject.clone(), key.into()));
        Ok(found
            .filter(|(_, written)| now.since(*written) <= keep)
            .map(|(idempotency_record, _)| idempotency_record.clone()))
    }

    async fn sweep_idempotency_records(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let now = self.now();
        let mut state = self.state.lock();
        let old = state.idempotency_records.iter().filter(|(_, (_, written))| now.since(*written) > keep);
        let old: Vec<_> = old.map(|(key, _)| key.clone()).take(limit as usize).collect();
        for key in &old {
            state.idempotency_records.remove(key);
        }
        Ok(old.len() as u64)
    }
}
