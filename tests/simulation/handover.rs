//! Two services on one store: leases run out, partitions change hands, and whoever comes late changes nothing.
use std::time::Duration;

use domain::Status;
use kit::faults::{Call, InjectedFault};
use ports::partitions::{InstanceId, PartitionLeases};

use crate::house::House;
use crate::hub::Hub;
use crate::ledger::Ledger;
use crate::life::{Life, PUBLISHER, SOON, TOPIC};

async fn owned_by(life: &Life, name: &str) -> usize {
    let views = life.store.overview().await.expect("partitions can be read");
    views.iter().filter(|view| view.owner == Some(InstanceId(name.into()))).count()
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_under_a_hung_broker_doubles_nothing() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    let life = house.start().await;
    house.script.always(Call::Publish, InjectedFault::Hang);
    let ids = ledger.place_many(&life, 6).await;
    life.until("batches hang", SOON, async || life.depth().await.in_flight > 0).await;

    life.bus().pause(PUBLISHER, "test").expect("the publisher stands");
    life.pass(Duration::from_secs(40)).await;
    house.script.clear();
    life.pass(Duration::from_secs(1)).await;
    life.bus().resume(PUBLISHER, "test").expect("the publisher stands");
    ledger.step(&life, ids[0], Status::Processing).await;
    life.drained(SOON).await;

    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_wakes_up_after_another_took_its_partition_changes_nothing() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    let life = house.start().await;
    life.until("all partitions are taken", SOON, async || owned_by(&life, "sim").await == 4).await;
    house.script.times(6, Call::Publish, InjectedFault::Hang);
    let ids = ledger.place_many(&life, 6).await;
    life.until("batches hang", SOON, async || life.depth().await.in_flight > 0).await;

    life.bus().pause(PUBLISHER, "test").expect("the publisher stands");
    let hung = house.moods.handed().len();
    let _other = house.join(&life, "other").await;
    life.until("the other took over", SOON * 2, async || owned_by(&life, "other").await == 4).await;
    // The first one's batches still hang; only now do they wake up.
    house.script.clear();
    life.drained(SOON).await;
    life.bus().resume(PUBLISHER, "test").expect("the publisher stands");
    ledger.step(&life, ids[0], Status::Processing).await;
    life.drained(SOON).await;

    assert!(house.moods.handed().len() > hung, "the other sent them");
    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn partitions_are_shared_and_come_back_when_the_other_dies() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    let life = house.start().await;
    life.until("all partitions are taken", SOON, async || owned_by(&life, "sim").await == 4).await;

    let other = house.join(&life, "other").await;
    life.until("each has its share", SOON, async || {
        owned_by(&life, "sim").await == 2 && owned_by(&life, "other").await == 2
    })
    .await;
    ledger.place_many(&life, 12).await;
    life.drained(SOON).await;
    let left = life.run(other.stop(SOON)).await.partitions_left;
    assert_eq!(left, 0);
    life.until("all are ours again", SOON, async || owned_by(&life, "sim").await == 4).await;
    ledger.place_many(&life, 12).await;
    life.drained(SOON).await;

    ledger.laws(&life).await;
    assert_eq!(life.log(TOPIC).await.len(), 24);
}

#[tokio::test(start_paused = true)]
async fn services_that_reach_for_the_same_partitions_leave_none_without_an_owner() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    house.script.always(Call::Acquire, InjectedFault::Unreachable);
    let life = house.start().await;
    let _other = house.join(&life, "other").await;
    let _third = house.join(&life, "third").await;
    life.pass(Duration::from_secs(10)).await;
    house.script.clear();

    life.until("all partitions are taken", Duration::from_secs(10), async || {
        let views = life.store.overview().await.expect("partitions can be read");
        views.iter().all(|view| view.owner.is_some())
    })
    .await;
    ledger.place_many(&life, 24).await;
    life.drained(SOON).await;

    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_process_held_beyond_its_share_goes_to_whoever_is_there() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    let life = house.start().await;
    life.until("all partitions are taken", SOON, async || owned_by(&life, "sim").await == 4).await;
    drop(life);

    house.script.always(Call::Acquire, InjectedFault::Unreachable);
    let life = house.start().await;
    let _other = house.join(&life, "other").await;
    ledger.place_many(&life, 24).await;
    life.pass(Duration::from_secs(10)).await;
    house.script.clear();
    life.until("each has its share", Duration::from_secs(10), async || {
        owned_by(&life, "sim").await == 2 && owned_by(&life, "other").await == 2
    })
    .await;
    life.drained(SOON).await;

    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_never_pauses_changes_hands_too() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    house.options.relay.batch = 1;
    house.script.always(Call::Publish, InjectedFault::Slow(Duration::from_millis(250)));
    let life = house.start().await;
    ledger.place_many(&life, 400).await;

    let _other = house.join(&life, "other").await;
    life.until("each has its share", Duration::from_secs(10), async || {
        owned_by(&life, "sim").await == 2 && owned_by(&life, "other").await == 2
    })
    .await;
    assert!(life.depth().await.pending > 100, "under load");
    life.drained(SOON * 4).await;

    ledger.laws(&life).await;
}

/// The trap: a worker that lost its session, asked to hand over, must not leave behind a lease that our heartbeat renews for ever.
#[tokio::test(start_paused = true)]
async fn no_partition_stays_with_a_service_that_has_no_worker_for_it() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    // So that workers are between two sessions most of the time.
    house.options.breaker.failures = u32::MAX;
    let life = house.start().await;
    life.until("all partitions are taken", SOON, async || owned_by(&life, "sim").await == 4).await;
    house.script.always(Call::Publish, InjectedFault::UnknownNotDone);
    ledger.place_many(&life, 24).await;
    life.pass(Duration::from_secs(1)).await;

    let _other = house.join(&life, "other").await;
    life.until("each has its share", SOON, async || {
        owned_by(&life, "sim").await == 2 && owned_by(&life, "other").await == 2
    })
    .await;
    house.script.clear();
    life.drained(SOON).await;

    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn a_fellow_hears_at_once_of_rows_in_its_partitions_and_of_partitions_that_are_free() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    house.hub = Some(Hub::default());
    // Without wake-ups nobody would look for an hour.
    (house.options.poll_interval, house.options.heartbeat) = (Duration::from_secs(3_600), Duration::from_secs(5));
    let life = house.start().await;
    let other = house.join(&life, "other").await;
    life.until("each has its share", SOON, async || {
        owned_by(&life, "sim").await == 2 && owned_by(&life, "other").await == 2
    })
    .await;

    ledger.place_many(&life, 12).await;
    life.drained(Duration::from_secs(1)).await;
    life.run(other.stop(SOON)).await;
    life.until("all are ours again", Duration::from_secs(1), async || owned_by(&life, "sim").await == 4).await;
    ledger.place_many(&life, 12).await;
    life.drained(Duration::from_secs(1)).await;

    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_while_the_broker_is_away_keeps_no_partition_that_has_nothing_open() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    house.script.always(Call::Watermark, InjectedFault::Unreachable);
    let life = house.start().await;
    life.until("leases are taken, and no session can begin", SOON, async || owned_by(&life, "sim").await > 0).await;
    ledger.place_many(&life, 6).await;
    let store = life.store.clone();

    assert_eq!(life.stop().await, 0, "nothing is left behind");

    let views = store.overview().await.expect("partitions can be read");
    assert!(views.iter().all(|view| view.owner.is_none()), "the next one starts at once: {views:?}");
}
