//! Each line about an event on its way to the broker names the request that caused it, its order and the event.
use std::time::Duration;

use domain::{OrderId, Status};
use kit::faults::{Call, InjectedFault};
use outbox::PoisonAction;
use ports::outbox::RowStatus;
use supervision::FieldValue;

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::log_capture::LogCapture;
use crate::support::process::{CHANGE_REQUEST, CREATE_REQUEST, Process, TIMEOUT, TOPIC};
use crate::support::record_faults::{RecordFault, header};

/// Longer than the trials of a suspect.
const LONG_TIMEOUT: Duration = Duration::from_secs(300);
const NAMES: [&str; 3] = ["request_id", "order_id", "event_id"];

/// The ids of the order's events in the topic, and what each line about them has for [`NAMES`].
async fn context(process: &Process, order: OrderId) -> Vec<[String; 3]> {
    let records = process.records(TOPIC).await;
    let named = |(record, request): (&ports::broker::Record, &str)| {
        assert_eq!(header(record, "x-request-id"), request);
        [request.to_owned(), order.to_string(), header(record, "ce_id")]
    };
    records.iter().map(|message| &message.record).zip([CREATE_REQUEST, CHANGE_REQUEST]).map(named).collect()
}

/// The `event_parked` events of the live stream, each with the fields of [`NAMES`] that it has.
fn parked_events(process: &Process) -> Vec<Vec<String>> {
    let (backlog, _) = process.bus().subscribe_after(Some(0));
    let parked = backlog.into_iter().filter(|event| event.event == "event_parked");
    let text = |value: FieldValue| if let FieldValue::Text(text) = value { text } else { panic!("{value:?}") };
    let named = |event: supervision::SupervisionEvent| {
        let fields = event.fields.into_iter().filter(|(name, _)| ["request_id", "key", "event_id"].contains(name));
        let mut fields: Vec<_> = fields.map(|(name, value)| (name, text(value))).collect();
        fields.sort_unstable();
        fields.into_iter().map(|(_, value)| value).collect()
    };
    parked.map(named).collect()
}

#[tokio::test(start_paused = true)]
async fn retried_and_published_events_are_logged_with_their_request() {
    let (environment, mut ledger, logs) = (Environment::new(), Ledger::default(), LogCapture::start());
    environment.record_faults.add(2, RecordFault::RefuseTransient, |record| header(record, "x-sequence") == "2");
    let process = environment.start().await;

    let order = ledger.create_order(&process).await;
    ledger.change_status(&process, order, Status::Processing).await;
    process.wait_until_drained(TIMEOUT).await;

    let context = context(&process, order).await;
    assert_eq!(logs.fields("event_published", NAMES), context);
    let failed = vec![context[1].clone(), context[1].clone()];
    assert_eq!(logs.fields("event_failed", NAMES), failed);
    assert_eq!(logs.fields("event_published", ["attempt", "topic"])[1], ["3", TOPIC]);
}

#[tokio::test(start_paused = true)]
async fn exit_of_a_worker_names_the_batch_that_it_had_in_progress() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.record_faults.add(1, RecordFault::PanicSender, |_| true);
    let process = environment.start().await;

    let order = ledger.create_order(&process).await;
    process.wait_until_drained(TIMEOUT).await;

    let (backlog, _) = process.bus().subscribe_after(Some(0));
    let exits = backlog.into_iter().filter(|event| event.event == "child_exited");
    let text = |value: FieldValue| if let FieldValue::Text(text) = value { text } else { panic!("{value:?}") };
    let in_progress = exits.flat_map(|exit| exit.fields).filter(|(name, _)| *name == "in_progress");
    let in_progress: Vec<String> = in_progress.map(|(_, value)| text(value)).collect();
    let [batch] = &in_progress[..] else { panic!("one worker died with a batch: {in_progress:?}") };
    let row = format!("of key {order} (request {CREATE_REQUEST})");
    assert!(batch.starts_with("batch ") && batch.ends_with(&row), "{batch}");
}

#[tokio::test(start_paused = true)]
async fn an_event_parked_by_an_exclusion_is_reported_with_its_request() {
    let (environment, mut ledger, logs) = (Environment::new(), Ledger::default(), LogCapture::start());
    environment.record_faults.add(usize::MAX, RecordFault::RefusePermanent, |_| true);
    let process = environment.start().await;

    let order = ledger.create_order(&process).await.to_string();
    let is_logged = async || !logs.fields("event_parked", NAMES).is_empty();
    process.wait_until("the parked row is logged", TIMEOUT, is_logged).await;

    let event_id = process.rows(RowStatus::Parked).await[0].event_id.to_string();
    assert_eq!(logs.fields("event_parked", NAMES), [[CREATE_REQUEST, &order, &event_id].map(str::to_owned)]);
    assert_eq!(parked_events(&process), [[event_id, order, CREATE_REQUEST.to_owned()]]);
}

#[tokio::test(start_paused = true)]
async fn an_event_parked_by_a_resolution_is_reported_with_its_request() {
    let (mut environment, mut ledger, logs) = (Environment::new(), Ledger::default(), LogCapture::start());
    environment.options.rules.poison.insert("ORDER_CREATED", PoisonAction::SkipRow);
    environment.record_faults.add(usize::MAX, RecordFault::PanicSender, |_| true);
    let process = environment.start().await;

    let order = ledger.create_order(&process).await.to_string();
    let is_logged = async || !logs.fields("event_parked", NAMES).is_empty();
    process.wait_until("the parked row is logged", LONG_TIMEOUT, is_logged).await;

    let event_id = process.rows(RowStatus::Parked).await[0].event_id.to_string();
    assert_eq!(logs.fields("event_parked", NAMES), [[CREATE_REQUEST, &order, &event_id].map(str::to_owned)]);
    assert_eq!(parked_events(&process), [[event_id, order, CREATE_REQUEST.to_owned()]]);
}

#[tokio::test(start_paused = true)]
async fn event_that_may_be_parked_after_a_lost_reply_is_logged() {
    for (fault, parked_later) in [(InjectedFault::UnknownDone, 0), (InjectedFault::UnknownNotDone, 1)] {
        let (environment, mut ledger, logs) = (Environment::new(), Ledger::default(), LogCapture::start());
        environment.record_faults.add(usize::MAX, RecordFault::RefusePermanent, |_| true);
        environment.script.once(Call::Exclude, fault);
        let process = environment.start().await;
        let order = ledger.create_order(&process).await;
        let is_parked = async || process.depth().await.parked == 1;
        process.wait_until("it is parked", TIMEOUT, is_parked).await;
        process.advance(TIMEOUT).await;

        let unknown = logs.fields("event_parking_unknown", ["order_id", "request_id", "attempt"]);
        let expected = [order.to_string(), CREATE_REQUEST.to_owned(), "1".to_owned()];
        assert_eq!(unknown, [expected], "{fault:?}");
        assert_eq!(logs.fields("event_parked", NAMES).len(), parked_later, "{fault:?}");
        assert_eq!(process.metrics.outbox_entries_failed.get(), parked_later as u64, "{fault:?}");
    }
}
