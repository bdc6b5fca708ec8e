//! A process dies between two steps of the relay; the next one on its folder finds out what had happened.
use std::time::Duration;

use domain::Status;
use kit::faults::{Call, InjectedFault};
use ports::outbox::RowStatus;

use crate::house::House;
use crate::ledger::Ledger;
use crate::life::{Life, SOON, TOPIC};
use crate::moody::header;

async fn attempts(life: &Life) -> Vec<String> {
    life.log(TOPIC).await.iter().map(|delivery| header(&delivery.record, "x-attempt")).collect()
}

async fn stands_in_the_topic(life: &Life, events: usize) {
    life.until("the events stand in the topic", SOON, async || life.log(TOPIC).await.len() == events).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_publish_and_settle_is_resolved_by_the_watermark() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    let life = house.start().await;
    house.script.always(Call::Settle, InjectedFault::Hang);
    ledger.place_many(&life, 8).await;
    life.pass(Duration::from_secs(1)).await;
    assert!(!life.log(TOPIC).await.is_empty() && life.depth().await.in_flight > 0, "published, and not settled");
    drop(life);

    house.script.clear();
    let life = house.start().await;
    life.drained(SOON).await;

    ledger.laws(&life).await;
    assert_eq!(attempts(&life).await, ["1"; 8]);
}

#[tokio::test(start_paused = true)]
async fn settlements_that_keep_failing_are_resolved_by_the_watermark_without_a_crash() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    let life = house.start().await;
    house.script.always(Call::Settle, InjectedFault::Unreachable);
    let ids = ledger.place_many(&life, 8).await;
    stands_in_the_topic(&life, 8).await;
    life.drained(SOON).await;

    house.script.clear();
    ledger.step(&life, ids[0], Status::Processing).await;
    life.drained(SOON).await;

    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_claim_and_publish_makes_the_rows_due_and_keeps_the_attempt() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    let life = house.start().await;
    house.script.always(Call::Publish, InjectedFault::Hang);
    ledger.place_many(&life, 4).await;
    life.until("the rows are claimed", SOON, async || life.depth().await.in_flight > 0).await;
    let claimed = life.rows(RowStatus::InFlight).await.len();
    drop(life);

    house.script.clear();
    let life = house.start().await;
    life.drained(SOON).await;

    ledger.laws(&life).await;
    let second = attempts(&life).await.iter().filter(|attempt| *attempt == "2").count();
    assert_eq!(second, claimed, "what had been claimed counts its death as an attempt");
}

/// Die `n` times at the same step, then live.
async fn dies_again_and_again(call: Call, times: usize) {
    let (house, mut ledger) = (House::new(), Ledger::default());
    house.script.always(call, InjectedFault::Hang);
    for _ in 0..times {
        let life = house.start().await;
        ledger.place_many(&life, 3).await;
        life.pass(Duration::from_secs(2)).await;
        drop(life);
    }

    house.script.clear();
    let life = house.start().await;
    life.drained(Duration::from_secs(120)).await;

    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn dying_at_every_step_again_and_again_loses_and_doubles_nothing() {
    let steps = [
        Call::Claim,
        Call::Publish,
        Call::Settle,
        Call::Resolve,
        Call::Fence,
        Call::Watermark,
        Call::OpenSession,
        Call::Acquire,
        Call::Heartbeat,
    ];
    for step in steps {
        dies_again_and_again(step, 6).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stops_in_order_leaves_nothing_to_resolve() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    let life = house.start().await;
    house.script.always(Call::Publish, InjectedFault::Slow(Duration::from_secs(2)));
    ledger.place_many(&life, 6).await;

    assert_eq!(life.stop().await, 0, "every partition was handed over");

    house.script.clear();
    let life = house.start().await;
    assert_eq!(life.depth().await.in_flight, 0);
    life.drained(SOON).await;
    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn a_death_counts_although_the_first_look_after_it_fails() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    house.options.partitions = 1;
    let life = house.start().await;
    house.script.always(Call::Publish, InjectedFault::Hang);
    ledger.place(&life).await;
    life.until("the row is claimed", SOON, async || life.depth().await.in_flight == 1).await;
    drop(life);

    house.script.clear();
    house.script.once(Call::Watermark, InjectedFault::Unreachable);
    let life = house.start().await;
    life.drained(SOON).await;

    assert_eq!(attempts(&life).await, ["2"], "the claimer died with it, whatever failed afterwards");
    ledger.laws(&life).await;
}
