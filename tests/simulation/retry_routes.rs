//! Retry routes under calls that fail: a poll that is repeated neither ends the wait of a key's later messages early, nor puts a message behind them.
use std::sync::Arc;
use std::time::Duration;

use domain::{OrderId, Status};
use kit::faults::{Call, InjectedFault};
use ports::inbox::Inbox;

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::{GROUP, Process, TIMEOUT};
use crate::support::recording_handler::RecordingHandler;

/// A handler that needs the order of a key. It fails `failures` times for the events of this version.
fn handler(failures: usize, version: u64) -> Arc<RecordingHandler> {
    RecordingHandler::new(true, failures, move |event| {
        event.after.as_ref().is_some_and(|after| after.version == version)
    })
}

fn environment(handler: &Arc<RecordingHandler>) -> Environment {
    let mut environment = Environment::new();
    (environment.consumes, environment.handlers) = (true, handler.for_all_types());
    environment
}

async fn assert_no_retry_route(process: &Process, id: OrderId) {
    let retry_route = process.store.retry_route(GROUP, &id.to_string()).await.expect("retry routes can be read");
    assert_eq!(retry_route, None, "the retry route ended with its last message");
}

#[tokio::test(start_paused = true)]
async fn copies_of_a_retried_message_do_not_end_the_wait_for_a_later_one() {
    let handler = handler(2, 0);
    let (environment, mut ledger) = (environment(&handler), Ledger::default());
    // The record is in the retry topic, and its consumer receives no reply: the message fails once more and is there twice.
    environment.script.once(Call::Append, InjectedFault::UnknownDone);
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    process.wait_until("it has failed twice", TIMEOUT, async || handler.calls().len() == 2).await;
    process.advance(Duration::from_millis(500)).await;
    ledger.change_status(&process, id, Status::Processing).await;

    process.wait_until("both copies are handled", TIMEOUT, async || handler.handled(id).len() >= 2).await;
    ledger.change_status(&process, id, Status::Shipped).await;
    process.wait_until_consumed(TIMEOUT).await;

    assert_eq!(handler.handled(id), [0, 0, 1, 2], "the second change waits for the first");
    assert_no_retry_route(&process, id).await;
}

/// The end of a retry route follows the acknowledgement, so that a message that may be delivered again is not overtaken. Without it, or without its
/// reply, the next message of the key ends the retry route.
#[tokio::test(start_paused = true)]
async fn retry_route_without_a_recorded_end_ends_with_the_next_message() {
    for fault in [InjectedFault::UnknownDone, InjectedFault::UnknownNotDone] {
        let handler = handler(1, 0);
        let (environment, mut ledger) = (environment(&handler), Ledger::default());
        let process = environment.start().await;
        let id = ledger.create_order(&process).await;
        process.wait_until("it has failed", TIMEOUT, async || handler.calls().len() == 1).await;
        process.advance(Duration::from_millis(700)).await;
        ledger.change_status(&process, id, Status::Processing).await;
        process.advance(Duration::from_millis(100)).await;

        environment.script.once(Call::UpdateRetryRoutes, fault);
        process.wait_until("both are handled", TIMEOUT, async || handler.handled(id).len() == 2).await;
        ledger.change_status(&process, id, Status::Shipped).await;
        process.wait_until_consumed(TIMEOUT).await;

        assert_eq!(handler.handled(id), [0, 1, 2], "none is delivered again: {fault:?}");
        assert_no_retry_route(&process, id).await;
    }
}

#[tokio::test(start_paused = true)]
async fn later_message_waits_until_a_retried_one_is_recorded() {
    let handler = handler(1, 0);
    let (environment, mut ledger) = (environment(&handler), Ledger::default());
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    process.wait_until("it has failed", TIMEOUT, async || handler.calls().len() == 1).await;

    environment.script.once(Call::Consume, InjectedFault::Unreachable);
    process.wait_until("it is handled and not recorded", TIMEOUT, async || handler.calls().len() == 2).await;
    ledger.change_status(&process, id, Status::Processing).await;
    process.wait_until_consumed(TIMEOUT).await;

    assert_eq!(handler.handled(id), [0, 0, 1]);
    assert_no_retry_route(&process, id).await;
}

#[tokio::test(start_paused = true)]
async fn message_is_recorded_before_a_later_one_of_its_poll_goes_to_a_retry_topic() {
    let handler = handler(1, 1);
    let (mut environment, mut ledger) = (environment(&handler), Ledger::default());
    // The first cannot be recorded, and is delivered again.
    environment.script.once(Call::Consume, InjectedFault::Unreachable);
    let (process, id) = environment.start_with_two_in_one_poll(&mut ledger).await;
    process.wait_until_consumed(TIMEOUT).await;

    assert_eq!(
        handler.handled(id),
        [0, 0, 1],
        "the message that is delivered again does not wait behind the later one"
    );
    assert_no_retry_route(&process, id).await;
}
