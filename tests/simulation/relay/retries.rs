//! A refused event: retries that delay its key, fallback, parking, and an operator's retry.
use std::time::Duration;

use app::policy::backpressure::PressureStage;
use app::relay::chain::Fallback;
use domain::{OrderId, Status};
use outbox::PoisonAction;
use ports::broker::Record;
use ports::operators::{OutboxOperators, RowDiagnosis, RowSelector};
use ports::outbox::RowStatus;

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::{Process, TIMEOUT, TOPIC};
use crate::support::record_faults::{RecordFault, header};

const CREATED: &str = "ORDER_CREATED";
const DEAD_LETTERS: &str = "order.events-dlt";
const LONG_TIMEOUT: Duration = Duration::from_secs(120);

/// The requirements' examples allow three retries, which are four attempts.
fn environment(fallback: Fallback, poison: PoisonAction) -> Environment {
    let mut environment = Environment::new();
    environment.options.rules.retry.attempts_max = 4;
    environment.options.rules.fallback.insert(CREATED, fallback);
    environment.options.rules.poison.insert(CREATED, poison);
    environment
}

/// The broker refuses the next ORDER_CREATED records to their own topic.
fn refuse_creations(environment: &Environment, times: usize, fault: RecordFault) {
    environment
        .record_faults
        .add(times, fault, |record| header(record, "ce_type") == CREATED && &*record.topic == TOPIC);
}

async fn events_of(process: &Process, id: OrderId) -> usize {
    process.records(TOPIC).await.iter().filter(|message| *message.record.key == *id.to_string()).count()
}

async fn head(process: &Process, id: OrderId) -> RowDiagnosis {
    let rows = process
        .store
        .rows(&ports::operators::RowFilter { key: Some(ports::orders::event_key(id)), ..Default::default() }, 10)
        .await;
    let first = rows.expect("rows can be read").into_iter().min_by_key(|row| row.id).expect("the key has rows");
    let diagnosis = process.store.diagnose(RowSelector::Event(first.event_id)).await.expect("the row can be diagnosed");
    diagnosis.expect("the event is known")
}

#[tokio::test(start_paused = true)]
async fn a_refused_first_row_delays_its_key_and_no_other() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    let slow = ledger.create_order(&process).await;
    process.wait_until_drained(TIMEOUT).await;
    let key = slow.to_string();
    let attempts_before = environment.record_faults.attempts().len();
    let refused = move |record: &Record| *record.key == *key && header(record, "x-sequence") == "2";
    environment.record_faults.add(3, RecordFault::RefuseTransient, refused);

    ledger.change_status(&process, slow, Status::Processing).await;
    ledger.change_status(&process, slow, Status::Shipped).await;
    let others = ledger.create_orders(&process, 8).await;
    for id in &others {
        ledger.change_status(&process, *id, Status::Processing).await;
    }
    process.advance(Duration::from_millis(500)).await;
    assert_eq!(events_of(&process, slow).await, 1, "its later events wait behind the refused one");
    for id in others {
        assert_eq!(events_of(&process, id).await, 2);
    }
    process.wait_until_drained(TIMEOUT).await;

    ledger.assert_guarantees(&process).await;
    let tries: Vec<_> = environment.record_faults.attempts()[attempts_before..]
        .iter()
        .filter(|attempt| attempt.key == slow.to_string() && attempt.sequence == 2)
        .map(|attempt| attempt.at)
        .collect();
    let pauses: Vec<f64> = tries.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    for (pause, expected) in pauses.iter().zip([1.0, 2.0, 4.0]) {
        // The jitter is a fifth; the next run adds a little.
        assert!((expected * 0.8..expected * 1.2 + 0.1).contains(pause), "{pauses:?}");
    }
    assert_eq!(pauses.len(), 3, "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn scenario_1_used_up_retries_end_in_the_fallback_and_count_as_sent() {
    let (environment, mut ledger) = (environment(Fallback::DeadLetter, PoisonAction::BlockKey), Ledger::default());
    refuse_creations(&environment, usize::MAX, RecordFault::RefuseTransient);
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    ledger.change_status(&process, id, Status::Processing).await;

    process.wait_until_drained(LONG_TIMEOUT).await;

    let dead = process.records(DEAD_LETTERS).await;
    assert_eq!(dead.len(), 1);
    assert_eq!(header(&dead[0].record, "x-attempt"), "4");
    assert_eq!(header(&dead[0].record, "kafka_original-topic"), TOPIC);
    assert_eq!(header(&dead[0].record, "x-failure-type"), "TIMEOUT");
    assert!(header(&dead[0].record, "kafka_exception-message").contains("fault"));
    let diagnosis = head(&process, id).await;
    assert_eq!((diagnosis.row.status, diagnosis.by_fallback), (RowStatus::Sent, true));
    assert_eq!(events_of(&process, id).await, 1, "the key continues");
    assert_eq!(process.depth().await.sent, 2);
}

