//! The suite of `OrderCache`: it may forget, but it never shows an older version after a newer one was put.
use std::sync::Arc;

use domain::{Order, OrderId, Status};
use futures::future::join_all;

use super::given::{Given, P0, given};
use crate::backend::Backend;

suite! { $ cache:
    what_was_never_put_is_not_there,
    an_order_is_remembered_exactly,
    a_newer_version_takes_the_older_ones_place,
    an_older_version_never_takes_a_newer_ones_place,
    of_concurrent_puts_the_newest_stays,
    an_evicted_order_is_gone,
    evicting_one_order_leaves_the_others,
}

impl<B: Backend> Given<'_, B> {
    async fn put(&self, order: &Order) {
        self.backend.cache().put(Arc::new(order.clone())).await.expect("put");
    }

    async fn cached(&self, id: OrderId) -> Option<Order> {
        self.backend.cache().get(id).await.expect("answered").map(|order| (*order).clone())
    }

    /// The versions of one order, oldest first.
    fn versions(&self) -> [Order; 4] {
        let placed = self.make.creation("ann", P0).order;
        let processing = self.make.moved(&placed, Status::Processing).0;
        let shipped = self.make.moved(&processing, Status::Shipped).0;
        let delivered = self.make.moved(&shipped, Status::Delivered).0;
        [placed, processing, shipped, delivered]
    }
}

async fn what_was_never_put_is_not_there<B: Backend>(backend: &B) {
    let given = given(backend);

    assert_eq!(given.cached(given.versions()[0].id).await, None);
}

async fn an_order_is_remembered_exactly<B: Backend>(backend: &B) {
    let given = given(backend);
    let mut order = given.make.placed("Zoë | \"O'Neil\" 🦀").0;
    order.items = given.make.items(500);

    given.put(&order).await;

    assert_eq!(given.cached(order.id).await, Some(order));
}

async fn a_newer_version_takes_the_older_ones_place<B: Backend>(backend: &B) {
    let given = given(backend);

    for version in given.versions() {
        given.put(&version).await;
        assert_eq!(given.cached(version.id).await, Some(version));
    }
}

async fn an_older_version_never_takes_a_newer_ones_place<B: Backend>(backend: &B) {
    let given = given(backend);
    let [placed, processing, shipped, _] = given.versions();
    given.put(&shipped).await;

    for older in [placed, processing] {
        given.put(&older).await;
        assert_eq!(given.cached(shipped.id).await, Some(shipped.clone()));
    }
}

async fn of_concurrent_puts_the_newest_stays<B: Backend>(backend: &B) {
    let given = given(backend);
    let versions = given.versions();
    let turns = [1, 3, 0, 2, 3, 1, 0, 2];

    join_all(turns.map(|at: usize| given.put(&versions[at]))).await;

    assert_eq!(given.cached(versions[0].id).await, Some(versions[3].clone()));
}

async fn an_evicted_order_is_gone<B: Backend>(backend: &B) {
    let given = given(backend);
    let [placed, ..] = given.versions();
    given.put(&placed).await;

    for _ in 0..2 {
        backend.cache().evict(placed.id).await.expect("evicted");
        assert_eq!(given.cached(placed.id).await, None);
    }

    given.put(&placed).await;
    assert_eq!(given.cached(placed.id).await, Some(placed));
}

async fn evicting_one_order_leaves_the_others<B: Backend>(backend: &B) {
    let given = given(backend);
    let ([gone, ..], [kept, ..]) = (given.versions(), given.versions());
    given.put(&gone).await;
    given.put(&kept).await;

    backend.cache().evict(gone.id).await.expect("evicted");

    assert_eq!((given.cached(gone.id).await, given.cached(kept.id).await), (None, Some(kept)));
}
