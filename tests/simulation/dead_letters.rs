//! Redrive of dead letters: once, in the order of their keys, to consumers that process each event once, whatever call fails.
use std::collections::BTreeMap;
use std::time::Duration;

use app::error::QueryError;
use app::operators::dead_letters::{DeadLetterFilter, DeadLetters, HeldKeys, RESERVATION_TIMEOUT, RedriveReport};
use app::operators::dead_letters_by_topic::DeadLettersByTopic;
use domain::Status;
use futures::future::join_all;
use kit::Factory;
use kit::faults::{Call, InjectedFault};
use ports::broker::Broker;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::operators::{Audit, RedriveMode};

use crate::support::environment::{Environment, seed};
use crate::support::ledger::Ledger;
use crate::support::process::{Process, TIMEOUT, TOPIC};
use crate::support::record_faults::{RecordFault, header};
use crate::support::recording_handler::RecordingHandler;

const DEAD_LETTERS: &str = "order.events-dlt";

fn audit() -> Audit {
    Audit { operator: "olga".into(), reason: "the handler is fixed".into() }
}

async fn redrive(dead_letters: &DeadLetters, limit: u32) -> Result<RedriveReport, QueryError> {
    dead_letters.redrive(&DeadLetterFilter::default(), limit, RedriveMode::Execute, &audit()).await
}

/// Writes `count` dead letters of `keys` keys, as consumers would. No consumer runs.
async fn write_dead_letters(process: &Process, count: u32, keys: u32) {
    let factory = Factory::seeded(seed(), DEAD_LETTERS.into());
    for n in 0..count {
        let mut record = factory.record(&format!("key-{}", n % keys), &n.to_string());
        let failure = if n % 2 == 0 { "SYSTEM" } else { "VALIDATION" };
        record.headers.push("x-failure-type", failure.as_bytes());
        process.store.append(vec![record]).await.expect("appended");
    }
    process.advance(Duration::from_secs(2)).await;
}

