//! The suite of `OrderCache`: an entry may be evicted, and an older version never replaces a newer one.
use std::sync::Arc;
use std::time::Duration;

use domain::{Order, OrderId, Status, Subject};
use futures::future::join_all;
use ports::orders::PageStart;
use ports::orders::cache::{CachedList, ListGeneration, ListKey, ListQuery, ListScope};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{Fixture, P0, fixture};

suite! { $ cache:
    an_order_never_put_is_not_found,
    an_order_reads_back_exactly_as_it_was_put,
    a_newer_version_replaces_an_older_one,
    an_older_version_never_replaces_a_newer_one,
    concurrent_puts_keep_the_newest_version,
    an_evicted_order_is_not_found,
    evicting_one_order_keeps_the_others,
    an_order_that_may_have_changed_refuses_older_versions,
    a_list_never_put_is_not_found,
    a_list_reads_back_exactly_as_it_was_put,
    lists_of_other_scopes_and_queries_are_kept_apart,
    a_change_evicts_the_lists_of_its_owner_and_of_all_orders_only,
    a_list_that_was_read_before_a_change_is_not_cached_after_it,
    an_emptied_cache_returns_nothing_and_caches_another_order_of_the_same_version,
}

impl<B: Backend> Fixture<'_, B> {
    async fn put(&self, order: &Order) {
        self.backend.cache().put(Arc::new(order.clone()), Duration::ZERO).await.expect("put");
    }

    async fn cached(&self, id: OrderId) -> Option<Order> {
        self.backend.cache().get(id).await.expect("the call succeeds").map(|order| (*order).clone())
    }

    async fn list(&self, key: &ListKey) -> Option<CachedList> {
        self.backend.cache().get_list(key).await.expect("the call succeeds").found
    }

    async fn generation(&self, key: &ListKey) -> ListGeneration {
        self.backend.cache().get_list(key).await.expect("the call succeeds").generation
    }

    /// Caches a list as a reader does: after a lookup.
    async fn put_list(&self, key: &ListKey, list: CachedList) {
        let generation = self.generation(key).await;
        self.backend.cache().put_list(key, generation, list, Duration::ZERO).await.expect("put");
    }

    async fn evict_lists(&self, owner: &Subject) {
        self.backend.cache().evict_lists(owner).await.expect("evicted");
    }

    /// An owner whose lists no other case uses.
    fn owner(&self) -> Subject {
        Subject::new(&format!("Zoë {}", self.factory.event_id())).expect("a name")
    }

    /// Orders of an owner, one with items of every kind.
    fn part(&self, owner: &Subject) -> CachedList {
        let large = Order { items: self.factory.items(50), ..self.factory.placed(owner.as_str()).0 };
        CachedList::Chunk([large, self.factory.placed(owner.as_str()).0].into())
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
    let fixture = fixture(backend);

    assert_eq!(fixture.cached(fixture.versions()[0].id).await, None);
}

async fn an_order_reads_back_exactly_as_it_was_put<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut order = fixture.factory.placed("Zoë | \"O'Neil\" 🦀").0;
    order.items = fixture.factory.items(100);

    fixture.put(&order).await;

    assert_eq!(fixture.cached(order.id).await, Some(order));
}

async fn a_newer_version_replaces_an_older_one<B: Backend>(backend: &B) {
    let fixture = fixture(backend);

    for version in fixture.versions() {
        fixture.put(&version).await;
        assert_eq!(fixture.cached(version.id).await, Some(version));
    }
}

async fn an_older_version_never_replaces_a_newer_one<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let [placed, processing, shipped, _] = fixture.versions();
    fixture.put(&shipped).await;

    for older in [placed, processing] {
        fixture.put(&older).await;
        assert_eq!(fixture.cached(shipped.id).await, Some(shipped.clone()));
    }
}

async fn concurrent_puts_keep_the_newest_version<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let versions = fixture.versions();
    let order_of_puts = [1, 3, 0, 2, 3, 1, 0, 2];

    join_all(order_of_puts.map(|at: usize| fixture.put(&versions[at]))).await;

    assert_eq!(fixture.cached(versions[0].id).await, Some(versions[3].clone()));
}

async fn an_evicted_order_is_not_found<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let [placed, ..] = fixture.versions();
    fixture.put(&placed).await;

    for _ in 0..2 {
        backend.cache().evict(placed.id).await.expect("evicted");
        assert_eq!(fixture.cached(placed.id).await, None);
    }

    fixture.put(&placed).await;
    assert_eq!(fixture.cached(placed.id).await, Some(placed));
}

async fn evicting_one_order_keeps_the_others<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let ([evicted, ..], [kept, ..]) = (fixture.versions(), fixture.versions());
    fixture.put(&evicted).await;
    fixture.put(&kept).await;

    backend.cache().evict(evicted.id).await.expect("evicted");

    assert_eq!((fixture.cached(evicted.id).await, fixture.cached(kept.id).await), (None, Some(kept)));
}

