//! A process crashes between two calls of the relay; the next process on its folder resolves the open batches.
use std::time::Duration;

use domain::Status;
use kit::faults::{Call, InjectedFault};
use ports::outbox::OutboxStore;
use ports::outbox::RowStatus;

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::{Process, TIMEOUT, TOPIC};
use crate::support::record_faults::header;

async fn attempts(process: &Process) -> Vec<String> {
    process.records(TOPIC).await.iter().map(|message| header(&message.record, "x-attempt")).collect()
}

async fn wait_for_records(process: &Process, events: usize) {
    process
        .wait_until("the events are in the topic", TIMEOUT, async || process.records(TOPIC).await.len() == events)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_publish_and_settle_is_resolved_by_the_watermark() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    environment.script.always(Call::Settle, InjectedFault::Hang);
    ledger.create_orders(&process, 8).await;
    process.advance(Duration::from_secs(1)).await;
    assert!(
        !process.records(TOPIC).await.is_empty() && process.depth().await.in_flight > 0,
        "published but not settled"
    );
    drop(process);

    environment.script.clear();
    let process = environment.start().await;
    process.wait_until_drained(TIMEOUT).await;

    ledger.assert_guarantees(&process).await;
    assert_eq!(attempts(&process).await, ["1"; 8]);
}

#[tokio::test(start_paused = true)]
async fn settlements_that_keep_failing_are_resolved_by_the_watermark() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    environment.script.always(Call::Settle, InjectedFault::Unreachable);
    let ids = ledger.create_orders(&process, 8).await;
    wait_for_records(&process, 8).await;
    process.wait_until_drained(TIMEOUT).await;

    environment.script.clear();
    ledger.change_status(&process, ids[0], Status::Processing).await;
    process.wait_until_drained(TIMEOUT).await;

    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_claim_and_publish_makes_the_rows_due_and_counts_the_attempt() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    environment.script.always(Call::Publish, InjectedFault::Hang);
    ledger.create_orders(&process, 4).await;
    process.wait_until("the rows are claimed", TIMEOUT, async || process.depth().await.in_flight > 0).await;
    let claimed = process.rows(RowStatus::InFlight).await.len();
    drop(process);

    environment.script.clear();
    let process = environment.start().await;
    process.wait_until_drained(TIMEOUT).await;

    ledger.assert_guarantees(&process).await;
    let second = attempts(&process).await.iter().filter(|attempt| *attempt == "2").count();
    assert_eq!(second, claimed, "claimed rows count the crash as an attempt");
}

/// Crashes `times` times while the same call hangs, then drains.
async fn crash_repeatedly(call: Call, times: usize) {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.script.always(call, InjectedFault::Hang);
    for _ in 0..times {
        let process = environment.start().await;
        ledger.create_orders(&process, 3).await;
        process.advance(Duration::from_secs(2)).await;
        drop(process);
    }

    environment.script.clear();
    let process = environment.start().await;
    process.wait_until_drained(Duration::from_secs(120)).await;

    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn repeated_crashes_at_every_relay_call_lose_and_duplicate_no_event() {
    let calls = [
        Call::Claim,
        Call::Publish,
        Call::Settle,
        Call::Resolve,
        Call::Fence,
        Call::Watermark,
        Call::OpenSession,
        Call::Acquire,
        Call::Heartbeat,
    ];
    for call in calls {
        crash_repeatedly(call, 6).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_graceful_stop_leaves_no_batch_to_resolve() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    environment.script.always(Call::Publish, InjectedFault::Slow(Duration::from_secs(2)));
    ledger.create_orders(&process, 6).await;

    let store = process.store.clone();

    assert_eq!(process.stop().await, 0, "every partition was handed over");

    assert_eq!(store.depth().await.expect("rows can be counted").in_flight, 0);
    drop(store);
    environment.script.clear();
    let process = environment.start().await;
    process.wait_until_drained(TIMEOUT).await;
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_counts_even_if_the_first_acquisition_after_it_fails() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.partitions = 1;
    let process = environment.start().await;
    environment.script.always(Call::Publish, InjectedFault::Hang);
    ledger.create_order(&process).await;
    process.wait_until("the row is claimed", TIMEOUT, async || process.depth().await.in_flight == 1).await;
    drop(process);

    environment.script.clear();
    environment.script.once(Call::Watermark, InjectedFault::Unreachable);
    let process = environment.start().await;
    process.wait_until_drained(TIMEOUT).await;

    assert_eq!(attempts(&process).await, ["2"], "the claimer died with the row, whatever failed afterwards");
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn watchdog_restarts_a_worker_that_waits_forever_for_a_call() {
    // A publication has a limit of its own.
    for call in [Call::Claim, Call::Settle] {
        let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
        environment.options.partitions = 1;
        let process = environment.start().await;
        process.advance(TIMEOUT).await;
        environment.script.once(call, InjectedFault::Hang);

        ledger.create_orders(&process, 2).await;
        process.wait_until_drained(Duration::from_secs(180)).await;

        ledger.assert_guarantees(&process).await;
        assert_eq!(environment.script.injected(), [(call, InjectedFault::Hang)]);
        let killed = process.metrics.actor_restarts_total.with(["PartitionWorker", "killed"]).get();
        assert_eq!(killed, 1, "{call:?}");
    }
}