/// The numbers in the topic, by key.
async fn redriven_numbers(process: &Process) -> BTreeMap<String, Vec<u32>> {
    let mut keys: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for ConsumerRecord { record, .. } in process.records(TOPIC).await {
        let number = std::str::from_utf8(&record.value).expect("text").parse().expect("a number");
        keys.entry(record.key.to_string()).or_default().push(number);
    }
    keys
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_is_redriven_once_and_handled_after_the_handler_is_fixed() {
    let handler = RecordingHandler::new(false, 5, |event| event.after.as_ref().is_some_and(|after| after.version == 0));
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    (environment.consumes, environment.handlers) = (true, handler.for_all_types());
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    process
        .wait_until("the message is a dead letter", TIMEOUT, async || process.records(DEAD_LETTERS).await.len() == 1)
        .await;
    let dead_letters = environment.dead_letters(&process);

    let dry = dead_letters
        .redrive(&DeadLetterFilter::default(), 1_000, RedriveMode::DryRun, &audit())
        .await
        .expect("counted");
    assert_eq!(dry, RedriveReport { matched: 1, ..RedriveReport::default() });
    let before = dead_letters.list(&DeadLetterFilter::default(), 10).await.expect("listed").dead_letters[0].clone();
    assert_eq!((before.redrive, process.records(TOPIC).await.len()), (None, 1), "a dry run changes nothing");
    let sent = redrive(&dead_letters, 1_000).await.expect("redriven");
    process.wait_until_consumed(TIMEOUT).await;

    assert_eq!((sent.redriven, handler.handled(id)), (1, vec![0]));
    assert_eq!(process.metrics.kafka_consumer_processed_count.get(), 1);
    assert_eq!(redrive(&dead_letters, 1_000).await.expect("nothing to do"), RedriveReport::default());
    let log = process.records(TOPIC).await;
    let (first, again) = (&log[0].record, &log[1].record);
    assert_eq!((log.len(), &first.key, &first.value), (2, &again.key, &again.value));
    assert_eq!((header(again, "x-redriven-by"), header(again, "ce_id")), ("olga".into(), header(first, "ce_id")));
    let failure_header =
        |name: &str| name.starts_with("kafka_") || name.starts_with("retry_topic") || name == "x-failure-type";
    assert!(
        again.headers.iter().all(|(name, _)| !failure_header(name)),
        "without the headers of its failures: {:?}",
        again.headers
    );
    let dead_letter =
        dead_letters.list(&DeadLetterFilter::default(), 10).await.expect("listed").dead_letters[0].clone();
    let record = dead_letter.redrive.as_ref().expect("known");
    assert_eq!((&record.audit, record.confirmed, process.records(DEAD_LETTERS).await.len()), (&audit(), true, 1));
    let origin = dead_letter.origin().expect("the origin is known");
    assert_eq!((&*origin.topic, origin.offset, dead_letter.attempts()), (TOPIC, Some(0), Some(5)));
}

#[tokio::test(start_paused = true)]
async fn a_failed_append_frees_its_dead_letters_and_a_lost_reply_holds_them_for_a_while() {
    let handler = RecordingHandler::new(false, 5, |_| true);
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    (environment.consumes, environment.handlers) = (true, handler.for_all_types());
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    process
        .wait_until("the message is a dead letter", TIMEOUT, async || process.records(DEAD_LETTERS).await.len() == 1)
        .await;
    let dead_letters = environment.dead_letters(&process);

    environment.script.once(Call::Append, InjectedFault::Unreachable);
    assert!(matches!(redrive(&dead_letters, 10).await, Err(QueryError::Unavailable(_))));
    environment.script.once(Call::Append, InjectedFault::UnknownDone);
    assert!(matches!(redrive(&dead_letters, 10).await, Err(QueryError::Unknown(_))), "the failure before released it");
    let held = redrive(&dead_letters, 10).await.expect("nothing can be done");
    assert_eq!((held.matched, held.redriven), (1, 0), "it may have been sent");
    let position = app::operators::dead_letters::DeadLetterPosition {
        partition: process.records(DEAD_LETTERS).await[0].position.partition,
        offset: 0,
    };
    assert!(matches!(
        dead_letters.redrive_one(position, RedriveMode::Execute, &audit()).await,
        Err(QueryError::Conflict(_))
    ));
    process.advance(RESERVATION_TIMEOUT).await;
    assert!(
        dead_letters.redrive_one(position, RedriveMode::Execute, &audit()).await.expect("free again").is_redriven()
    );
    process.wait_until_consumed(TIMEOUT).await;

    assert_eq!(process.records(TOPIC).await.len(), 3, "it was sent twice");
    assert!(handler.handled(id).iter().all(|version| *version == 0), "a handler may see it again");
    assert_eq!(process.metrics.kafka_consumer_processed_count.get(), 1, "its effects are applied once");
    assert!(matches!(
        dead_letters.redrive_one(position, RedriveMode::Execute, &audit()).await,
        Err(QueryError::Conflict(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn redrive_of_a_cancelled_request_confirms_what_it_has_appended() {
    let environment = Environment::new();
    let process = environment.start().await;
    write_dead_letters(&process, 3, 1).await;
    let dead_letters = environment.dead_letters(&process);
    let reply_time = Duration::from_secs(30);

    environment.script.once(Call::Append, InjectedFault::SlowReply(reply_time));
    let cancelled = tokio::time::timeout(reply_time / 2, redrive(&dead_letters, 10)).await;
    assert!(cancelled.is_err() && redriven_numbers(&process).await["key-0"].len() == 3, "after the append");
    process.advance(reply_time).await;

    let listed = dead_letters.list(&DeadLetterFilter::default(), 10).await.expect("listed").dead_letters;
    assert!(listed.len() == 3 && listed.iter().all(|dead_letter| dead_letter.is_redriven()), "{listed:?}");
    process.advance(RESERVATION_TIMEOUT).await;
    assert_eq!(redrive(&dead_letters, 10).await.expect("nothing to do"), RedriveReport::default());
    assert_eq!(redriven_numbers(&process).await["key-0"], [0, 1, 2], "each once");
}

#[tokio::test(start_paused = true)]
async fn dead_letter_that_the_broker_refuses_stops_no_other() {
    for keys in [1, 3] {
        let environment = Environment::new();
        environment
            .record_faults
            .add(usize::MAX, RecordFault::RefusePermanent, |record| &*record.topic == TOPIC && *record.value == *b"1");
        let process = environment.start().await;
        write_dead_letters(&process, 3, keys).await;
        let dead_letters = environment.dead_letters(&process);
        let listed = dead_letters.list(&DeadLetterFilter::default(), 10).await.expect("listed").dead_letters;
        let second = listed.iter().find(|listed| *listed.message.record.value == *b"1").expect("written").position();

        let first_run = redrive(&dead_letters, 10).await.expect("redriven");
        let second_run = redrive(&dead_letters, 10).await.expect("redriven");

        assert_eq!((first_run.matched, first_run.redriven), (3, 2));
        assert_eq!(
            (second_run.matched, second_run.redriven),
            (1, 0),
            "the reservation of the refused one was released"
        );
        for run in [first_run, second_run] {
            let named: Vec<_> = run.refusals.named().iter().map(|refused| refused.position).collect();
            assert_eq!((named, run.held_back), (vec![second], 0));
        }
        let mut numbers: Vec<u32> = redriven_numbers(&process).await.into_values().flatten().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 2], "each once");
        let refused =
            dead_letters.redrive_one(second, RedriveMode::Execute, &audit()).await.expect_err("it is refused");
        assert!(matches!(&refused, QueryError::Conflict(text) if text.contains("never this record")), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn later_dead_letters_of_a_key_wait_for_an_interrupted_redrive() {
    for step in [1, 1_000] {
        let environment = Environment::new();
        let process = environment.start().await;
        write_dead_letters(&process, 6, 2).await;
        let dead_letters = environment.dead_letters(&process);
        let first = DeadLetterFilter { key: Some("key-0".into()), ..DeadLetterFilter::default() };
        environment.script.once(Call::Append, InjectedFault::UnknownNotDone);
        let interrupted = dead_letters.redrive(&first, 1, RedriveMode::Execute, &audit()).await;
        assert!(matches!(interrupted, Err(QueryError::Unknown(_))), "{interrupted:?}");

        let (mut filter, mut keys, mut held_back) = (DeadLetterFilter::default(), HeldKeys::default(), 0);
        loop {
            let page = dead_letters.redrive_step(&filter, step, &mut keys, &audit()).await.expect("redriven");
            (held_back, filter.after) = (held_back + page.held_back, page.next);
            if page.next.is_none() {
                break;
            }
        }

        assert_eq!(held_back, 3, "steps of {step}");
        let other_key = BTreeMap::from([("key-1".to_owned(), vec![1, 3, 5])]);
        assert_eq!(redriven_numbers(&process).await, other_key, "steps of {step}");
        let again = redrive(&dead_letters, 1_000).await.expect("still held back");
        assert_eq!(
            again,
            RedriveReport { matched: 3, redriven: 0, held_back: 3, ..RedriveReport::default() },
            "steps of {step}"
        );
        process.advance(RESERVATION_TIMEOUT).await;
        assert_eq!(redrive(&dead_letters, 1_000).await.expect("redriven").redriven, 3, "those held back are free");
        assert_eq!(redriven_numbers(&process).await["key-0"], [0, 2, 4], "steps of {step}");
    }
}

#[tokio::test(start_paused = true)]
async fn dead_letters_are_redriven_page_by_page_in_key_order() {
    let environment = Environment::new();
    let process = environment.start().await;
    write_dead_letters(&process, 450, 7).await;
    let dead_letters = environment.dead_letters(&process);

    let mut filter = DeadLetterFilter::default();
    let (mut pages, mut sent) = (0, 0);
    loop {
        let page = dead_letters.redrive(&filter, 130, RedriveMode::Execute, &audit()).await.expect("redriven");
        (pages, sent, filter.after) = (pages + 1, sent + page.redriven, page.next);
        if page.next.is_none() {
            break;
        }
    }

    assert_eq!((pages, sent), (4, 450));
    let redriven = redriven_numbers(&process).await;
    assert!(redriven.len() == 7 && redriven.values().all(|numbers| numbers.is_sorted()), "{redriven:?}");
    assert_eq!(redriven.values().map(Vec::len).sum::<usize>(), 450);
}

#[tokio::test(start_paused = true)]
async fn a_redrive_does_not_repeat_messages_that_fail_again_during_it() {
    let handler = RecordingHandler::new(false, usize::MAX, |_| true);
    let mut environment = Environment::new();
    (environment.consumes, environment.handlers) = (true, handler.for_all_types());
    let process = environment.start().await;
    write_dead_letters(&process, 30, 3).await;
    let dead_letters = environment.dead_letters(&process);

    let (mut filter, mut sent) = (DeadLetterFilter::default(), 0);
    loop {
        let page = dead_letters.redrive(&filter, 4, RedriveMode::Execute, &audit()).await.expect("redriven");
        // They cannot be decoded, so they are dead letters again before the next page.
        process.wait_until_consumed(TIMEOUT).await;
        (sent, filter.after) = (sent + page.redriven, page.next);
        if page.next.is_none() {
            break;
        }
    }

    assert_eq!((sent, process.records(DEAD_LETTERS).await.len()), (30, 60));
}

#[tokio::test(start_paused = true)]
async fn concurrent_redrives_send_each_dead_letter_once() {
    let environment = Environment::new();
    let process = environment.start().await;
    write_dead_letters(&process, 60, 3).await;
    let dead_letters = environment.dead_letters(&process);

    let sent = join_all((0..5).map(|_| redrive(&dead_letters, 1_000))).await;

    let sent: u64 = sent.into_iter().map(|sent| sent.expect("redriven").redriven).sum();
    assert_eq!((sent, process.records(TOPIC).await.len()), (60, 60));
}

#[tokio::test(start_paused = true)]
async fn filters_select_dead_letters_and_paging_ends() {
    let environment = Environment::new();
    let process = environment.start().await;
    write_dead_letters(&process, 40, 4).await;
    let dead_letters = environment.dead_letters(&process);
    let count =
        async |filter: DeadLetterFilter| dead_letters.list(&filter, 500).await.expect("listed").dead_letters.len();
    let all = DeadLetterFilter::default;

    assert_eq!(count(DeadLetterFilter { key: Some("key-1".into()), ..all() }).await, 10);
    assert_eq!(count(DeadLetterFilter { event_type: Some("ORDER_CREATED".into()), ..all() }).await, 40);
    assert_eq!(count(DeadLetterFilter { event_type: Some("ORDER_CANCELLED".into()), ..all() }).await, 0);
    assert_eq!(count(DeadLetterFilter { failure_type: ports::FailureType::parse("VALIDATION"), ..all() }).await, 20);
    assert_eq!(count(DeadLetterFilter { older_than: Some(TIMEOUT * 10), ..all() }).await, 0);
    process.advance(TIMEOUT * 11).await;
    assert_eq!(count(DeadLetterFilter { older_than: Some(TIMEOUT * 10), ..all() }).await, 40);
    let of_one = DeadLetterFilter { key: Some("key-3".into()), ..all() };
    assert_eq!(dead_letters.redrive(&of_one, 4, RedriveMode::Execute, &audit()).await.expect("redriven").redriven, 4);
    assert_eq!(count(DeadLetterFilter { redriven: Some(true), ..all() }).await, 4);
    assert_eq!(count(DeadLetterFilter { redriven: Some(false), ..of_one }).await, 6);
    let (mut filter, mut seen) = (all(), 0);
    loop {
        let page = dead_letters.list(&filter, 7).await.expect("listed");
        (seen, filter.after) = (seen + page.dead_letters.len(), page.next);
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!(seen, 40);
}

#[tokio::test(start_paused = true)]
async fn each_topic_has_dead_letters_and_counts_of_its_own() {
    let environment = Environment::new();
    let process = environment.start().await;
    let factory = Factory::seeded(seed(), "invoices-dlt".into());
    for n in 0..7 {
        process.store.append(vec![factory.record("k", &n.to_string())]).await.expect("appended");
    }
    write_dead_letters(&process, 2, 1).await;
    let topics = ["invoices", "customers", TOPIC].map(str::to_owned);
    let by_topic = DeadLettersByTopic::new(environment.dead_letters(&process), &topics);
    let waiting = async |limit| {
        let counts = by_topic.waiting(limit).await.expect("counted");
        counts.into_iter().map(|of| (of.topic, of.waiting, of.more)).collect::<Vec<_>>()
    };
    let count = |topic: &str, waiting, more| (topic.to_owned(), waiting, more);

    assert_eq!(by_topic.topics().collect::<Vec<_>>(), [TOPIC, "invoices", "customers"], "each once");
    assert_eq!(waiting(100).await, [count(TOPIC, 2, false), count("invoices", 7, false)]);
    assert_eq!(waiting(3).await, [count(TOPIC, 2, false), count("invoices", 3, true)]);
    let invoices = by_topic.for_topic(Some("invoices")).expect("it is known");
    assert_eq!(redrive(invoices, 100).await.expect("redriven").redriven, 7);
    assert_eq!(waiting(100).await, [count(TOPIC, 2, false)]);
    let values: Vec<u8> = process.records("invoices").await.iter().map(|one| one.record.value[0] - b'0').collect();
    assert_eq!(values, [0, 1, 2, 3, 4, 5, 6], "in the order of their key");
    assert_eq!(by_topic.for_topic(None).expect("of the orders").topic(), TOPIC);
    let unknown =
        by_topic.for_topic(Some("shop")).map(DeadLetters::topic).expect_err("the service publishes to no such topic");
    assert_eq!(
        unknown.to_string(),
        "no dead letters are kept for topic shop; topics with dead letters: order.events, invoices, customers"
    );
}

#[tokio::test(start_paused = true)]
async fn without_dead_letters_lists_are_empty_and_redrives_do_nothing() {
    let environment = Environment::new();
    let (process, mut ledger) = (environment.start().await, Ledger::default());
    let id = ledger.create_order(&process).await;
    ledger.change_status(&process, id, Status::Processing).await;
    process.wait_until_drained(TIMEOUT).await;
    let dead_letters = environment.dead_letters(&process);

    assert!(dead_letters.list(&DeadLetterFilter::default(), 10).await.expect("listed").dead_letters.is_empty());
    assert_eq!(redrive(&dead_letters, 10).await.expect("nothing to do"), RedriveReport::default());
    let nowhere = app::operators::dead_letters::DeadLetterPosition { partition: 99, offset: 0 };
    assert_eq!(dead_letters.find(nowhere).await.unwrap_err(), QueryError::NotFound);
}
