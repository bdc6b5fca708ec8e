//! A store that went back in time behind the broker's watermarks: what it still has unsent is published, and operators are warned.
use domain::Status;
use kit::faults::{Call, InjectedFault};

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::TIMEOUT;

/// A token that no batch of these tests reaches.
const AHEAD: u64 = 1_000;

#[tokio::test(start_paused = true)]
async fn open_batch_below_the_watermark_is_published_and_the_rewind_is_counted() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    let ids = ledger.create_orders(&process, 12).await;
    process.wait_until_drained(TIMEOUT).await;
    assert_eq!(process.metrics.outbox_store_rewound_total.get(), 0);

    environment.record_faults.raise_watermarks(AHEAD);
    environment.script.times(3, Call::Publish, InjectedFault::UnknownNotDone);
    for id in &ids {
        ledger.change_status(&process, *id, Status::Processing).await;
    }
    process.wait_until_drained(TIMEOUT).await;

    assert_eq!(environment.script.injected().len(), 3);
    assert!(process.metrics.outbox_store_rewound_total.get() > 0);
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn every_acquisition_behind_its_watermark_is_counted_and_loses_nothing() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.record_faults.raise_watermarks(AHEAD);
    let process = environment.start().await;

    ledger.create_orders(&process, 12).await;
    process.wait_until_drained(TIMEOUT).await;

    let partitions = process.metrics.outbox_store_rewound_total.get();
    assert!(partitions > 0, "every acquired partition is counted");
    ledger.assert_guarantees(&process).await;
}