#[tokio::test(start_paused = true)]
async fn a_topic_partition_that_is_unavailable_for_an_hour_parks_nothing() {
    let (environment, mut ledger) = (environment(Fallback::DeadLetter, PoisonAction::BlockKey), Ledger::default());
    refuse_creations(&environment, usize::MAX, RecordFault::PartitionUnavailable);
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    ledger.change_status(&process, id, Status::Processing).await;

    process.advance(Duration::from_secs(3_600)).await;
    let waiting = head(&process, id).await.row;
    assert_eq!(waiting.status, RowStatus::Failed);
    assert_eq!(waiting.retry_count, 2, "half of the attempts that the rules have");

    environment.record_faults.clear();
    refuse_creations(&environment, 1, RecordFault::RefuseTransient);
    process.wait_until_drained(LONG_TIMEOUT).await;
    assert!(process.records(DEAD_LETTERS).await.is_empty(), "one refusal after the outage is not the last attempt");
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn scenario_2_a_permanent_failure_goes_to_the_fallback_at_once() {
    let (environment, mut ledger) = (environment(Fallback::DeadLetter, PoisonAction::BlockKey), Ledger::default());
    refuse_creations(&environment, usize::MAX, RecordFault::RefusePermanent);
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;

    process.wait_until_drained(Duration::from_secs(1)).await;

    let dead = process.records(DEAD_LETTERS).await;
    assert_eq!((dead.len(), header(&dead[0].record, "x-attempt")), (1, "1".to_owned()));
    assert_eq!(header(&dead[0].record, "x-failure-type"), "VALIDATION");
    assert!(head(&process, id).await.by_fallback);
}

#[tokio::test(start_paused = true)]
async fn scenario_3_without_a_fallback_it_is_parked_and_its_key_waits_for_an_operator() {
    let (environment, mut ledger) = (environment(Fallback::None, PoisonAction::BlockKey), Ledger::default());
    refuse_creations(&environment, usize::MAX, RecordFault::RefuseTransient);
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    ledger.change_status(&process, id, Status::Processing).await;
    ledger.change_status(&process, id, Status::Shipped).await;

    process.wait_until("the row is parked", LONG_TIMEOUT, async || process.depth().await.parked == 1).await;
    process.advance(LONG_TIMEOUT).await;
    let parked = process.rows(RowStatus::Parked).await;
    assert_eq!((parked[0].retry_count, parked[0].next_attempt_at), (4, None));
    assert!(parked[0].last_failure_reason.as_ref().is_some_and(|reason| reason.contains("fault")));
    assert_eq!(process.depth().await.pending, 2, "later events of its key wait");
    assert_eq!(process.records(TOPIC).await.len(), 0);

    environment.record_faults.clear();
    process.operator_retry(&parked[0]).await;
    process.wait_until_drained(TIMEOUT).await;
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn scenario_3_an_operators_retry_that_fails_parks_it_again_after_as_many_attempts() {
    let (environment, mut ledger) = (environment(Fallback::None, PoisonAction::BlockKey), Ledger::default());
    refuse_creations(&environment, usize::MAX, RecordFault::RefuseTransient);
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    ledger.change_status(&process, id, Status::Processing).await;
    process.wait_until("the row is parked", LONG_TIMEOUT, async || process.depth().await.parked == 1).await;
    let attempts_before = environment.record_faults.attempts().len();

    process.operator_retry(&process.rows(RowStatus::Parked).await[0]).await;
    process.advance(LONG_TIMEOUT).await;

    assert_eq!(process.depth().await.parked, 1);
    assert_eq!(
        environment.record_faults.attempts().len() - attempts_before,
        4,
        "four more attempts, the later event never"
    );
}

#[tokio::test(start_paused = true)]
async fn scenario_3_where_the_row_is_skipped_its_key_continues() {
    let (environment, mut ledger) = (environment(Fallback::None, PoisonAction::SkipRow), Ledger::default());
    refuse_creations(&environment, usize::MAX, RecordFault::RefusePermanent);
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    ledger.change_status(&process, id, Status::Processing).await;
    ledger.change_status(&process, id, Status::Shipped).await;

    process.wait_until_drained(TIMEOUT).await;

    assert_eq!(process.depth().await.parked, 1);
    assert_eq!(events_of(&process, id).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_row_is_parked_when_its_fallback_is_refused() {
    let (environment, mut ledger) = (environment(Fallback::DeadLetter, PoisonAction::BlockKey), Ledger::default());
    environment
        .record_faults
        .add(usize::MAX, RecordFault::RefusePermanent, |record| header(record, "ce_type") == CREATED);
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    let others = ledger.create_orders(&process, 1).await;
    ledger.change_status(&process, id, Status::Processing).await;

    process.wait_until("both rows are parked", TIMEOUT, async || process.depth().await.parked == 2).await;

    assert_eq!(process.records(DEAD_LETTERS).await.len() + process.records(TOPIC).await.len(), 0, "{others:?}");
}

#[tokio::test(start_paused = true)]
async fn retries_are_delayed_longer_under_backpressure() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.rules.retry.jitter = 0.0;
    // ELEVATED from the first sample on, without end.
    environment.options.pressure.backlog = (0, u64::MAX).into();
    let process = environment.start().await;
    process
        .wait_until("retries are delayed longer", TIMEOUT, async || process.gate.stage() == PressureStage::Retries)
        .await;
    environment.record_faults.add(1, RecordFault::RefuseTransient, |_| true);

    ledger.create_order(&process).await;
    process.wait_until_drained(TIMEOUT).await;

    let attempts = environment.record_faults.attempts();
    let pause = (attempts[1].at - attempts[0].at).as_secs_f64();
    assert!((1.42..1.53).contains(&pause), "one second divided by 0.7: {pause}");
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn rules_of_the_topic_come_before_those_of_the_event_type_and_the_default() {
    let (mut environment, mut ledger) = (environment(Fallback::DeadLetter, PoisonAction::BlockKey), Ledger::default());
    let rules = &mut environment.options.rules;
    let retry = outbox::RetryPolicy { attempts_max: 2, ..rules.retry.clone() };
    rules.retry_by_topic.insert(TOPIC.to_owned(), retry);
    rules.fallback.insert_topic(TOPIC, Fallback::None);
    rules.poison.insert_topic(TOPIC, PoisonAction::SkipRow);
    refuse_creations(&environment, usize::MAX, RecordFault::RefuseTransient);
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    ledger.change_status(&process, id, Status::Processing).await;

    process.wait_until("the row is parked", LONG_TIMEOUT, async || process.depth().await.parked == 1).await;
    process.wait_until_drained(TIMEOUT).await;

    assert_eq!(process.rows(RowStatus::Parked).await[0].retry_count, 2, "two attempts, not four");
    assert_eq!(process.records(DEAD_LETTERS).await.len(), 0, "no fallback");
    assert_eq!(events_of(&process, id).await, 1, "the later event of the key is sent");
}
