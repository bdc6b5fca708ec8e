//! Cases of `OrderStore`: lists, pages and counts.
use domain::{Item, Items, Money, OrderId, Status, Subject, Timestamp};
use ports::orders::{OrderFilter, PageStart};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{DAY, P0, fixture};

pub(super) async fn orders_are_listed_newest_first<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut placed = fixture.place_orders(5, P0).await;
    placed.reverse();

    let page =
        |from, limit| async move { backend.orders().list(&OrderFilter::default(), from, limit).await.expect("a page") };

    assert_eq!(page(PageStart::Offset(0), 10).await, placed);
    assert_eq!(page(PageStart::Offset(1), 2).await, placed[1..3]);
    assert_eq!(page(PageStart::Offset(5), 2).await, []);
}

pub(super) async fn a_list_is_filtered_by_owner_and_by_status<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let anns = fixture.place_order(P0).await;
    let anns_moved =
        fixture.committed(fixture.factory.change(&fixture.place_order(P0).await, Status::Processing, P0)).await;
    let bobs = fixture.committed(fixture.factory.creation("bob", P0)).await;
    let list = |owner: Option<&str>, status| {
        let filter = OrderFilter { owner: owner.and_then(Subject::new), status };
        async move { backend.orders().list(&filter, PageStart::Offset(0), 10).await.expect("a page") }
    };

    assert_eq!(list(Some("ann"), None).await, [anns_moved.clone(), anns.clone()]);
    assert_eq!(list(Some("an"), None).await, []);
    assert_eq!(list(None, Some(Status::Pending)).await, [bobs, anns.clone()]);
    assert_eq!(list(Some("ann"), Some(Status::Processing)).await, [anns_moved]);
    assert_eq!(list(Some("ann"), Some(Status::Pending)).await, [anns]);
}

pub(super) async fn a_page_after_an_id_is_strictly_older_for_any_id<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let first = fixture.place_order(P0).await;
    let never_written = fixture.factory.placed("eve").0;
    let bobs = fixture.committed(fixture.factory.creation("bob", P0)).await;
    let last = fixture.place_order(P0).await;
    let anns = OrderFilter { owner: Subject::new("ann"), status: None };
    let after = async |id| {
        let page = backend.orders().list(&anns, PageStart::After(id), 10).await.expect("a page");
        page.into_iter().map(|order| order.id).collect::<Vec<_>>()
    };

    assert_eq!(after(last.id).await, [first.id]);
    assert_eq!(after(bobs.id).await, [first.id]);
    assert_eq!(after(never_written.id).await, [first.id]);
    assert_eq!(after(first.id).await, []);
    let end_of_time = OrderId::new_v7(last.created_at.plus(DAY), [0; 10]);
    assert_eq!(after(end_of_time).await, [last.id, first.id]);
}

pub(super) async fn keyset_pages_show_each_order_once_while_orders_arrive<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut placed = fixture.place_orders(7, P0).await;
    placed.reverse();

    let mut seen = backend.orders().list(&OrderFilter::default(), PageStart::Offset(0), 2).await.expect("a page");
    loop {
        fixture.place_order(P0).await;
        let after = PageStart::After(seen.last().expect("the first page is full").id);
        let page = backend.orders().list(&OrderFilter::default(), after, 2).await.expect("a page");
        if page.is_empty() {
            break;
        }
        seen.extend(page);
        assert!(seen.len() <= placed.len(), "an order is listed twice");
    }

    assert_eq!(seen, placed);
}

pub(super) async fn orders_of_one_millisecond_are_paged_without_a_gap<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let now = fixture.factory.next_timestamp();
    let mut ids = Vec::new();
    for _ in 0..9 {
        let mut creation = fixture.factory.creation("ann", P0);
        creation.order.id = fixture.factory.order_id(now);
        (creation.order.created_at, creation.order.updated_at) = (now, now);
        ids.push(creation.order.id);
        fixture.committed(creation).await;
    }
    ids.sort();
    ids.reverse();

    let mut seen: Vec<OrderId> = Vec::new();
    let mut from = PageStart::Offset(0);
    for _ in 0..5 {
        let page = backend.orders().list(&OrderFilter::default(), from, 2).await.expect("a page");
        seen.extend(page.iter().map(|order| order.id));
        from = PageStart::After(*seen.last().expect("a page is not empty"));
    }

    assert_eq!(seen, ids);
}

pub(super) async fn a_list_of_large_orders_ends_at_its_size_and_goes_on_behind<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let item = Item::new(&"x".repeat(256), 1, Money::parse("1").expect("a price")).expect("an item");
    let mut ids = Vec::new();
    for _ in 0..5 {
        let mut creation = fixture.factory.creation("ann", P0);
        creation.order.items = Items::new(vec![item.clone(); 500]).expect("items");
        ids.push(fixture.committed(creation).await.id);
    }
    ids.reverse();
    let list = async |from| {
        let part = backend.orders().list(&OrderFilter::default(), from, 10).await.expect("a part");
        part.into_iter().map(|order| order.id).collect::<Vec<OrderId>>()
    };

    assert_eq!(list(PageStart::Offset(0)).await, ids[..2], "the second order reaches the size");
    assert_eq!(list(PageStart::After(ids[1])).await, ids[2..4]);
    assert_eq!(list(PageStart::After(ids[3])).await, ids[4..]);
    assert_eq!(list(PageStart::After(ids[4])).await, []);
}

pub(super) async fn a_count_applies_its_filter<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(3, P0).await;
    fixture.committed(fixture.factory.creation("bob", P0)).await;
    let count = |owner: Option<&str>, status| {
        let filter = OrderFilter { owner: owner.and_then(Subject::new), status };
        async move { backend.orders().count(&filter).await.expect("counted") }
    };

    assert_eq!(count(None, None).await, 4);
    assert_eq!(count(Some("ann"), None).await, 3);
    assert_eq!(count(Some("bob"), Some(Status::Pending)).await, 1);
    assert_eq!(count(Some("bob"), Some(Status::Shipped)).await, 0);
}

pub(super) async fn the_oldest_orders_of_a_status_come_first<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let placed = fixture.place_orders(5, P0).await;
    fixture.committed(fixture.factory.change(&placed[1], Status::Processing, P0)).await;
    let oldest =
        |after, limit| async move { backend.orders().oldest(Status::Pending, after, limit).await.expect("ids") };

    assert_eq!(oldest(None, 2).await, [placed[0].id, placed[2].id]);
    assert_eq!(oldest(Some(placed[2].id), 9).await, [placed[3].id, placed[4].id]);
    assert_eq!(oldest(Some(placed[1].id), 1).await, [placed[2].id], "also after an order that has left the status");
    assert_eq!(oldest(Some(placed[4].id), 9).await, []);
    let beginning = OrderId::new_v7(Timestamp::from_millis(0), [0; 10]);
    assert_eq!(oldest(Some(beginning), 1).await, [placed[0].id]);
}
