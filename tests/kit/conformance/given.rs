//! What cases begin with: orders that are written, rows that are looked up again.
use std::sync::Arc;
use std::time::Duration;

use domain::{Order, OrderId, Status};
use ports::operators::{Audit, RowDiagnosis, RowFilter, RowSelector, RowView};
use ports::orders::{Commit, Committed};
use ports::outbox::{Depth, RowId, RowStatus};
use ports::partitions::{InstanceId, PartitionNo, PartitionView};

use crate::backend::Backend;
use crate::factories::Factory;

/// The partition most cases use; the other one is [`P1`].
pub(crate) const P0: PartitionNo = PartitionNo(0);
/// Another partition.
pub(crate) const P1: PartitionNo = PartitionNo(1);
/// Short of nothing.
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// What retries wait for in cases: long beside what a case itself takes on a store with a clock of its own.
pub(crate) const RETRY: Duration = Duration::from_secs(600);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// A backend and a factory for it.
pub(crate) struct Given<'b, B> {
    pub(crate) backend: &'b B,
    pub(crate) make: Factory,
}

pub(crate) fn given<B: Backend>(backend: &B) -> Given<'_, B> {
    Given { backend, make: Factory::seeded(1, backend.topic()) }
}

pub(crate) fn instance(name: &str) -> InstanceId {
    InstanceId(name.into())
}

pub(crate) fn audit() -> Audit {
    Audit { operator: "olga".into(), reason: "ticket 7".into() }
}

impl<B: Backend> Given<'_, B> {
    pub(crate) async fn commit(&self, commit: Commit) -> Committed {
        self.backend.orders().commit(commit).await.expect("a commit is answered")
    }

    /// Commits what must succeed and returns the order.
    pub(crate) async fn done(&self, commit: Commit) -> Order {
        let order = commit.order.clone();
        assert_eq!(self.commit(commit).await, Committed::Done);
        order
    }

    /// One order placed: one row in this partition.
    pub(crate) async fn placed(&self, partition: PartitionNo) -> Order {
        self.done(self.make.creation("ann", partition)).await
    }

    /// So many orders placed: one row each, in this order.
    pub(crate) async fn many_placed(&self, count: usize, partition: PartitionNo) -> Vec<Order> {
        let mut orders = Vec::with_capacity(count);
        for _ in 0..count {
            orders.push(self.placed(partition).await);
        }
        orders
    }

    /// A key with so many rows, two to four: the later ones must wait for the earlier.
    pub(crate) async fn line(&self, rows: usize, partition: PartitionNo) -> Order {
        let mut order = self.placed(partition).await;
        for to in [Status::Processing, Status::Shipped, Status::Delivered].into_iter().take(rows - 1) {
            order = self.done(self.make.change(&order, to, partition)).await;
        }
        order
    }

    pub(crate) async fn rows(&self, filter: RowFilter) -> Vec<RowView> {
        self.backend.operators().rows(&filter, 1_000).await.expect("rows are shown")
    }

    /// The rows of a key, in id order.
    pub(crate) async fn rows_of(&self, key: OrderId) -> Vec<RowView> {
        self.rows(RowFilter { key: Some(key), ..RowFilter::default() }).await
    }

    /// The statuses of a key's rows, in id order.
    pub(crate) async fn statuses(&self, key: OrderId) -> Vec<RowStatus> {
        self.rows_of(key).await.into_iter().map(|row| row.status).collect()
    }

    pub(crate) async fn row(&self, id: RowId) -> RowView {
        let row = self.backend.operators().row(id).await.expect("a row is shown");
        row.unwrap_or_else(|| panic!("row {id} is gone"))
    }

    pub(crate) async fn diagnose(&self, selector: RowSelector) -> RowDiagnosis {
        let standing = self.backend.operators().diagnose(selector).await.expect("a standing is told");
        standing.expect("the row is known")
    }

    pub(crate) async fn depth(&self) -> Depth {
        self.backend.outbox().depth().await.expect("the depth is told")
    }

    pub(crate) async fn view(&self, partition: PartitionNo) -> PartitionView {
        let views = self.backend.leases().overview().await.expect("an overview is given");
        let view = views.into_iter().find(|view| view.partition == partition);
        view.expect("every partition is in the overview")
    }

    pub(crate) async fn advance(&self, by: Duration) {
        self.backend.advance(by).await;
    }

    pub(crate) fn topic(&self) -> Arc<str> {
        self.backend.topic()
    }
}
