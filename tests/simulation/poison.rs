//! Rows that kill, and services that are killed: the row is convicted alone, the healthy ones never are.
use std::time::Duration;

use domain::Status;
use kit::faults::{Call, InjectedFault};
use ports::broker::Record;
use ports::clock::Rng;
use ports::outbox::RowStatus;

use crate::house::House;
use crate::ledger::Ledger;
use crate::life::{SOON, TOPIC};
use crate::moody::{Mood, header};

const AGES: Duration = Duration::from_secs(300);

#[tokio::test(start_paused = true)]
async fn a_row_that_kills_its_worker_is_convicted_alone_after_two_trials() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    house.options.partitions = 2;
    let life = house.start().await;
    let poison = ledger.place(&life).await;
    life.drained(SOON).await;
    let key = poison.to_string();
    let kills = move |record: &Record| *record.key == *key && header(record, "x-sequence") == "2";
    house.moods.add(usize::MAX, Mood::Kill, kills);

    ledger.step(&life, poison, Status::Processing).await;
    ledger.step(&life, poison, Status::Shipped).await;
    let others = ledger.place_many(&life, 40).await;
    for id in &others {
        ledger.step(&life, *id, Status::Processing).await;
    }
    life.until("it is parked", AGES, async || life.depth().await.parked == 1).await;
    life.pass(AGES).await;

    let parked = life.rows(RowStatus::Parked).await;
    assert_eq!(parked.len(), 1, "{parked:?}");
    assert_eq!(parked[0].key, poison);
    assert!(parked[0].last_failure_reason.as_ref().is_some_and(|reason| reason.contains("trial")), "{parked:?}");
    let depth = life.depth().await;
    // Whether it was in its head's company when that killed, which makes it a suspect, or came later.
    assert_eq!(depth.pending + depth.failed, 1, "only its own key's later event waits");
    assert_eq!(life.log(TOPIC).await.len(), 1 + 2 * others.len());

    house.moods.calm();
    life.retry(&parked[0]).await;
    life.drained(SOON).await;
    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_whose_workers_are_killed_at_random_parks_nothing() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    house.options.partitions = 2;
    house.script.always(Call::Publish, InjectedFault::Slow(Duration::from_secs(2)));
    let life = house.start().await;

    for round in 0..60 {
        ledger.place_many(&life, 2).await;
        life.pass(Duration::from_millis(3_500 + house.dice.next_u64() % 2_000)).await;
        // A worker that is between two lives is not hit.
        let _ = life.bus().panic(&format!("/relay/partition-worker-{}", round % 2), "test");
    }
    house.script.clear();
    life.drained(AGES).await;

    assert_eq!(life.depth().await.parked, 0);
    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_killed_at_random_a_hundred_times_parks_nothing() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    house.options.partitions = 2;
    house.script.always(Call::Publish, InjectedFault::Slow(Duration::from_millis(500)));

    for _ in 0..100 {
        let life = house.start().await;
        ledger.place_many(&life, 2).await;
        life.pass(Duration::from_millis(house.dice.next_u64() % 2_000)).await;
        drop(life);
    }
    house.script.clear();
    let life = house.start().await;
    life.drained(AGES).await;

    assert_eq!(life.depth().await.parked, 0);
    ledger.laws(&life).await;
}
