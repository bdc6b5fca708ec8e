//! Dead letters go back: once, in their keys' order, to consumers that take each event once, whatever fails on the way.
use std::collections::BTreeMap;
use std::time::Duration;

use app::error::QueryError;
use app::operators::dead_letters::{DeadLetterFilter, DeadLetters, RESERVATION_TIMEOUT, ReplayReport};
use domain::Status;
use futures::future::join_all;
use kit::Factory;
use kit::faults::{Call, InjectedFault};
use ports::broker::Broker;
use ports::operators::Audit;
use ports::source::Delivery;

use crate::house::{House, seed};
use crate::ledger::Ledger;
use crate::life::{Life, SOON, TOPIC};
use crate::moody::header;
use crate::scribe::Scribe;

const DEAD: &str = "order.events-dlt";

fn audit() -> Audit {
    Audit { operator: "olga".into(), reason: "the handler is mended".into() }
}

async fn redrive(letters: &DeadLetters, limit: u32) -> Result<ReplayReport, QueryError> {
    letters.redrive(&DeadLetterFilter::default(), limit, true, &audit()).await
}

/// So many letters of so many keys, as if consumers had set them aside; nobody consumes.
async fn letters(life: &Life, count: u32, keys: u32) {
    let make = Factory::seeded(seed(), DEAD.into());
    for n in 0..count {
        let mut record = make.record(&format!("key-{}", n % keys), &n.to_string());
        let failure = if n % 2 == 0 { "SYSTEM" } else { "VALIDATION" };
        record.headers.push(("x-failure-type".into(), failure.as_bytes().into()));
        life.store.append(vec![record]).await.expect("appended");
    }
    life.pass(Duration::from_secs(2)).await;
}

/// What stands in the topic, by key.
async fn back(life: &Life) -> BTreeMap<String, Vec<u32>> {
    let mut keys: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for Delivery { record, .. } in life.log(TOPIC).await {
        let number = std::str::from_utf8(&record.value).expect("text").parse().expect("a number");
        keys.entry(record.key.to_string()).or_default().push(number);
    }
    keys
}

#[tokio::test(start_paused = true)]
async fn a_letter_is_taken_once_its_handler_is_mended_and_goes_back_once() {
    let scribe = Scribe::new(false, 5, |event| event.after.as_ref().is_some_and(|after| after.version == 0));
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    (house.consumes, house.handlers) = (true, scribe.handlers());
    let life = house.start().await;
    let id = ledger.place(&life).await;
    life.until("it is dead", SOON, async || life.log(DEAD).await.len() == 1).await;
    let doors = house.dead_letters(&life);

    let dry = doors.redrive(&DeadLetterFilter::default(), 1_000, false, &audit()).await.expect("counted");
    assert_eq!(dry, ReplayReport { matched: 1, redriven: 0, next: None });
    let place = doors.list(&DeadLetterFilter::default(), 10).await.expect("listed").dead_letters[0].clone();
    assert_eq!((place.redrive, life.log(TOPIC).await.len()), (None, 1), "a dry run changes nothing");
    let sent = redrive(&doors, 1_000).await.expect("sent back");
    life.consumed(SOON).await;

    assert_eq!((sent.redriven, scribe.taken(id)), (1, vec![0]));
    assert_eq!(life.metrics.kafka_consumer_processed_count.get(), 1);
    assert_eq!(redrive(&doors, 1_000).await.expect("nothing to do"), ReplayReport::default());
    let log = life.log(TOPIC).await;
    let (first, again) = (&log[0].record, &log[1].record);
    assert_eq!((log.len(), &first.key, &first.value), (2, &again.key, &again.value));
    assert_eq!((header(again, "x-redriven-by"), header(again, "ce_id")), ("olga".into(), header(first, "ce_id")));
    let told = |name: &str| name.starts_with("kafka_") || name.starts_with("retry_topic") || name == "x-failure-type";
    assert!(again.headers.iter().all(|(name, _)| !told(name)), "its journey begins anew: {:?}", again.headers);
    let letter = doors.list(&DeadLetterFilter::default(), 10).await.expect("listed").dead_letters[0].clone();
    let note = letter.redrive.as_ref().expect("known");
    assert_eq!((&note.audit, note.confirmed, life.log(DEAD).await.len()), (&audit(), true, 1));
    let origin = letter.origin().expect("told");
    assert_eq!((&*origin.topic, origin.offset, letter.attempts()), (TOPIC, Some(0), Some(5)));
}

#[tokio::test(start_paused = true)]
async fn an_append_that_failed_frees_its_letters_and_one_whose_answer_is_lost_keeps_them_for_a_while() {
    let scribe = Scribe::new(false, 5, |_| true);
    let (mut house, mut ledger) = (House::new(), Ledger::default());
    (house.consumes, house.handlers) = (true, scribe.handlers());
    let life = house.start().await;
    let id = ledger.place(&life).await;
    life.until("it is dead", SOON, async || life.log(DEAD).await.len() == 1).await;
    let doors = house.dead_letters(&life);

    house.script.once(Call::Append, InjectedFault::Unreachable);
    assert!(matches!(redrive(&doors, 10).await, Err(QueryError::Unavailable(_))));
    house.script.once(Call::Append, InjectedFault::UnknownDone);
    assert!(matches!(redrive(&doors, 10).await, Err(QueryError::Unknown(_))), "the failure before left it free");
    let held = redrive(&doors, 10).await.expect("nothing can be done");
    assert_eq!((held.matched, held.redriven), (1, 0), "it may be on its way");
    let place = app::operators::dead_letters::DeadLetterPosition {
        partition: life.log(DEAD).await[0].position.partition,
        offset: 0,
    };
    assert!(matches!(doors.redrive_one(place, true, &audit()).await, Err(QueryError::Conflict(_))));
    life.pass(RESERVATION_TIMEOUT).await;
    assert!(doors.redrive_one(place, true, &audit()).await.expect("free again").is_redriven());
    life.consumed(SOON).await;

    assert_eq!(life.log(TOPIC).await.len(), 3, "it arrived twice");
    assert!(scribe.taken(id).iter().all(|version| *version == 0), "a handler may see it again");
    assert_eq!(life.metrics.kafka_consumer_processed_count.get(), 1, "its effects are done once");
    assert!(matches!(doors.redrive_one(place, true, &audit()).await, Err(QueryError::Conflict(_))));
}

