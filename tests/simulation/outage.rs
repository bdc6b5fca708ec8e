//! The broker is away for an hour and orders go on: no attempt is burnt, nothing is parked, all of it leaves soon after.
use std::time::Duration;

use domain::Status;
use kit::faults::{Call, InjectedFault};
use ports::outbox::RowStatus;

use crate::house::House;
use crate::ledger::Ledger;
use crate::life::{Life, SOON};
use crate::moody::Mood;

const HOUR: u64 = 3_600;

/// Orders placed and moved on, one a minute, for an hour.
async fn an_hour_of_orders(life: &Life, ledger: &mut Ledger) {
    for _ in 0..HOUR / 60 {
        let id = ledger.place(life).await;
        life.pass(Duration::from_secs(30)).await;
        ledger.step(life, id, Status::Processing).await;
        life.pass(Duration::from_secs(30)).await;
    }
}

async fn nothing_was_burnt(life: &Life, attempts_most: u32) {
    assert_eq!(life.picture().breaker, "open");
    assert_eq!(life.depth().await.parked, 0);
    for status in [RowStatus::Pending, RowStatus::Failed, RowStatus::InFlight] {
        for row in life.rows(status).await {
            assert!(row.retry_count <= attempts_most, "{row:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_hour_without_a_broker_burns_no_attempt_and_all_leaves_within_half_a_minute() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    let life = house.start().await;
    house.script.always(Call::Publish, InjectedFault::Unreachable);

    an_hour_of_orders(&life, &mut ledger).await;
    nothing_was_burnt(&life, 0).await;
    house.script.clear();
    life.drained(SOON).await;

    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_aborts_burns_no_more_attempts_than_open_the_breaker() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    let life = house.start().await;
    house.moods.add(usize::MAX, Mood::Break, |_| true);

    an_hour_of_orders(&life, &mut ledger).await;
    nothing_was_burnt(&life, house.options.breaker.failures).await;
    house.moods.calm();
    life.drained(SOON).await;

    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_lost_answers_loses_and_doubles_nothing() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    let life = house.start().await;
    house.script.always(Call::Publish, InjectedFault::UnknownNotDone);

    an_hour_of_orders(&life, &mut ledger).await;
    nothing_was_burnt(&life, house.options.breaker.failures).await;
    house.script.clear();
    life.drained(SOON).await;

    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_starts_while_the_broker_is_away_begins_once_it_is_there() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    for call in [Call::Watermark, Call::OpenSession, Call::Fence, Call::Publish, Call::Append] {
        house.script.always(call, InjectedFault::Unreachable);
    }
    let life = house.start().await;
    ledger.place_many(&life, 20).await;
    life.pass(Duration::from_secs(600)).await;
    assert_eq!(life.depth().await.pending, 20);

    house.script.clear();
    life.drained(SOON).await;

    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn an_hour_without_a_store_for_the_relay_loses_nothing() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    let life = house.start().await;
    for call in [Call::Claim, Call::Settle, Call::Resolve, Call::Acquire, Call::Heartbeat, Call::Renew] {
        house.script.always(call, InjectedFault::Unreachable);
    }

    an_hour_of_orders(&life, &mut ledger).await;
    house.script.clear();
    life.drained(SOON).await;

    ledger.laws(&life).await;
}
