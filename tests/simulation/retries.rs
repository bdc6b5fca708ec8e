//! The chain of an event that is refused: retry behind its key's head, fallback, parking, and an operator's word.
use std::time::Duration;

use app::policy::backpressure::PressureStage;
use app::relay::chain::{Fallback, Poison};
use domain::{OrderId, Status};
use ports::broker::Record;
use ports::operators::{OutboxOperators, RowDiagnosis, RowSelector};
use ports::outbox::RowStatus;

use crate::house::House;
use crate::ledger::Ledger;
use crate::life::{Life, SOON, TOPIC};
use crate::moody::{Mood, header};

const CREATED: &str = "ORDER_CREATED";
const DEAD_LETTERS: &str = "order.events-dlt";
const AGES: Duration = Duration::from_secs(120);

/// The seed's examples allow three retries: four attempts.
fn house(fallback: Fallback, poison: Poison) -> House {
    let mut house = House::new();
    house.options.rules.retry.attempts_max = 4;
    house.options.rules.fallback.insert(CREATED.into(), fallback);
    house.options.rules.poison.insert(CREATED.into(), poison);
    house
}

/// Every creation is refused that goes to its own topic.
fn refuse_creations(house: &House, mood: Mood) {
    house.moods.add(usize::MAX, mood, |record| header(record, "ce_type") == CREATED && &*record.topic == TOPIC);
}

async fn events_of(life: &Life, id: OrderId) -> usize {
    life.log(TOPIC).await.iter().filter(|delivery| *delivery.record.key == *id.to_string()).count()
}

async fn head(life: &Life, id: OrderId) -> RowDiagnosis {
    let rows = life.store.rows(&ports::operators::RowFilter { key: Some(id), ..Default::default() }, 10).await;
    let first = rows.expect("rows can be read").into_iter().min_by_key(|row| row.id).expect("the key has rows");
    let standing = life.store.diagnose(RowSelector::Event(first.event_id)).await.expect("it can be explained");
    standing.expect("the event is known")
}

