//! An order store with a flaw.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Order, OrderId, Status, Subject};
use ports::Error;
use ports::orders::{Commit, CommitOutcome, IdempotencyRecord, OrderFilter, OrderStore, PageStart};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenOrders {
    pub(crate) inner: Arc<dyn OrderStore>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl OrderStore for BrokenOrders {
    async fn commit(&self, mut commit: Commit) -> Result<CommitOutcome, Error> {
        if self.flaw == Flaw::DropsMark {
            commit.idempotency_record = None;
        }
        if self.flaw == Flaw::DropsEvents {
            commit.events.clear();
        }
        match self.inner.commit(commit.clone()).await? {
            CommitOutcome::Stale { current } if self.flaw == Flaw::OverwritesNewerVersion => {
                self.inner.commit(Commit { expected: Some(current), ..commit }).await
            }
            committed => Ok(committed),
        }
    }
    async fn find(&self, id: OrderId) -> Result<Option<Order>, Error> {
        self.inner.find(id).await
    }
    async fn list(&self, filter: &OrderFilter, from: PageStart, limit: u32) -> Result<Vec<Order>, Error> {
        let mut page = self.inner.list(filter, from, limit).await?;
        if self.flaw == Flaw::ListsOldestFirst {
            page.reverse();
        }
        Ok(page)
    }
    async fn count(&self, filter: &OrderFilter) -> Result<u64, Error> {
        let everything = OrderFilter::default();
        self.inner.count(if self.flaw == Flaw::CountIgnoresFilter { &everything } else { filter }).await
    }
    async fn oldest(&self, status: Status, after: Option<OrderId>, limit: u32) -> Result<Vec<OrderId>, Error> {
        self.inner.oldest(status, after, limit).await
    }
    async fn find_idempotency_record(
        &self,
        subject: &Subject,
        key: &str,
        keep: Duration,
    ) -> Result<Option<IdempotencyRecord>, Error> {
        self.inner.find_idempotency_record(subject, key, keep).await
    }
    async fn sweep_idempotency_records(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let keep = if self.flaw == Flaw::SweepsRecentMarks { keep / 1_000 } else { keep };
        self.inner.sweep_idempotency_records(keep, limit).await
    }
}
