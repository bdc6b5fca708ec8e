//! A handler that panics on one event fails for that event only; the consumer continues.
use app::consume::spring_headers;
use domain::Status;

use super::{DEAD_LETTERS, environment};
use crate::support::ledger::Ledger;
use crate::support::process::{TIMEOUT, TOPIC};
use crate::support::record_faults::header;
use crate::support::recording_handler::RecordingHandler;

#[tokio::test(start_paused = true)]
async fn event_that_makes_its_handler_panic_becomes_a_dead_letter_alone() {
    let handler = RecordingHandler::new(false, usize::MAX, |event| {
        assert!(event.after.as_ref().is_none_or(|after| after.version != 1), "version 1 of {}", event.order_id);
        false
    });
    let (environment, mut ledger) = (environment(&handler), Ledger::default());
    let process = environment.start().await;
    let (id, other) = (ledger.create_order(&process).await, ledger.create_order(&process).await);
    ledger.change_status(&process, id, Status::Processing).await;
    ledger.change_status(&process, id, Status::Shipped).await;

    process
        .wait_until("the event is a dead letter", TIMEOUT, async || process.records(DEAD_LETTERS).await.len() == 1)
        .await;
    process.wait_until_consumed(TIMEOUT).await;

    assert_eq!((handler.handled(id), handler.handled(other)), (vec![0, 2], vec![0]));
    let dead = &process.records(DEAD_LETTERS).await[0].record;
    assert_eq!(header(dead, "kafka_original-topic"), TOPIC);
    assert_eq!(header(dead, "kafka_exception-message"), format!("the handler panicked: version 1 of {id}"));
    assert_eq!(spring_headers::attempts_made(dead), Some(5), "it passed the retry topics");
    let consumer = process.bus().snapshot().into_iter().find(|row| row.path == "/consumer-0").expect("it runs");
    assert_eq!(consumer.restarts, 0);
}