#[tokio::test(start_paused = true)]
async fn a_refused_head_holds_its_key_back_and_no_other() {
    let (house, mut ledger) = (House::new(), Ledger::default());
    let life = house.start().await;
    let slow = ledger.place(&life).await;
    life.drained(SOON).await;
    let key = slow.to_string();
    let handed = house.moods.handed().len();
    let refused = move |record: &Record| *record.key == *key && header(record, "x-sequence") == "2";
    house.moods.add(3, Mood::RefuseForNow, refused);

    ledger.step(&life, slow, Status::Processing).await;
    ledger.step(&life, slow, Status::Shipped).await;
    let others = ledger.place_many(&life, 8).await;
    for id in &others {
        ledger.step(&life, *id, Status::Processing).await;
    }
    life.pass(Duration::from_millis(500)).await;
    assert_eq!(events_of(&life, slow).await, 1, "its later events wait behind the refused one");
    for id in others {
        assert_eq!(events_of(&life, id).await, 2);
    }
    life.drained(SOON).await;

    ledger.laws(&life).await;
    let tries: Vec<_> = house.moods.handed()[handed..]
        .iter()
        .filter(|handed| handed.key == slow.to_string() && handed.sequence == 2)
        .map(|handed| handed.at)
        .collect();
    let pauses: Vec<f64> = tries.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    for (pause, expected) in pauses.iter().zip([1.0, 2.0, 4.0]) {
        // A fifth either way, and what the next look costs.
        assert!((expected * 0.8..expected * 1.2 + 0.1).contains(pause), "{pauses:?}");
    }
    assert_eq!(pauses.len(), 3, "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn scenario_1_used_up_retries_end_in_the_fallback_and_count_as_sent() {
    let (house, mut ledger) = (house(Fallback::DeadLetter, Poison::BlockKey), Ledger::default());
    refuse_creations(&house, Mood::RefuseForNow);
    let life = house.start().await;
    let id = ledger.place(&life).await;
    ledger.step(&life, id, Status::Processing).await;

    life.drained(AGES).await;

    let dead = life.log(DEAD_LETTERS).await;
    assert_eq!(dead.len(), 1);
    assert_eq!(header(&dead[0].record, "x-attempt"), "4");
    assert_eq!(header(&dead[0].record, "kafka_original-topic"), TOPIC);
    assert_eq!(header(&dead[0].record, "x-failure-type"), "NETWORK");
    assert!(header(&dead[0].record, "kafka_exception-message").contains("mood"));
    let standing = head(&life, id).await;
    assert_eq!((standing.row.status, standing.by_fallback), (RowStatus::Sent, true));
    assert_eq!(events_of(&life, id).await, 1, "the key goes on");
    assert_eq!(life.depth().await.sent, 2);
}

#[tokio::test(start_paused = true)]
async fn scenario_2_what_no_retry_mends_goes_to_the_fallback_at_once() {
    let (house, mut ledger) = (house(Fallback::DeadLetter, Poison::BlockKey), Ledger::default());
    refuse_creations(&house, Mood::RefuseForEver);
    let life = house.start().await;
    let id = ledger.place(&life).await;

    life.drained(Duration::from_secs(1)).await;

    let dead = life.log(DEAD_LETTERS).await;
    assert_eq!((dead.len(), header(&dead[0].record, "x-attempt")), (1, "1".to_owned()));
    assert_eq!(header(&dead[0].record, "x-failure-type"), "VALIDATION");
    assert!(head(&life, id).await.by_fallback);
}

#[tokio::test(start_paused = true)]
async fn scenario_3_without_a_fallback_it_is_parked_and_its_key_waits_for_an_operator() {
    let (house, mut ledger) = (house(Fallback::None, Poison::BlockKey), Ledger::default());
    refuse_creations(&house, Mood::RefuseForNow);
    let life = house.start().await;
    let id = ledger.place(&life).await;
    ledger.step(&life, id, Status::Processing).await;
    ledger.step(&life, id, Status::Shipped).await;

    life.until("it is parked", AGES, async || life.depth().await.parked == 1).await;
    life.pass(AGES).await;
    let parked = life.rows(RowStatus::Parked).await;
    assert_eq!((parked[0].retry_count, parked[0].next_attempt_at), (4, None));
    assert!(parked[0].last_failure_reason.as_ref().is_some_and(|reason| reason.contains("mood")));
    assert_eq!(life.depth().await.pending, 2, "later events of its key wait");
    assert_eq!(life.log(TOPIC).await.len(), 0);

    house.moods.calm();
    life.retry(&parked[0]).await;
    life.drained(SOON).await;
    ledger.laws(&life).await;
}

#[tokio::test(start_paused = true)]
async fn scenario_3_an_operators_retry_that_fails_parks_it_again_after_as_many_attempts() {
    let (house, mut ledger) = (house(Fallback::None, Poison::BlockKey), Ledger::default());
    refuse_creations(&house, Mood::RefuseForNow);
    let life = house.start().await;
    let id = ledger.place(&life).await;
    ledger.step(&life, id, Status::Processing).await;
    life.until("it is parked", AGES, async || life.depth().await.parked == 1).await;
    let handed = house.moods.handed().len();

    life.retry(&life.rows(RowStatus::Parked).await[0]).await;
    life.pass(AGES).await;

    assert_eq!(life.depth().await.parked, 1);
    assert_eq!(house.moods.handed().len() - handed, 4, "four more attempts, the later event never");
}

#[tokio::test(start_paused = true)]
async fn scenario_3_where_the_row_is_skipped_its_key_goes_on() {
    let (house, mut ledger) = (house(Fallback::None, Poison::SkipRow), Ledger::default());
    refuse_creations(&house, Mood::RefuseForEver);
    let life = house.start().await;
    let id = ledger.place(&life).await;
    ledger.step(&life, id, Status::Processing).await;
    ledger.step(&life, id, Status::Shipped).await;

    life.drained(SOON).await;

    assert_eq!(life.depth().await.parked, 1);
    assert_eq!(events_of(&life, id).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_fallback_that_is_refused_too_parks_the_row() {
    let (house, mut ledger) = (house(Fallback::DeadLetter, Poison::BlockKey), Ledger::default());
    house.moods.add(usize::MAX, Mood::RefuseForEver, |record| header(record, "ce_type") == CREATED);
    let life = house.start().await;
    let id = ledger.place(&life).await;
    let others = ledger.place_many(&life, 1).await;
    ledger.step(&life, id, Status::Processing).await;

    life.until("both are parked", SOON, async || life.depth().await.parked == 2).await;

    assert_eq!(life.log(DEAD_LETTERS).await.len() + life.log(TOPIC).await.len(), 0, "{others:?}");
}

#[tokio::test(start_paused = true)]
async fn retries_are_put_off_under_pressure() {
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    house.options.rules.retry.jitter = 0.0;
    // ELEVATED from the first sample on, and for ever.
    house.options.pressure.backlog = (0, u64::MAX);
    let life = house.start().await;
    life.until("retries are put off", SOON, async || life.gate.stage() == PressureStage::Retries).await;
    house.moods.add(1, Mood::RefuseForNow, |_| true);

    ledger.place(&life).await;
    life.drained(SOON).await;

    let handed = house.moods.handed();
    let pause = (handed[1].at - handed[0].at).as_secs_f64();
    assert!((1.42..1.53).contains(&pause), "a second over 0.7, to the millisecond: {pause}");
    ledger.laws(&life).await;
}
