//! PendingPromoter: page after page until none waits, past orders that refuse, on its own rate.
use std::time::Duration;

use domain::Status;
use futures::future::join;
use kit::faults::{Call, InjectedFault};
use ports::orders::{OrderFilter, OrderStore};

use crate::house::House;
use crate::ledger::Ledger;
use crate::life::{Life, SOON};

async fn waiting(life: &Life) -> u64 {
    let filter = OrderFilter { status: Some(Status::Pending), ..OrderFilter::default() };
    life.store.count(&filter).await.expect("orders can be counted")
}

#[tokio::test(start_paused = true)]
async fn it_pages_until_none_is_left() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    house.options.promotion_batch = 20;
    let life = house.start().await;
    ledger.place_many(&life, 110).await;

    assert_eq!(life.promote().await, Some(110));

    assert_eq!(waiting(&life).await, 0);
    life.drained(SOON).await;
    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn orders_that_moved_on_meanwhile_are_passed() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    house.options.promotion_batch = 50;
    let life = house.start().await;
    let mut ids = ledger.place_many(&life, 20).await;
    // As the promoter walks along them.
    ids.sort();
    house.script.always(Call::Commit, InjectedFault::Slow(Duration::from_millis(100)));

    let (promoted, cancelled) = join(life.promote(), async {
        for id in &ids[15..18] {
            ledger.step(&life, *id, Status::Cancelled).await;
        }
        3
    })
    .await;

    assert_eq!(promoted, Some(20 - cancelled));
    assert_eq!(waiting(&life).await, 0);
    house.script.clear();
    life.drained(SOON).await;
    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn it_comes_by_itself_and_goes_on_where_a_store_that_was_away_stopped_it() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    house.options.promotion_interval = Duration::from_secs(60);
    let life = house.start().await;
    ledger.place_many(&life, 30).await;
    house.script.times(1, Call::Commit, InjectedFault::Unreachable);

    life.pass(Duration::from_secs(70)).await;
    assert_eq!(waiting(&life).await, 30, "the store was away");
    life.pass(Duration::from_secs(60)).await;

    assert_eq!(waiting(&life).await, 0);
    life.drained(SOON).await;
    ledger.laws(&life).await;
}
