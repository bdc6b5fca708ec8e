//! The suite of `OrderCache`: an entry may be evicted, and an older version never replaces a newer one.
use std::sync::Arc;

use domain::{Order, OrderId, Status};
use futures::future::join_all;

use crate::backend::Backend;
use crate::conformance::fixture::given::{Given, P0, given};

suite! { $ cache:
    an_order_never_put_is_not_found,
    an_order_reads_back_exactly_as_it_was_put,
    a_newer_version_replaces_an_older_one,
    an_older_version_never_replaces_a_newer_one,
    concurrent_puts_keep_the_newest_version,
    an_evicted_order_is_not_found,
    evicting_one_order_keeps_the_others,
}

impl<B: Backend> Given<'_, B> {
    async fn put(&self, order: &Order) {
        self.backend.cache().put(Arc::new(order.clone())).await.expect("put");
    }

    async fn cached(&self, id: OrderId) -> Option<Order> {
        self.backend.cache().get(id).await.expect("the call succeeds").map(|order| (*order).clone())
    }

    /// The versions of one order, oldest first.
    fn versions(&self) -> [Order; 4] {
        let placed = self.factory.creation("ann", P0).order;
        let processing = self.factory.status_changed(&placed, Status::Processing).0;
        let shipped = self.factory.status_changed(&processing, Status::Shipped).0;
        let delivered = self.factory.status_changed(&shipped, Status::Delivered).0;
        [placed, processing, shipped, delivered]
    }
}

async fn an_order_never_put_is_not_found<B: Backend>(backend: &B) {
    let given = given(backend);

    assert_eq!(given.cached(given.versions()[0].id).await, None);
}

async fn an_order_reads_back_exactly_as_it_was_put<B: Backend>(backend: &B) {
    let given = given(backend);
    let mut order = given.factory.placed("Zoë | \"O'Neil\" 🦀").0;
    order.items = given.factory.items(500);

    given.put(&order).await;

    assert_eq!(given.cached(order.id).await, Some(order));
}

async fn a_newer_version_replaces_an_older_one<B: Backend>(backend: &B) {
    let given = given(backend);

    for version in given.versions() {
        given.put(&version).await;
        assert_eq!(given.cached(version.id).await, Some(version));
    }
}

async fn an_older_version_never_replaces_a_newer_one<B: Backend>(backend: &B) {
    let given = given(backend);
    let [placed, processing, shipped, _] = given.versions();
    given.put(&shipped).await;

    for older in [placed, processing] {
        given.put(&older).await;
        assert_eq!(given.cached(shipped.id).await, Some(shipped.clone()));
    }
}

async fn concurrent_puts_keep_the_newest_version<B: Backend>(backend: &B) {
    let given = given(backend);
    let versions = given.versions();
    let order_of_puts = [1, 3, 0, 2, 3, 1, 0, 2];

    join_all(order_of_puts.map(|at: usize| given.put(&versions[at]))).await;

    assert_eq!(given.cached(versions[0].id).await, Some(versions[3].clone()));
}

async fn an_evicted_order_is_not_found<B: Backend>(backend: &B) {
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

async fn evicting_one_order_keeps_the_others<B: Backend>(backend: &B) {
    let given = given(backend);
    let ([evicted, ..], [kept, ..]) = (given.versions(), given.versions());
    given.put(&evicted).await;
    given.put(&kept).await;

    backend.cache().evict(evicted.id).await.expect("evicted");

    assert_eq!((given.cached(evicted.id).await, given.cached(kept.id).await), (None, Some(kept)));
}
