//! A slow broker: the bound on batches in flight holds, each key keeps its order, everything leaves.
use std::time::Duration;

use domain::Status;
use kit::faults::{Call, InjectedFault};

use crate::house::House;
use crate::ledger::Ledger;

#[tokio::test(start_paused = true)]
async fn a_slow_broker_is_handed_no_more_than_the_bound_and_all_of_it_leaves_in_order() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    (house.options.partitions, house.options.max_in_flight, house.options.relay.batch) = (12, 3, 5);
    house.script.always(Call::Publish, InjectedFault::Slow(Duration::from_secs(3)));
    let life = house.start().await;

    let ids = ledger.place_many(&life, 60).await;
    for to in [Status::Processing, Status::Shipped, Status::Delivered] {
        for id in &ids {
            ledger.step(&life, *id, to).await;
        }
        life.pass(Duration::from_secs(1)).await;
    }
    life.drained(Duration::from_secs(300)).await;

    assert_eq!(house.moods.most_in_flight(), 3);
    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_hangs_for_minutes_is_handed_no_more_than_the_bound() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    (house.options.partitions, house.options.max_in_flight) = (12, 3);
    let life = house.start().await;
    house.script.always(Call::Publish, InjectedFault::Hang);

    ledger.place_many(&life, 40).await;
    life.pass(Duration::from_secs(600)).await;
    assert_eq!(house.moods.most_in_flight(), 3);
    house.script.clear();
    life.drained(Duration::from_secs(60)).await;

    ledger.laws(&life).await;
}