#[tokio::test(start_paused = true)]
async fn letters_go_back_page_by_page_each_keys_in_their_order() {
    let house = House::new();
    let life = house.start().await;
    letters(&life, 450, 7).await;
    let doors = house.dead_letters(&life);

    let mut filter = DeadLetterFilter::default();
    let (mut steps, mut sent) = (0, 0);
    loop {
        let step = doors.redrive(&filter, 130, true, &audit()).await.expect("sent back");
        (steps, sent, filter.after) = (steps + 1, sent + step.redriven, step.next);
        if step.next.is_none() {
            break;
        }
    }

    assert_eq!((steps, sent), (4, 450));
    let back = back(&life).await;
    assert!(back.len() == 7 && back.values().all(|numbers| numbers.is_sorted()), "{back:?}");
    assert_eq!(back.values().map(Vec::len).sum::<usize>(), 450);
}

#[tokio::test(start_paused = true)]
async fn what_dies_again_at_once_is_not_chased() {
    let scribe = Scribe::new(false, usize::MAX, |_| true);
    let mut house = House::new();
    (house.consumes, house.handlers) = (true, scribe.handlers());
    let life = house.start().await;
    letters(&life, 30, 3).await;
    let doors = house.dead_letters(&life);

    let (mut filter, mut sent) = (DeadLetterFilter::default(), 0);
    loop {
        let step = doors.redrive(&filter, 4, true, &audit()).await.expect("sent back");
        // Nobody can read them: they are dead again before the next step.
        life.consumed(SOON).await;
        (sent, filter.after) = (sent + step.redriven, step.next);
        if step.next.is_none() {
            break;
        }
    }

    assert_eq!((sent, life.log(DEAD).await.len()), (30, 60));
}

#[tokio::test(start_paused = true)]
async fn of_many_who_redrive_at_once_each_letter_goes_back_once() {
    let house = House::new();
    let life = house.start().await;
    letters(&life, 60, 3).await;
    let doors = house.dead_letters(&life);

    let sent = join_all((0..5).map(|_| redrive(&doors, 1_000))).await;

    let sent: u64 = sent.into_iter().map(|sent| sent.expect("sent back").redriven).sum();
    assert_eq!((sent, life.log(TOPIC).await.len()), (60, 60));
}

#[tokio::test(start_paused = true)]
async fn filters_choose_and_pages_end() {
    let house = House::new();
    let life = house.start().await;
    letters(&life, 40, 4).await;
    let doors = house.dead_letters(&life);
    let count = async |filter: DeadLetterFilter| doors.list(&filter, 500).await.expect("listed").dead_letters.len();
    let all = DeadLetterFilter::default;

    assert_eq!(count(DeadLetterFilter { key: Some("key-1".into()), ..all() }).await, 10);
    assert_eq!(count(DeadLetterFilter { kind: Some("ORDER_CREATED".into()), ..all() }).await, 40);
    assert_eq!(count(DeadLetterFilter { kind: Some("ORDER_CANCELLED".into()), ..all() }).await, 0);
    assert_eq!(count(DeadLetterFilter { failure_type: ports::FailureType::parse("VALIDATION"), ..all() }).await, 20);
    assert_eq!(count(DeadLetterFilter { older_than: Some(SOON * 10), ..all() }).await, 0);
    life.pass(SOON * 11).await;
    assert_eq!(count(DeadLetterFilter { older_than: Some(SOON * 10), ..all() }).await, 40);
    let of_one = DeadLetterFilter { key: Some("key-3".into()), ..all() };
    assert_eq!(doors.redrive(&of_one, 4, true, &audit()).await.expect("sent back").redriven, 4);
    assert_eq!(count(DeadLetterFilter { redriven: Some(true), ..all() }).await, 4);
    assert_eq!(count(DeadLetterFilter { redriven: Some(false), ..of_one }).await, 6);
    let (mut filter, mut seen) = (all(), 0);
    loop {
        let page = doors.list(&filter, 7).await.expect("listed");
        (seen, filter.after) = (seen + page.dead_letters.len(), page.next);
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!(seen, 40);
}

#[tokio::test(start_paused = true)]
async fn where_nothing_died_there_is_nothing_to_see() {
    let house = House::new();
    let (life, mut ledger) = (house.start().await, Ledger::default());
    let id = ledger.place(&life).await;
    ledger.step(&life, id, Status::Processing).await;
    life.drained(SOON).await;
    let doors = house.dead_letters(&life);

    assert!(doors.list(&DeadLetterFilter::default(), 10).await.expect("listed").dead_letters.is_empty());
    assert_eq!(redrive(&doors, 10).await.expect("nothing to do"), ReplayReport::default());
    let nowhere = app::operators::dead_letters::DeadLetterPosition { partition: 99, offset: 0 };
    assert_eq!(doors.find(nowhere).await.unwrap_err(), QueryError::NotFound);
}
