//! Rows that crash their worker, and services that crash at random: only the row that causes crashes is parked.
use std::time::Duration;

use domain::Status;
use kit::faults::{Call, InjectedFault};
use outbox::PoisonAction;
use ports::broker::Record;
use ports::clock::Rng;
use ports::outbox::RowStatus;
use ports::partitions::PartitionNo;

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::{TIMEOUT, TOPIC};
use crate::support::record_faults::{RecordFault, header};

const LONG_TIMEOUT: Duration = Duration::from_secs(300);

#[tokio::test(start_paused = true)]
async fn only_the_row_that_kills_its_worker_is_parked_after_two_trials() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.partitions = 2;
    let process = environment.start().await;
    let poison = ledger.create_order(&process).await;
    process.wait_until_drained(TIMEOUT).await;
    let key = poison.to_string();
    let matches = move |record: &Record| *record.key == *key && header(record, "x-sequence") == "2";
    environment.record_faults.add(usize::MAX, RecordFault::PanicSender, matches);

    ledger.change_status(&process, poison, Status::Processing).await;
    ledger.change_status(&process, poison, Status::Shipped).await;
    let others = ledger.create_orders(&process, 40).await;
    for id in &others {
        ledger.change_status(&process, *id, Status::Processing).await;
    }
    process.wait_until("the row is parked", LONG_TIMEOUT, async || process.depth().await.parked == 1).await;
    process.advance(LONG_TIMEOUT).await;

    let parked = process.rows(RowStatus::Parked).await;
    assert_eq!(parked.len(), 1, "{parked:?}");
    assert_eq!(parked[0].key, ports::orders::event_key(poison));
    let reason = "poison: the worker or the process crashed in 2 attempts that sent only this event";
    assert_eq!(parked[0].last_failure_reason.as_deref(), Some(reason));
    let depth = process.depth().await;
    // FAILED if it was in the same batch as the first row's crash, which makes it a suspect; otherwise PENDING.
    assert_eq!(depth.pending + depth.failed, 1, "only the later event of the same key waits");
    assert_eq!(process.records(TOPIC).await.len(), 1 + 2 * others.len());

    environment.record_faults.clear();
    process.operator_retry(&parked[0]).await;
    process.wait_until_drained(TIMEOUT).await;
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_poison_row_that_is_skipped_is_counted_and_its_key_continues() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.partitions = 2;
    environment.options.rules.poison.insert("ORDER_CREATED", PoisonAction::SkipRow);
    environment.record_faults.add(usize::MAX, RecordFault::PanicSender, |record| header(record, "x-sequence") == "1");
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    let suspect = async || process.depth().await.failed == 1;
    process.wait_until("the row is a suspect", LONG_TIMEOUT, suspect).await;
    ledger.change_status(&process, id, Status::Processing).await;
    assert_eq!(process.metrics.outbox_entries_failed.get(), 0);

    process.wait_until("the row is parked", LONG_TIMEOUT, async || process.depth().await.parked == 1).await;
    process.wait_until_drained(TIMEOUT).await;

    let sequences: Vec<_> =
        process.records(TOPIC).await.iter().map(|message| header(&message.record, "x-sequence").to_owned()).collect();
    assert_eq!(sequences, ["2"], "the later event of the key");
    assert_eq!(process.metrics.outbox_entries_failed.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn random_worker_crashes_park_no_row() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.partitions = 2;
    environment.script.always(Call::Publish, InjectedFault::Slow(Duration::from_secs(1)));
    let process = environment.start().await;

    let mut crashed_with_rows = 0;
    for round in 0..60 {
        ledger.create_orders(&process, 2).await;
        process.advance(Duration::from_millis(300 + environment.rng.next_u64() % 3_000)).await;
        let partition = PartitionNo(round % 2);
        let open_batch = process.rows(RowStatus::InFlight).await.iter().any(|row| row.partition == partition);
        // A worker that restarts at this moment is not affected.
        let hit = process.bus().panic(&format!("/relay/partition-worker-{}", partition.0), "test").is_ok();
        crashed_with_rows += u32::from(hit && open_batch);
    }
    let restarts = process.metrics.actor_restarts_total.with(["PartitionWorker", "panic"]).get();
    assert!(crashed_with_rows >= 6 && restarts >= 40, "{crashed_with_rows} with rows in flight, {restarts} restarts");
    environment.script.clear();
    process.wait_until_drained(LONG_TIMEOUT).await;

    assert_eq!(process.depth().await.parked, 0);
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_random_process_crashes_park_no_row() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.partitions = 2;
    environment.script.always(Call::Publish, InjectedFault::Slow(Duration::from_millis(500)));

    let mut crashed_with_rows = 0;
    for _ in 0..100 {
        let process = environment.start().await;
        ledger.create_orders(&process, 2).await;
        process.advance(Duration::from_millis(environment.rng.next_u64() % 2_000)).await;
        crashed_with_rows += u32::from(process.depth().await.in_flight > 0);
        drop(process);
    }
    assert!(crashed_with_rows >= 15, "{crashed_with_rows} of 100 crashes hit rows in flight");
    environment.script.clear();
    let process = environment.start().await;
    process.wait_until_drained(LONG_TIMEOUT).await;

    assert_eq!(process.depth().await.parked, 0);
    ledger.assert_guarantees(&process).await;
}
