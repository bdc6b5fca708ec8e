//! Records for retry topics and dead letters that the broker refuses for good: they must not stop their partition.
use std::sync::Arc;
use std::time::Duration;

use app::consume::spring_headers;
use app::contract::DecodedEvent;
use app::operators::dead_letters::DeadLetterFilter;
use domain::{OrderId, Status};
use kit::faults::{Call, InjectedFault};
use ports::broker::Record;
use ports::inbox::Inbox;
use ports::operators::{Audit, RedriveMode};

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::log_capture::LogCapture;
use crate::support::process::{GROUP, Process, TIMEOUT, TOPIC};
use crate::support::record_faults::{RecordFault, header};
use crate::support::recording_handler::RecordingHandler;

const DEAD_LETTERS: &str = "order.events-dlt";

#[tokio::test(start_paused = true)]
async fn forward_that_the_broker_refuses_becomes_a_dead_letter_without_its_value() {
    let handler = RecordingHandler::new(true, 5, |event| event.after.as_ref().is_some_and(|after| after.version == 0));
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    (environment.consumes, environment.handlers) = (true, handler.for_all_types());
    let is_first = |record: &Record| header(record, "x-sequence") == "1";
    let too_large = move |record: &Record| &*record.topic != TOPIC && is_first(record) && !record.value.is_empty();
    environment.record_faults.add(usize::MAX, RecordFault::RefusePermanent, too_large);
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    ledger.change_status(&process, id, Status::Processing).await;
    process.wait_until_consumed(TIMEOUT).await;

    let dead = process.records(DEAD_LETTERS).await;
    assert_eq!((dead.len(), handler.handled(id)), (1, vec![1]), "the later message does not wait for it");
    let (dead, original) = (&dead[0].record, &process.records(TOPIC).await[0]);
    assert_eq!((dead.value.len(), &dead.key), (0, &original.record.key));
    assert_eq!(header(dead, "x-omitted-value-bytes"), original.record.value.len().to_string());
    assert_eq!(header(dead, "ce_id"), header(&original.record, "ce_id"));
    assert_eq!(spring_headers::original_offset(dead), Some(0), "where its value still is");
    assert_eq!(process.metrics.kafka_consumer_dlq_count.get(), 1);
    assert_eq!(process.store.retry_route(GROUP, &id.to_string()).await.expect("read"), None);

    let dead_letters = environment.dead_letters(&process);
    let audit = Audit { operator: "olga".into(), reason: "try".into() };
    let all = dead_letters
        .redrive(&DeadLetterFilter::default(), 10, RedriveMode::Execute, &audit)
        .await
        .expect("none can be");
    assert_eq!((all.matched, all.redriven, all.next), (0, 0, None), "an empty value is not replayed");
    let position =
        dead_letters.list(&DeadLetterFilter::default(), 10).await.expect("listed").dead_letters[0].position();
    let refused = dead_letters.redrive_one(position, RedriveMode::Execute, &audit).await.expect_err("it has no value");
    assert!(refused.to_string().contains("original position"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn message_without_any_dead_letter_does_not_block_the_later_ones() {
    let handler = RecordingHandler::new(true, 5, |event| event.after.as_ref().is_some_and(|after| after.version == 0));
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    (environment.consumes, environment.handlers) = (true, handler.for_all_types());
    environment.record_faults.add(usize::MAX, RecordFault::RefusePermanent, |record| {
        &*record.topic != TOPIC && spring_headers::original_offset(record) == Some(0)
    });
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    ledger.change_status(&process, id, Status::Processing).await;
    process.wait_until_consumed(TIMEOUT).await;

    assert_eq!(handler.handled(id), vec![1]);
    assert_eq!(process.records(DEAD_LETTERS).await.len(), 0);
}

/// Events of one order whose first fails `failures` times, and whose retries in some topics the broker refuses for the event of one sequence.
fn with_refused(
    failures: usize,
    sequence: &'static str,
    topics: &'static [&str],
) -> (Environment, Arc<RecordingHandler>) {
    let is_first = |event: &DecodedEvent| event.after.as_ref().is_some_and(|after| after.version == 0);
    let (handler, mut environment) = (RecordingHandler::new(true, failures, is_first), Environment::new());
    (environment.consumes, environment.handlers) = (true, handler.for_all_types());
    environment.record_faults.add(usize::MAX, RecordFault::RefusePermanent, move |record| {
        topics.contains(&&*record.topic) && header(record, "x-sequence") == sequence
    });
    (environment, handler)
}

async fn wait_until_refused(process: &Process) {
    let refused = async || process.records(DEAD_LETTERS).await.len() == 1;
    process.wait_until("the message is refused", TIMEOUT, refused).await;
}

async fn assert_refused_without_a_retry_route(process: &Process, id: OrderId) {
    let dead = process.records(DEAD_LETTERS).await;
    assert_eq!((dead.len(), dead[0].record.value.len()), (1, 0));
    assert_eq!(process.store.retry_route(GROUP, &id.to_string()).await.expect("read"), None);
}

#[tokio::test(start_paused = true)]
async fn refused_message_does_not_end_the_wait_for_an_earlier_one() {
    // The second message is refused on its way to the first retry topic, or to the second one. The first is still ahead of it.
    for (failures, topics) in [(1, &["order.events-retry-0"]), (2, &["order.events-retry-1"])] {
        let (environment, handler) = with_refused(failures, "2", topics);
        let (process, mut ledger) = (environment.start().await, Ledger::default());
        let id = ledger.create_order(&process).await;
        process.wait_until("it has failed", TIMEOUT, async || handler.calls().len() == 1).await;
        process.advance(Duration::from_millis(300)).await;
        ledger.change_status(&process, id, Status::Processing).await;
        wait_until_refused(&process).await;
        assert!(handler.handled(id).is_empty(), "{topics:?}: the first message waits for its retry");

        ledger.change_status(&process, id, Status::Shipped).await;
        process.wait_until_consumed(TIMEOUT).await;

        assert_eq!(handler.handled(id), [0, 2], "{topics:?}");
        assert_refused_without_a_retry_route(&process, id).await;
    }
}

#[tokio::test(start_paused = true)]
async fn refused_message_of_the_poll_of_an_earlier_one_leaves_the_order_as_it_is() {
    let (mut environment, handler) = with_refused(1, "2", &["order.events-retry-0"]);
    let mut ledger = Ledger::default();
    let (process, id) = environment.start_with_two_in_one_poll(&mut ledger).await;
    wait_until_refused(&process).await;
    ledger.change_status(&process, id, Status::Shipped).await;
    process.wait_until_consumed(TIMEOUT).await;

    assert_eq!(handler.handled(id), [0, 2]);
    assert_refused_without_a_retry_route(&process, id).await;
}

#[tokio::test(start_paused = true)]
async fn retry_route_ends_with_its_first_message_that_a_later_retry_topic_refuses() {
    let (environment, handler) = with_refused(usize::MAX, "1", &["order.events-retry-1"]);
    let (process, mut ledger) = (environment.start().await, Ledger::default());
    let id = ledger.create_order(&process).await;
    wait_until_refused(&process).await;

    assert_eq!(handler.calls().len(), 2, "it failed in its own topic and in the first retry topic");
    process.advance(Duration::from_millis(100)).await;
    assert_refused_without_a_retry_route(&process, id).await;
}

#[tokio::test(start_paused = true)]
async fn refused_record_among_appended_ones_repeats_no_poll() {
    let handler = RecordingHandler::new(true, 1, |event| event.after.as_ref().is_some_and(|after| after.version == 0));
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.handlers = handler.for_all_types();
    environment.record_faults.add(usize::MAX, RecordFault::RefusePermanent, |record| {
        &*record.topic == "order.events-retry-0" && header(record, "x-sequence") == "2"
    });
    // The first fails, and the second waits behind it.
    let (process, id) = environment.start_with_two_in_one_poll(&mut ledger).await;
    process.wait_until_consumed(TIMEOUT).await;

    assert_eq!(process.records(DEAD_LETTERS).await.len(), 1, "the second message");
    assert_eq!(process.records("order.events-retry-0").await.len(), 1, "the first message");
    assert_eq!(handler.handled(id), [0]);
}

/// The poll is repeated after each failed append, and the handler is called again.
#[tokio::test(start_paused = true)]
async fn failed_appends_count_no_retry_and_no_dead_letter() {
    let handler = RecordingHandler::new(false, usize::MAX, |_| true);
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    (environment.consumes, environment.handlers) = (true, handler.for_all_types());
    let log = LogCapture::start();
    let process = environment.start().await;
    environment.script.times(2, Call::Append, InjectedFault::Unreachable);
    ledger.create_order(&process).await;
    let is_in = async |topic: &str| process.records(topic).await.len() == 1;
    process.wait_until("the last retry", TIMEOUT, async || is_in("order.events-retry-3").await).await;
    environment.script.times(2, Call::Append, InjectedFault::Unreachable);
    process.wait_until("the message is a dead letter", TIMEOUT, async || is_in(DEAD_LETTERS).await).await;
    process.wait_until_consumed(TIMEOUT).await;

    assert_eq!(environment.script.injected(), [(Call::Append, InjectedFault::Unreachable); 4]);
    let metrics = &process.metrics;
    assert_eq!((metrics.kafka_consumer_retry_count.get(), metrics.kafka_consumer_dlq_count.get()), (4, 1));
    let logged = log.fields("message_dead_lettered", ["topic", "error"]);
    assert_eq!(logged, [["order.events-retry-3", "handler: not now"]]);
}
