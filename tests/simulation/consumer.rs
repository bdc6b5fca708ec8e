//! The consumer: retry topics with growing delays, dead letters, the order of a key's retry route, duplicates, events of other regions.
mod blocked_keys;
mod earlier_failures;
mod handler_panics;
mod refused_forwards;
mod stops;
mod store_outages;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use app::consume::chain::PoisonMessageAction;
use app::consume::handlers::Handlers;
use app::consume::spring_headers;
use domain::{EventType, Hlc, Status};
use kit::Factory;
use kit::clock::{START_TIME, SeededRng};
use kit::faults::{Call, InjectedFault};
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::{Broker, Record};
use ports::clock::Rng;
use ports::inbox::Inbox;
use tokio::time::Instant;

use crate::support::consumption::Consumption;
use crate::support::environment::{Environment, seed, seeds};
use crate::support::ledger::Ledger;
use crate::support::process::{GROUP, Process, TIMEOUT, TOPIC};
use crate::support::record_faults::header;
use crate::support::recording_handler::{RecordingHandler, from_region};

const DEAD_LETTERS: &str = "order.events-dlt";

fn environment(handler: &Arc<RecordingHandler>) -> Environment {
    let mut environment = Environment::new();
    (environment.consumes, environment.handlers) = (true, handler.for_all_types());
    environment
}

async fn append(process: &Process, record: Record) {
    process.run(process.store.append(vec![record])).await.expect("appended");
}

