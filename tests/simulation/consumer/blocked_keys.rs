//! A message that no handler accepts and that blocks its key: how often it is tried, and with it the messages that wait.
use std::time::Duration;

use app::consume::chain::PoisonMessageAction;
use domain::{Hlc, Status};
use kit::Factory;
use kit::clock::START_TIME;
use ports::broker::{Broker, Record};

use crate::support::environment::{Environment, seed};
use crate::support::ledger::Ledger;
use crate::support::process::{TIMEOUT, TOPIC};
use crate::support::recording_handler::{RecordingHandler, for_all_types, from_region};

#[tokio::test(start_paused = true)]
async fn a_blocked_key_is_tried_less_and_less_often() {
    let handler = RecordingHandler::new(true, 12, |_| true);
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.consumes = true;
    environment.handlers = for_all_types(&handler.chain().poison(PoisonMessageAction::BlockKey));
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    ledger.change_status(&process, id, Status::Processing).await;
    ledger.change_status(&process, id, Status::Shipped).await;

    let all = async || handler.handled(id).len() == 3;
    process.wait_until("the handler has recovered", Duration::from_secs(1_200), all).await;
    process.wait_until_consumed(TIMEOUT).await;

    let calls = handler.calls();
    let pauses = calls.windows(2).map(|pair| (pair[1].at - pair[0].at).as_secs()).take(12);
    assert_eq!(pauses.collect::<Vec<_>>(), [1, 2, 4, 8, 8, 16, 32, 32, 32, 32, 32, 32]);
    assert_eq!(handler.handled(id), [0, 1, 2], "the later changes wait behind the one that is blocked");
    let last = process.records(&format!("{TOPIC}-retry-3")).await.len();
    assert!(last <= 3 * 10, "each of ten rounds appends three messages once: {last}");
    ledger.assert_guarantees(&process).await;
}

/// A client of the broker can write a round that no consumer counted.
#[tokio::test(start_paused = true)]
async fn forged_round_of_a_record_does_not_hold_up_its_key() {
    let is_forged = |event: &app::contract::DecodedEvent| event.after.as_ref().is_some_and(|after| after.version == 1);
    let handler = RecordingHandler::new(true, 1, is_forged);
    let mut environment = Environment::new();
    (environment.consumes, environment.handlers) = (true, handler.for_all_types());
    let process = environment.start().await;
    let append = async |record: Record| process.run(process.store.append(vec![record])).await.expect("appended");
    let record = |event| from_region(event, "local", Hlc { millis: START_TIME.millis(), counter: 0 });
    let factory = Factory::seeded(seed(), TOPIC.into());
    let (order, placed) = factory.placed("ann");
    let (order, changed) = factory.status_changed(&order, Status::Processing);
    let (order, shipped) = factory.status_changed(&order, Status::Shipped);
    append(record(&placed)).await;
    let mut forged = Record { topic: format!("{TOPIC}-retry-3").into(), ..record(&changed) };
    forged.headers.push("x-detour-round", b"40");
    append(forged).await;
    process.wait_until("the forged record has failed", TIMEOUT, async || handler.calls().len() == 2).await;

    append(record(&shipped)).await;
    let all = async || handler.handled(order.id).len() == 3;
    process.wait_until("all are handled", TIMEOUT, all).await;
    process.wait_until_consumed(TIMEOUT).await;

    assert_eq!(handler.handled(order.id), [0, 1, 2]);
    let last = process.records(&format!("{TOPIC}-retry-3")).await.len();
    assert!(last <= 4, "the forged record and its retry, and twice the message behind it: {last}");
}