async fn an_order_that_may_have_changed_refuses_older_versions<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let [placed, processing, shipped, _] = fixture.versions();
    fixture.put(&placed).await;

    backend.cache().refuse_older(placed.id, processing.version).await.expect("refused");
    fixture.put(&placed).await;
    assert_eq!(fixture.cached(placed.id).await, None, "it was read before the commit took effect");
    fixture.put(&processing).await;
    assert_eq!(fixture.cached(placed.id).await, Some(processing.clone()));

    fixture.put(&shipped).await;
    backend.cache().refuse_older(placed.id, processing.version).await.expect("refused");
    assert_eq!(fixture.cached(placed.id).await, Some(shipped), "a newer version stays cached");
}

fn first_part(scope: ListScope) -> ListKey {
    ListKey { scope, query: ListQuery::Chunk { status: None, from: PageStart::Offset(0), limit: 16 } }
}

fn list_of(owner: &Subject) -> ListKey {
    first_part(ListScope::Owner(owner.clone()))
}

async fn a_list_never_put_is_not_found<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let key = list_of(&fixture.owner());

    assert_eq!((fixture.list(&key).await, fixture.list(&key).await), (None, None));
}

async fn a_list_reads_back_exactly_as_it_was_put<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let owner = fixture.owner();
    let count = ListKey { query: ListQuery::Count { status: Some(Status::Pending) }, ..list_of(&owner) };

    for list in [fixture.part(&owner), CachedList::Chunk([].into())] {
        fixture.put_list(&list_of(&owner), list.clone()).await;
        assert_eq!(fixture.list(&list_of(&owner)).await, Some(list));
    }
    fixture.put_list(&count, CachedList::Count(u64::from(u32::MAX) + 7)).await;
    assert_eq!(fixture.list(&count).await, Some(CachedList::Count(u64::from(u32::MAX) + 7)));
}

async fn lists_of_other_scopes_and_queries_are_kept_apart<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (ann, bob) = (fixture.owner(), fixture.owner());
    let first = list_of(&ann);
    let part = |status, from, limit| ListKey { query: ListQuery::Chunk { status, from, limit }, ..first.clone() };
    let after = PageStart::After(fixture.versions()[0].id);
    fixture.put_list(&first, fixture.part(&ann)).await;

    let others = [
        list_of(&bob),
        first_part(ListScope::All),
        part(Some(Status::Pending), PageStart::Offset(0), 16),
        part(None, PageStart::Offset(16), 16),
        part(None, PageStart::Offset(0), 17),
        part(None, after, 16),
        ListKey { query: ListQuery::Count { status: None }, ..first.clone() },
    ];
    for other in others {
        assert_eq!(fixture.list(&other).await, None, "{other:?}");
    }
}

async fn a_change_evicts_the_lists_of_its_owner_and_of_all_orders_only<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (ann, bob, all) = (fixture.owner(), fixture.owner(), first_part(ListScope::All));
    let of_bob = fixture.part(&bob);
    fixture.put_list(&list_of(&ann), fixture.part(&ann)).await;
    fixture.put_list(&list_of(&bob), of_bob.clone()).await;
    fixture.put_list(&all, fixture.part(&ann)).await;

    fixture.evict_lists(&ann).await;

    assert_eq!((fixture.list(&list_of(&ann)).await, fixture.list(&all).await), (None, None));
    assert_eq!(fixture.list(&list_of(&bob)).await, Some(of_bob));
    let next = fixture.part(&ann);
    fixture.put_list(&list_of(&ann), next.clone()).await;
    assert_eq!(fixture.list(&list_of(&ann)).await, Some(next), "the next list is cached again");
}

async fn a_list_that_was_read_before_a_change_is_not_cached_after_it<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let owner = fixture.owner();
    let key = list_of(&owner);
    let (before, outdated) = (fixture.generation(&key).await, fixture.part(&owner));

    fixture.evict_lists(&owner).await;
    for _ in 0..2 {
        backend.cache().put_list(&key, before, outdated.clone(), Duration::ZERO).await.expect("the call succeeds");
        assert_eq!(fixture.list(&key).await, None);
    }
}

async fn an_emptied_cache_returns_nothing_and_caches_another_order_of_the_same_version<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let ([lost, ..], owner) = (fixture.versions(), fixture.owner());
    let (before, key, all) = (fixture.part(&owner), list_of(&owner), first_part(ListScope::All));
    fixture.put(&lost).await;
    fixture.put_list(&key, before.clone()).await;
    fixture.put_list(&all, before).await;

    backend.cache().evict_all().await.expect("evicted");

    assert_eq!(fixture.cached(lost.id).await, None);
    assert_eq!((fixture.list(&key).await, fixture.list(&all).await), (None, None));
    let present = Order { status: Status::Cancelled, ..lost };
    fixture.put(&present).await;
    assert_eq!(fixture.cached(present.id).await, Some(present));
}
