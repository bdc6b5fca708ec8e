//! At least once, a batch of which the broker stores only a part: what it has stored is settled, and the rest waits for its retry.
use std::time::Duration;

use domain::Status;
use kit::faults::{Call, InjectedFault};

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::{TIMEOUT, TOPIC};
use crate::support::record_faults::RecordFault;

const MINUTE: Duration = Duration::from_secs(60);

/// The topic partition of one key gives no answer this often, in a batch with rows of other keys. Returns after a minute.
async fn send_with_a_key_without_answers(times: usize) {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.partitions = 1;
    let process = environment.start().await;
    let stuck = ledger.create_order(&process).await;
    process.wait_until_drained(TIMEOUT).await;
    let key = stuck.to_string();
    environment.record_faults.add(times, RecordFault::NoAnswer, move |record| *record.key == *key);

    // No claim succeeds until all rows are there.
    environment.script.always(Call::Claim, InjectedFault::Unreachable);
    ledger.change_status(&process, stuck, Status::Processing).await;
    ledger.change_status(&process, stuck, Status::Shipped).await;
    ledger.create_orders(&process, 8).await;
    environment.script.clear();
    process.advance(MINUTE).await;

    let records = process.records(TOPIC).await;
    let healthy = records.iter().filter(|message| *message.record.key != *stuck.to_string()).count();
    assert_eq!(healthy, 8, "each healthy row is stored once");
    environment.record_faults.clear();
    process.wait_until_drained(MINUTE * 2).await;
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn stored_rows_are_not_sent_again_while_another_row_gets_no_answer() {
    send_with_a_key_without_answers(usize::MAX).await;
}

/// The next call finds that the session has ended.
#[tokio::test(start_paused = true)]
async fn stored_rows_are_not_sent_again_after_their_session_has_ended() {
    send_with_a_key_without_answers(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_without_answers_is_not_parked_however_often_its_batch_is_sent_in_part() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.partitions = 1;
    environment.options.rules.retry.attempts_max = 4;
    let process = environment.start().await;
    let stuck = ledger.create_order(&process).await;
    process.wait_until_drained(TIMEOUT).await;
    let key = stuck.to_string();
    environment.record_faults.add(usize::MAX, RecordFault::NoAnswer, move |record| *record.key == *key);
    ledger.change_status(&process, stuck, Status::Processing).await;

    for _ in 0..8 {
        environment.script.always(Call::Claim, InjectedFault::Unreachable);
        ledger.create_orders(&process, 8).await;
        environment.script.clear();
        process.advance(MINUTE).await;
        assert_eq!(process.depth().await.parked, 0);
    }

    environment.record_faults.clear();
    process.wait_until_drained(MINUTE * 2).await;
    ledger.assert_guarantees(&process).await;
}
