//! Queries by owner return all orders in order, whether they are in the index by owner yet or not, and after a restart.
use domain::{Status, Subject};
use ports::orders::{OrderFilter, OrderStore, PageStart};

use crate::support::{ManualClock, change, inline};

/// More than one list of new orders, so that some orders are in the index and some are not.
const ORDERS: u16 = 4_000;

fn owner(number: u16) -> Subject {
    Subject::new(&format!("owner-{}", number % 7)).unwrap()
}

#[tokio::test]
async fn orders_of_an_owner_are_found_before_and_after_they_are_indexed() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    for number in 0..ORDERS {
        let mut commit = change(number, 0);
        commit.order.owner = owner(number);
        store.commit(commit).await.unwrap();
    }
    drop(store);
    let store = inline(folder.path(), &clock);

    let filter = OrderFilter { owner: Some(owner(3)), status: None };
    let expected: Vec<_> = (0..ORDERS).rev().filter(|number| number % 7 == 3).map(crate::support::id).collect();
    assert_eq!(store.count(&filter).await.unwrap(), expected.len() as u64);
    let (mut seen, mut from) = (Vec::new(), PageStart::Offset(0));
    loop {
        let page = store.list(&filter, from, 250).await.unwrap();
        let Some(last) = page.last() else { break };
        from = PageStart::After(last.id);
        seen.extend(page.iter().map(|order| order.id));
    }
    assert_eq!(seen, expected, "newest first, none twice, none missing");

    let pending = OrderFilter { status: Some(Status::Pending), ..filter.clone() };
    assert_eq!(store.count(&pending).await.unwrap(), expected.len() as u64);
    let page: Vec<_> =
        store.list(&pending, PageStart::Offset(100), 5).await.unwrap().iter().map(|order| order.id).collect();
    assert_eq!(page, expected[100..105]);
    let shipped = OrderFilter { status: Some(Status::Shipped), ..filter };
    assert_eq!(store.count(&shipped).await.unwrap(), 0);
}
