//! A message that no handler accepts and that blocks its key: how often it is tried, and with it the messages that wait.
use std::time::Duration;

use app::consume::chain::PoisonMessageAction;
use domain::Status;

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::{TIMEOUT, TOPIC};
use crate::support::recording_handler::{RecordingHandler, for_all_types};

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
