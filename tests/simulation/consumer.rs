//! The consumer: retry topics with growing delays, dead letters, the order of a key on its way round, duplicates, other regions.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::{Hlc, Status};
use kit::Factory;
use kit::clock::{START_TIME, SeededRng};
use kit::faults::{Call, InjectedFault};
use ports::broker::{Broker, Record};
use ports::clock::Rng;
use ports::inbox::Inbox;
use ports::source::Delivery;

use crate::house::{House, seed, seeds};
use crate::ledger::Ledger;
use crate::life::{GROUP, Life, SOON, TOPIC};
use crate::moody::header;
use crate::scribe::{Scribe, from_region};

const DEAD_LETTERS: &str = "order.events-dlt";

fn house(scribe: &Arc<Scribe>) -> House {
    let mut house = House::new();
    (house.consumes, house.handlers) = (true, scribe.handlers());
    house
}

async fn append(life: &Life, record: Record) {
    life.run(life.store.append(vec![record])).await.expect("appended");
}

/// Waited seconds between the tries of one message.
fn pauses(scribe: &Scribe) -> Vec<f64> {
    let seen = scribe.seen();
    seen.windows(2).map(|pair| (pair[1].at - pair[0].at).as_secs_f64()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_keeps_failing_goes_through_the_retry_topics_and_then_to_the_dead_letters() {
    let scribe = Scribe::new(false, usize::MAX, |_| true);
    let (house, mut ledger) = (house(&scribe), Ledger::default());
    let life = house.start().await;
    ledger.place(&life).await;

    life.until("it is dead", SOON, async || life.log(DEAD_LETTERS).await.len() == 1).await;
    life.consumed(SOON).await;

    let pauses = pauses(&scribe);
    assert_eq!(pauses.len(), 4, "five tries: {pauses:?}");
    for (pause, expected) in pauses.iter().zip([1.0, 2.0, 4.0, 8.0]) {
        assert!((expected..expected + 0.6).contains(pause), "{pauses:?}");
    }
    for stage in 0..4 {
        let passed = life.log(&format!("{TOPIC}-retry-{stage}")).await;
        assert_eq!(passed.len(), 1, "stage {stage}");
        assert_eq!(header(&passed[0].record, "retry_topic-attempts"), (stage + 1).to_string());
    }
    let dead = &life.log(DEAD_LETTERS).await[0].record;
    assert_eq!(header(dead, "kafka_original-topic"), TOPIC);
    assert_eq!(header(dead, "kafka_exception-message"), "scribe: not now");
    assert_eq!(header(dead, "retry_topic-attempts"), "5");
    assert_eq!(header(dead, "x-failure-type"), "SYSTEM");
    assert_eq!(life.metrics.kafka_consumer_processed_count.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_recovers_takes_the_message_from_its_retry_topic() {
    let scribe = Scribe::new(false, 2, |_| true);
    let (house, mut ledger) = (house(&scribe), Ledger::default());
    let life = house.start().await;
    let id = ledger.place(&life).await;

    life.until("it is taken", SOON, async || !scribe.taken(id).is_empty()).await;
    life.consumed(SOON).await;

    assert_eq!(scribe.seen().len(), 3);
    assert!(life.log(DEAD_LETTERS).await.is_empty());
    ledger.laws(&life).await;
}

/// The first event of one order fails so often; its later ones and another order's events come meanwhile.
async fn a_key_keeps_its_order_behind(failures: usize) {
    let scribe = Scribe::new(true, failures, |event| event.after.as_ref().is_some_and(|after| after.version == 0));
    let (house, mut ledger) = (house(&scribe), Ledger::default());
    let life = house.start().await;
    let first = ledger.place(&life).await;
    life.until("its first try failed", SOON, async || scribe.seen().len() == 1).await;
    ledger.step(&life, first, Status::Processing).await;
    life.pass(Duration::from_millis(1_500)).await;
    ledger.step(&life, first, Status::Shipped).await;
    life.pass(Duration::from_millis(1_500)).await;
    ledger.step(&life, first, Status::Delivered).await;
    life.consumed(SOON * 2).await;
    let (dead, last) = (life.log(DEAD_LETTERS).await, scribe.taken(first));

    assert_eq!(dead.len(), usize::from(failures >= 5));
    let expected: Vec<u64> = (u64::from(failures >= 5)..4).collect();
    assert_eq!(last, expected, "after {failures} failures");
    let detour = life.store.detour(GROUP, &first.to_string()).await.expect("detours can be read");
    assert_eq!(detour, None, "the detour ended with its last message");

    let other = ledger.place(&life).await;
    life.consumed(SOON).await;
    assert_eq!(scribe.taken(other).len(), 1, "a new key goes its way");
}

#[tokio::test(start_paused = true)]
async fn a_keys_later_messages_wait_behind_one_that_is_retried_where_order_is_needed() {
    for failures in 1..=5 {
        a_key_keeps_its_order_behind(failures).await;
    }
}

#[tokio::test(start_paused = true)]
async fn whichever_messages_of_a_key_fail_how_often_none_is_taken_before_an_earlier_one() {
    for seed in seeds(8) {
        let dice = SeededRng::new(seed);
        let scribe = Scribe::new(true, 60, move |_| dice.fraction() < 0.5);
        let (mut house, mut ledger) = (House::seeded(seed), Ledger::default());
        (house.consumes, house.handlers) = (true, scribe.handlers());
        let life = house.start().await;
        let ids = ledger.place_many(&life, 6).await;
        for to in [Status::Processing, Status::Shipped, Status::Delivered] {
            for id in &ids {
                ledger.step(&life, *id, to).await;
                life.pass(Duration::from_millis(house.dice.next_u64() % 900)).await;
            }
        }
        life.consumed(Duration::from_secs(600)).await;

        let dead = life.log(DEAD_LETTERS).await;
        for id in ids {
            let taken = scribe.taken(id);
            assert!(taken.is_sorted(), "{id}: {taken:?} of seed {seed}");
            let lost = dead.iter().filter(|delivery| *delivery.record.key == *id.to_string()).count();
            assert_eq!(taken.len() + lost, 4, "{id}: {taken:?} of seed {seed}");
            let detour = life.store.detour(GROUP, &id.to_string()).await.expect("detours can be read");
            assert_eq!(detour, None, "{id} of seed {seed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_keys_do_not_wait_for_one_that_is_retried() {
    let scribe = Scribe::new(true, 3, |event| event.after.as_ref().is_some_and(|after| after.version == 0));
    let (house, mut ledger) = (house(&scribe), Ledger::default());
    let life = house.start().await;
    let slow = ledger.place(&life).await;
    life.until("its first try failed", SOON, async || scribe.seen().len() == 1).await;
    // Two failures are left, and they are the slow one's: the others come only once it is on its way round.
    life.until("its later tries failed", SOON, async || scribe.seen().len() == 3).await;
    let others = ledger.place_many(&life, 10).await;
    life.pass(Duration::from_secs(1)).await;

    assert!(others.iter().all(|id| scribe.taken(*id) == [0]));
    assert!(scribe.taken(slow).is_empty());
    life.consumed(SOON).await;
    assert_eq!(scribe.taken(slow), [0]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_goes_to_the_dead_letters_at_once() {
    let scribe = Scribe::new(false, 0, |_| false);
    let house = house(&scribe);
    let life = house.start().await;
    let make = Factory::seeded(seed(), TOPIC.into());
    append(&life, make.record("key", "{\"schemaVersion\":99}")).await;

    life.consumed(Duration::from_secs(1)).await;

    let dead = life.log(DEAD_LETTERS).await;
    assert_eq!(dead.len(), 1);
    assert!(header(&dead[0].record, "kafka_exception-fqcn").ends_with("DeserializationException"));
    assert_eq!(header(&dead[0].record, "x-failure-type"), "VALIDATION");
    assert!(scribe.seen().is_empty());
    assert_eq!(life.metrics.kafka_schema_validation_errors.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_twice_is_acknowledged_and_remembered_once() {
    let scribe = Scribe::new(false, 0, |_| false);
    let (house, mut ledger) = (house(&scribe), Ledger::default());
    let life = house.start().await;
    ledger.place(&life).await;
    life.consumed(SOON).await;

    let again = life.log(TOPIC).await[0].record.clone();
    append(&life, again).await;
    life.consumed(SOON).await;

    assert_eq!(life.metrics.kafka_consumer_processed_count.get(), 1);
    assert!(life.log(DEAD_LETTERS).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn another_regions_stale_event_advances_the_inbox_and_is_counted() {
    let scribe = Scribe::new(false, 0, |_| false);
    let house = house(&scribe);
    let life = house.start().await;
    let make = Factory::seeded(seed(), TOPIC.into());
    let (order, placed) = make.placed("ann");
    let (_, moved) = make.status_changed(&order, Status::Processing);
    let stamp = |seconds: i64, counter| Hlc { millis: START_TIME.millis() + seconds * 1_000, counter };

    append(&life, from_region(&moved, "eu", stamp(2, 0))).await;
    append(&life, from_region(&placed, "us", stamp(1, 7))).await;
    life.consumed(SOON).await;
    let (_, ahead) = make.status_changed(&order, Status::Shipped);
    append(&life, from_region(&ahead, "eu", stamp(3_600, 0))).await;
    life.consumed(SOON).await;

    assert_eq!(scribe.seen().len(), 1, "the stale one and the one from the future change nothing");
    assert_eq!(life.metrics.region_conflict_rejected_count.get(), 2);
    assert_eq!(life.metrics.kafka_consumer_processed_count.get(), 3, "all three are remembered");
    let remote = life.store.remote(order.id).await.expect("it can be read").expect("a stamp stands");
    assert_eq!((remote.region.as_str(), remote.hlc), ("eu", stamp(2, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_dies_again_and_again_takes_each_message_into_account_once() {
    let scribe = Scribe::new(true, 10, |event| event.order_id.bytes()[15] % 3 == 0);
    let (house, mut ledger) = (house(&scribe), Ledger::default());
    house.script.sometimes(0.2, Call::Append, InjectedFault::Unreachable);
    let mut life = house.start().await;
    for round in 0..20 {
        let id = ledger.place(&life).await;
        ledger.step(&life, id, Status::Processing).await;
        life.pass(Duration::from_millis(300)).await;
        if round % 3 == 0 {
            drop(life);
            life = house.start().await;
        } else {
            let _ = life.bus().panic("/consumer-0", "test");
        }
    }
    house.script.clear();
    life.drained(SOON).await;
    life.consumed(SOON * 4).await;

    ledger.laws(&life).await;
    // Set aside twice, where a death came between that and its acknowledgement.
    let name = |delivery: &Delivery| (delivery.record.key.to_string(), header(&delivery.record, "ce_id"));
    let dead: BTreeSet<_> = life.log(DEAD_LETTERS).await.iter().map(name).collect();
    for id in ledger.orders.keys() {
        let mut taken = scribe.taken(*id);
        // Taken again after a death before the mark: then from the first unmarked one on, so in order but for repeats.
        taken.sort_unstable();
        taken.dedup();
        let dead = dead.iter().filter(|(key, _)| *key == id.to_string()).count();
        assert_eq!(taken.len() + dead, 2, "{id}: {taken:?}");
    }
}
