//! The relay's metrics measure what their help texts say: latencies, reclaimed rows, late statements, failed attempts.
use std::sync::Arc;
use std::time::Duration;

use domain::Timestamp;
use kit::clock::{START_TIME, TokioClock};
use kit::faults::{Call, InjectedFault};

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::{PUBLISHER, TIMEOUT, TOPIC};
use crate::support::record_faults::RecordFault;

/// Time of a call that the script slows down.
const SLOW: Duration = Duration::from_millis(200);

#[tokio::test(start_paused = true)]
async fn publish_latency_runs_from_the_handover_to_the_acknowledgement() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    process.advance(Duration::from_secs(1)).await;
    process.bus().pause(PUBLISHER, "test").expect("the publisher exists");
    ledger.create_orders(&process, 8).await;
    process.advance(Duration::from_secs(5)).await;
    environment.script.always(Call::Publish, InjectedFault::Slow(SLOW));
    process.bus().resume(PUBLISHER, "test").expect("the publisher exists");

    process.wait_until_drained(TIMEOUT).await;

    let [count, sum] = process.statistics("outbox.publish.latency")[..] else { panic!("a timer") };
    assert_eq!(count, 8.0, "one measurement for each event");
    assert!((1.59..1.61).contains(&sum), "200 ms each, without the wait before the hand-over: {sum}");
    let [count, sum] = process.statistics("outbox_commit_to_ack_seconds")[..] else { panic!("a timer") };
    assert!(count == 8.0 && sum > 40.0, "five seconds each, with the wait: {sum}");
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn age_at_the_acknowledgement_is_measured_by_the_clock_of_the_store() {
    let ahead = START_TIME.plus(Duration::from_millis(1_100));
    let behind = Timestamp::from_millis(START_TIME.millis() - 60_000);
    for instance_time in [START_TIME, ahead, behind] {
        let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
        environment.instance_clock = Arc::new(TokioClock::starting_at(instance_time));
        let process = environment.start().await;
        process.advance(Duration::from_secs(1)).await;
        process.bus().pause(PUBLISHER, "test").expect("the publisher exists");
        ledger.create_orders(&process, 8).await;
        process.advance(Duration::from_secs(5)).await;
        environment.script.always(Call::Publish, InjectedFault::Slow(SLOW));
        process.bus().resume(PUBLISHER, "test").expect("the publisher exists");

        process.wait_until_drained(TIMEOUT).await;

        let [count, sum] = process.statistics("outbox_commit_to_ack_seconds")[..] else { panic!("a timer") };
        assert!(count == 8.0 && (41.6..44.0).contains(&sum), "5.2 s each, with the call of the broker: {sum}");
        ledger.assert_guarantees(&process).await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_row_of_an_open_batch_counts_as_reclaimed_when_it_is_resolved() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.partitions = 1;
    let process = environment.start().await;
    process.bus().pause(PUBLISHER, "test").expect("the publisher exists");
    ledger.create_orders(&process, 8).await;
    environment.script.always(Call::Publish, InjectedFault::Hang);
    process.bus().resume(PUBLISHER, "test").expect("the publisher exists");
    process.wait_until("the rows are claimed", TIMEOUT, async || process.depth().await.in_flight == 8).await;
    assert_eq!(process.metrics.outbox_lease_reclaimed_total.get(), 0);
    drop(process);

    environment.script.clear();
    let process = environment.start().await;
    process.wait_until_drained(TIMEOUT).await;

    assert_eq!(process.metrics.outbox_lease_reclaimed_total.get(), 8);
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn rows_that_a_resolution_settles_as_sent_count_as_delivered() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.partitions = 1;
    let process = environment.start().await;
    environment.script.once(Call::Publish, InjectedFault::UnknownDone);
    environment.script.once(Call::Settle, InjectedFault::UnknownNotDone);

    ledger.create_orders(&process, 8).await;
    process.wait_until_drained(TIMEOUT).await;

    let metrics = &process.metrics;
    assert!(metrics.outbox_lease_reclaimed_total.get() > 0, "a batch is resolved");
    assert_eq!((metrics.outbox_entries_delivered.get(), metrics.outbox_publish_rate.get()), (8, 8));
    ledger.assert_guarantees(&process).await;
}

/// Stalls a service in a call of its relay until another has taken over its partition; the stalled call then reaches the store.
async fn stall_until_taken_over(call: Call) -> (u64, u64) {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.partitions = 1;
    let process = environment.start().await;
    process.advance(Duration::from_secs(1)).await;
    environment.script.once(call, InjectedFault::Hang);
    ledger.create_order(&process).await;
    process.wait_until("the call hangs", TIMEOUT, async || !environment.script.injected().is_empty()).await;
    process.bus().pause(PUBLISHER, "test").expect("the publisher exists");
    let _other = environment.join(&process, "other").await;
    process.wait_until_drained(TIMEOUT * 3).await;

    environment.script.release();
    process.bus().resume(PUBLISHER, "test").expect("the publisher exists");
    process.advance(Duration::from_secs(1)).await;

    ledger.assert_guarantees(&process).await;
    (process.metrics.outbox_fenced_total.get(), process.metrics.outbox_stale_settlement_total.get())
}

#[tokio::test(start_paused = true)]
async fn late_claim_and_late_settlement_of_a_former_owner_are_counted() {
    let (outbox_fenced_total, outbox_stale_settlement_total) = stall_until_taken_over(Call::Claim).await;
    assert_eq!((outbox_fenced_total, outbox_stale_settlement_total), (1, 0), "a late claim");

    let (outbox_fenced_total, outbox_stale_settlement_total) = stall_until_taken_over(Call::Settle).await;
    assert_eq!((outbox_fenced_total, outbox_stale_settlement_total), (0, 1), "a late settlement");
}

#[tokio::test(start_paused = true)]
async fn failed_attempts_count_as_retries_until_the_row_is_parked() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.rules.retry.attempts_max = 4;
    environment.options.rules.retry.jitter = 0.0;
    environment.record_faults.add(usize::MAX, RecordFault::RefuseTransient, |_| true);
    let process = environment.start().await;
    ledger.create_order(&process).await;

    process.wait_until("the row is parked", TIMEOUT, async || process.depth().await.parked == 1).await;
    process.advance(Duration::from_secs(2)).await;

    assert_eq!(process.metrics.outbox_retry_count.get(), 3);
    assert_eq!(process.statistics("retry.delay.ms"), [3.0, 7_000.0], "one, two and four seconds");
    assert_eq!(process.statistics("retry.classification.count"), [4.0]);
    assert_eq!(process.metrics.outbox_entries_failed.get(), 1);
    assert_eq!(process.statistics("outbox.failure.count"), [1.0]);
    assert!(process.records(TOPIC).await.is_empty());
}
