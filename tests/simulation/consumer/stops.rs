//! Stops while a message is handled.
use std::time::Duration;

use kit::faults::{Call, InjectedFault};
use tokio::time::Instant;

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::TIMEOUT;
use crate::support::recording_handler::{RecordingHandler, for_all_types};

#[tokio::test(start_paused = true)]
async fn stop_waits_for_the_handlers_under_way_and_begins_no_other() {
    let handler = RecordingHandler::new(false, 0, |_| false);
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    (environment.consumes, environment.handlers) = (true, handler.for_all_types());
    environment.options.consumer_parallel_keys = 1;
    (environment.options.consumers, environment.options.consumer_batch) = (1, 32);
    handler.set_delay(Duration::from_secs(9));
    let process = environment.start().await;
    ledger.create_orders(&process, 8).await;
    process.wait_until("a handler runs", TIMEOUT, async || !handler.calls().is_empty()).await;

    process.stop().await;

    assert_eq!(handler.calls().len(), 1);
    handler.set_delay(Duration::ZERO);
    let process = environment.start().await;
    process.wait_until_consumed(TIMEOUT).await;
    assert_eq!(handler.calls().len(), 8, "none is handled twice");
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_the_fallback_of_a_message_under_way() {
    let (primary, fallback) = (RecordingHandler::new(false, 1, |_| true), RecordingHandler::new(false, 0, |_| false));
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.consumes = true;
    environment.handlers = for_all_types(&primary.chain().attempts(1).fallback(fallback.clone()));
    primary.set_delay(Duration::from_secs(10));
    fallback.set_delay(Duration::from_secs(10));
    let process = environment.start().await;
    ledger.create_order(&process).await;
    process.wait_until("the handler runs", TIMEOUT, async || !primary.calls().is_empty()).await;

    process.stop().await;

    let process = environment.start().await;
    process.wait_until_consumed(TIMEOUT).await;
    assert_eq!((primary.calls().len(), fallback.calls().len()), (1, 1), "what the fallback accepted was recorded");
}

#[tokio::test(start_paused = true)]
async fn stop_does_not_wait_for_the_pause_after_a_poll_that_failed() {
    let handler = RecordingHandler::new(false, 0, |_| false);
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    (environment.consumes, environment.handlers) = (true, handler.for_all_types());
    environment.options.consumers = 1;
    environment.script.always(Call::Consume, InjectedFault::Unreachable);
    handler.set_delay(Duration::from_secs(1));
    let process = environment.start().await;
    ledger.create_order(&process).await;
    process.wait_until("the pauses are long", TIMEOUT, async || handler.calls().len() == 7).await;

    let started = Instant::now();
    process.stop().await;

    assert!(started.elapsed() < Duration::from_secs(3), "it stopped after {:?}", started.elapsed());
}