/// Seconds between the calls of the handler for one message.
fn pauses(handler: &RecordingHandler) -> Vec<f64> {
    let calls = handler.calls();
    calls.windows(2).map(|pair| (pair[1].at - pair[0].at).as_secs_f64()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_message_that_keeps_failing_passes_the_retry_topics_and_becomes_a_dead_letter() {
    let handler = RecordingHandler::new(false, usize::MAX, |_| true);
    let (environment, mut ledger) = (environment(&handler), Ledger::default());
    let process = environment.start().await;
    ledger.create_order(&process).await;

    process
        .wait_until("the message is a dead letter", TIMEOUT, async || process.records(DEAD_LETTERS).await.len() == 1)
        .await;
    process.wait_until_consumed(TIMEOUT).await;

    let pauses = pauses(&handler);
    assert_eq!(pauses.len(), 4, "five attempts: {pauses:?}");
    for (pause, expected) in pauses.iter().zip([1.0, 2.0, 4.0, 8.0]) {
        assert!((expected..expected + 0.6).contains(pause), "{pauses:?}");
    }
    for stage in 0..4_u8 {
        let passed = process.records(&format!("{TOPIC}-retry-{stage}")).await;
        assert_eq!(passed.len(), 1, "stage {stage}");
        let retried = &passed[0].record;
        assert_eq!(retried.header("retry_topic-attempts"), Some([0, 0, 0, stage + 2].as_slice()), "the next attempt");
        let delay = spring_headers::due(retried).expect("it has a due time").since(retried.timestamp);
        assert_eq!(delay, Duration::from_secs(1 << stage));
    }
    let dead = &process.records(DEAD_LETTERS).await[0].record;
    assert_eq!(header(dead, "kafka_original-topic"), TOPIC);
    assert_eq!(header(dead, "kafka_exception-message"), "handler: not now");
    assert_eq!(spring_headers::attempts_made(dead), Some(5));
    assert_eq!(header(dead, "x-failure-type"), "SYSTEM");
    let metrics = &process.metrics;
    assert_eq!(metrics.kafka_consumer_processed_count.get(), 0);
    assert_eq!(metrics.kafka_consumer_errors.get(), 5, "each attempt failed");
    assert_eq!((metrics.kafka_consumer_retry_count.get(), metrics.kafka_consumer_dlq_count.get()), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_poll_count_as_errors_when_its_result_is_not_stored() {
    let handler = RecordingHandler::new(false, 1, |_| true);
    let (environment, mut ledger) = (environment(&handler), Ledger::default());
    environment.script.once(Call::Append, InjectedFault::Unreachable);
    let process = environment.start().await;
    ledger.create_order(&process).await;

    process.wait_until_consumed(TIMEOUT).await;

    let metrics = &process.metrics;
    assert_eq!(handler.calls().len(), 2, "it failed once; the poll that could not forward it was repeated");
    assert_eq!(metrics.kafka_consumer_errors.get(), 1, "the message whose failure was not stored");
    assert_eq!(metrics.kafka_consumer_processed_count.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_recovers_consumes_the_message_from_its_retry_topic() {
    let handler = RecordingHandler::new(false, 2, |_| true);
    let (environment, mut ledger) = (environment(&handler), Ledger::default());
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;

    process.wait_until("the message is handled", TIMEOUT, async || !handler.handled(id).is_empty()).await;
    process.wait_until_consumed(TIMEOUT).await;

    assert_eq!(handler.calls().len(), 3);
    assert!(process.records(DEAD_LETTERS).await.is_empty());
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_for_springs_due_time_but_never_longer_than_the_longest_delay() {
    // Due times after the write, and what the handler waits: 3 s, and the limit of 8 s instead of a year.
    for (due_after, expected) in [(Duration::from_secs(3), 3.0), (Duration::from_secs(31_536_000), 8.0)] {
        let (started, handler) = (Instant::now(), RecordingHandler::new(false, 0, |_| false));
        let environment = environment(&handler);
        let process = environment.start().await;
        let factory = Factory::seeded(seed(), TOPIC.into());
        let (_, placed) = factory.placed("ann");
        let mut record = from_region(&placed, "local", Hlc { millis: START_TIME.millis(), counter: 0 });
        record.topic = format!("{TOPIC}-retry-0").into();
        record.timestamp = START_TIME.plus(started.elapsed());
        let due = record.timestamp.plus(due_after).millis();
        // A positive BigInteger of fewer than 8 bytes: leading zeros carry no sign.
        let due_bytes: Vec<u8> = due.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
        record.headers.push("retry_topic-attempts", &[0, 0, 0, 2]);
        record.headers.push("retry_topic-backoff-timestamp", &due_bytes);
        let written = Instant::now();
        append(&process, record).await;

        process.wait_until("the message is handled", TIMEOUT, async || handler.calls().len() == 1).await;

        let waited = (handler.calls()[0].at - written).as_secs_f64();
        assert!((expected..expected + 0.6).contains(&waited), "{waited} s");
    }
}

#[tokio::test(start_paused = true)]
async fn events_of_a_type_follow_their_own_chain() {
    // Creations: two attempts, then the fallback. Status changes: no retry, no fallback, and the key waits until the handler recovers.
    let (primary, fallback) = (RecordingHandler::new(true, 4, |_| true), RecordingHandler::new(true, 0, |_| false));
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.consumes = true;
    environment.handlers = Handlers::default()
        .with(EventType::OrderCreated, primary.chain().attempts(2).fallback(fallback.clone()))
        .with(EventType::OrderStatusChanged, primary.chain().attempts(1).poison(PoisonMessageAction::BlockKey));
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    process.wait_until("the fallback has the event", TIMEOUT, async || fallback.handled(id) == [0]).await;
    ledger.change_status(&process, id, Status::Processing).await;
    ledger.change_status(&process, id, Status::Shipped).await;

    process.wait_until("the handler has recovered", TIMEOUT, async || primary.handled(id).len() == 2).await;
    process.wait_until_consumed(TIMEOUT).await;

    let called: Vec<u64> = primary.calls().iter().map(|call| call.version).collect();
    assert_eq!(called, [0, 0, 1, 1, 1, 2], "the later change waits behind the one that is blocked");
    assert_eq!(process.metrics.kafka_consumer_fallback_count.get(), 1);
    assert_eq!(process.metrics.kafka_consumer_processed_count.get(), 3);
    assert!(process.records(DEAD_LETTERS).await.is_empty());
    ledger.assert_guarantees(&process).await;
}

/// The first event of an order fails this often, while its later events arrive.
async fn check_key_order_behind(failures: usize) {
    let handler =
        RecordingHandler::new(true, failures, |event| event.after.as_ref().is_some_and(|after| after.version == 0));
    let (environment, mut ledger) = (environment(&handler), Ledger::default());
    let process = environment.start().await;
    let first = ledger.create_order(&process).await;
    process.wait_until("its first attempt failed", TIMEOUT, async || handler.calls().len() == 1).await;
    ledger.change_status(&process, first, Status::Processing).await;
    process.advance(Duration::from_millis(1_500)).await;
    ledger.change_status(&process, first, Status::Shipped).await;
    process.advance(Duration::from_millis(1_500)).await;
    ledger.change_status(&process, first, Status::Delivered).await;
    process.wait_until_consumed(TIMEOUT * 2).await;
    let (dead, last) = (process.records(DEAD_LETTERS).await, handler.handled(first));

    assert_eq!(dead.len(), usize::from(failures >= 5));
    let expected: Vec<u64> = (u64::from(failures >= 5)..4).collect();
    assert_eq!(last, expected, "after {failures} failures");
    let retry_route = process.store.retry_route(GROUP, &first.to_string()).await.expect("retry routes can be read");
    assert_eq!(retry_route, None, "the retry route ended with its last message");

    let other = ledger.create_order(&process).await;
    process.wait_until_consumed(TIMEOUT).await;
    assert_eq!(handler.handled(other).len(), 1, "a new key is not delayed");
}

#[tokio::test(start_paused = true)]
async fn with_an_ordered_handler_later_messages_of_a_key_wait_behind_a_retried_one() {
    for failures in 1..=5 {
        check_key_order_behind(failures).await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_message_of_a_key_is_handled_before_an_earlier_one_whichever_fail() {
    for seed in seeds(8) {
        let rng = SeededRng::new(seed);
        let handler = RecordingHandler::new(true, 60, move |_| rng.fraction() < 0.5);
        let (mut environment, mut ledger) = (Environment::seeded(seed), Ledger::default());
        (environment.consumes, environment.handlers) = (true, handler.for_all_types());
        let process = environment.start().await;
        let ids = ledger.create_orders(&process, 6).await;
        for to in [Status::Processing, Status::Shipped, Status::Delivered] {
            for id in &ids {
                ledger.change_status(&process, *id, to).await;
                process.advance(Duration::from_millis(environment.rng.next_u64() % 900)).await;
            }
        }
        process.wait_until_consumed(Duration::from_secs(600)).await;

        let calls = handler.calls().into_iter().filter(|call| call.succeeded);
        let consumption = Consumption {
            published: &process.records(TOPIC).await,
            dead_letters: &process.records(DEAD_LETTERS).await,
            applied: &calls.map(|call| call.event_id.to_string()).collect::<Vec<_>>(),
        };
        assert_eq!((consumption.check_once(), consumption.check_order()), (Ok(()), Ok(())), "seed {seed}");
        assert_eq!(consumption.published.len(), 4 * ids.len());
        for id in ids {
            let retry_route =
                process.store.retry_route(GROUP, &id.to_string()).await.expect("retry routes can be read");
            assert_eq!(retry_route, None, "{id} of seed {seed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_keys_do_not_wait_for_a_retried_message() {
    let handler = RecordingHandler::new(true, 3, |event| event.after.as_ref().is_some_and(|after| after.version == 0));
    let (environment, mut ledger) = (environment(&handler), Ledger::default());
    let process = environment.start().await;
    let slow = ledger.create_order(&process).await;
    process.wait_until("its first attempt failed", TIMEOUT, async || handler.calls().len() == 1).await;
    // The two remaining failures must hit the first order: the others are created only after them.
    process.wait_until("its later attempts failed", TIMEOUT, async || handler.calls().len() == 3).await;
    let others = ledger.create_orders(&process, 10).await;
    process.advance(Duration::from_secs(1)).await;

    assert!(others.iter().all(|id| handler.handled(*id) == [0]));
    assert!(handler.handled(slow).is_empty());
    process.wait_until_consumed(TIMEOUT).await;
    assert_eq!(handler.handled(slow), [0]);
}

#[tokio::test(start_paused = true)]
async fn retry_from_a_clock_that_is_ahead_waits_for_the_longest_delay_at_most() {
    let handler = RecordingHandler::new(false, 0, |_| false);
    let process = environment(&handler).start().await;
    let (_, placed) = Factory::seeded(seed(), TOPIC.into()).placed("ann");
    let mut record = from_region(&placed, "local", Hlc { millis: START_TIME.millis(), counter: 0 });
    record.topic = format!("{TOPIC}-retry-0").into();
    record.timestamp = START_TIME.plus(Duration::from_secs(6 * 3_600));
    let written = Instant::now();
    append(&process, record).await;

    process.wait_until("the message is handled", TIMEOUT, async || handler.calls().len() == 1).await;

    let waited = (handler.calls()[0].at - written).as_secs_f64();
    assert!(waited <= 8.6, "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn retries_from_a_clock_that_is_ahead_wait_together_not_one_after_the_other() {
    let handler = RecordingHandler::new(false, 0, |_| false);
    let process = environment(&handler).start().await;
    let factory = Factory::seeded(seed(), TOPIC.into());
    let written = Instant::now();
    for at in 0..10 {
        let stamp = Hlc { millis: START_TIME.millis(), counter: 0 };
        let mut record = from_region(&factory.placed("ann").1, "local", stamp);
        (record.topic, record.key) = (format!("{TOPIC}-retry-0").into(), "one-partition".into());
        record.timestamp = START_TIME.plus(Duration::from_secs(3_600) + written.elapsed() + Duration::from_millis(at));
        append(&process, record).await;
    }

    process.wait_until("the messages are handled", TIMEOUT, async || handler.calls().len() == 10).await;

    let waited = [0, 9].map(|at: usize| (handler.calls()[at].at - written).as_secs_f64());
    assert!(waited[0] >= 1.0 && waited[1] <= 8.6, "{waited:?} s");
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_message_becomes_a_dead_letter_at_once() {
    let handler = RecordingHandler::new(false, 0, |_| false);
    let environment = environment(&handler);
    let process = environment.start().await;
    let factory = Factory::seeded(seed(), TOPIC.into());
    append(&process, factory.record("key", "{\"schemaVersion\":99}")).await;

    process.wait_until_consumed(Duration::from_secs(1)).await;

    let dead = process.records(DEAD_LETTERS).await;
    assert_eq!(dead.len(), 1);
    assert!(header(&dead[0].record, "kafka_exception-fqcn").ends_with("DeserializationException"));
    assert_eq!(header(&dead[0].record, "x-failure-type"), "VALIDATION");
    assert!(handler.calls().is_empty());
    assert_eq!(process.metrics.kafka_schema_validation_errors.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_message_is_acknowledged_and_recorded_once() {
    let handler = RecordingHandler::new(false, 0, |_| false);
    let (environment, mut ledger) = (environment(&handler), Ledger::default());
    let process = environment.start().await;
    ledger.create_order(&process).await;
    process.wait_until_consumed(TIMEOUT).await;

    let again = process.records(TOPIC).await[0].record.clone();
    append(&process, again).await;
    process.wait_until_consumed(TIMEOUT).await;

    assert_eq!(process.metrics.kafka_consumer_processed_count.get(), 1);
    assert!(process.records(DEAD_LETTERS).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stale_event_of_another_region_is_recorded_in_the_inbox_and_counted() {
    let handler = RecordingHandler::new(false, 0, |_| false);
    let environment = environment(&handler);
    let process = environment.start().await;
    let factory = Factory::seeded(seed(), TOPIC.into());
    let (order, placed) = factory.placed("ann");
    let (_, moved) = factory.status_changed(&order, Status::Processing);
    let stamp = |seconds: i64, counter| Hlc { millis: START_TIME.millis() + seconds * 1_000, counter };

    append(&process, from_region(&moved, "eu", stamp(2, 0))).await;
    append(&process, from_region(&placed, "us", stamp(1, 7))).await;
    process.wait_until_consumed(TIMEOUT).await;
    let (_, ahead) = factory.status_changed(&order, Status::Shipped);
    environment.script.once(Call::Consume, InjectedFault::Unreachable);
    append(&process, from_region(&ahead, "eu", stamp(3_600, 0))).await;
    process.wait_until_consumed(TIMEOUT).await;

    assert_eq!(handler.calls().len(), 1, "the stale event and the one with a stamp in the future change nothing");
    assert_eq!(
        process.metrics.region_conflict_rejected_count.get(),
        2,
        "each once, also the one whose poll was repeated"
    );
    assert_eq!(process.metrics.kafka_consumer_processed_count.get(), 3, "all three are recorded");
    let remote =
        process.store.remote_stamp(order.id).await.expect("stamps can be read").expect("the order has a stamp");
    assert_eq!((remote.region.as_str(), remote.hlc), ("eu", stamp(2, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_crashes_repeatedly_accounts_for_each_message_once() {
    let handler = RecordingHandler::new(true, 10, |event| event.order_id.bytes()[15] % 3 == 0);
    let (environment, mut ledger) = (environment(&handler), Ledger::default());
    environment.script.sometimes(0.2, Call::Append, InjectedFault::Unreachable);
    let mut process = environment.start().await;
    let mut crashes = 0;
    for round in 0..20 {
        let id = ledger.create_order(&process).await;
        ledger.change_status(&process, id, Status::Processing).await;
        process.advance(Duration::from_millis(300)).await;
        if round % 3 == 0 {
            drop(process);
            process = environment.start().await;
        } else {
            // A consumer that restarts at this moment is not affected.
            crashes += u32::from(process.bus().panic("/consumer-0", "test").is_ok());
        }
    }
    assert!(crashes >= 10, "{crashes} of 13 panics hit the consumer");
    environment.script.clear();
    process.wait_until_drained(TIMEOUT).await;
    process.wait_until_consumed(TIMEOUT * 4).await;

    ledger.assert_guarantees(&process).await;
    // A crash between the write to the dead-letter topic and the acknowledgement writes it twice.
    let name = |message: &ConsumerRecord| (message.record.key.to_string(), header(&message.record, "ce_id"));
    let dead: BTreeSet<_> = process.records(DEAD_LETTERS).await.iter().map(name).collect();
    for id in ledger.orders.keys() {
        let mut taken = handler.handled(*id);
        // After a crash before the inbox commit, messages repeat from the first unrecorded one on: in order, with repetitions.
        taken.sort_unstable();
        taken.dedup();
        let dead = dead.iter().filter(|(key, _)| *key == id.to_string()).count();
        assert_eq!(taken.len() + dead, 2, "{id}: {taken:?}");
    }
}
