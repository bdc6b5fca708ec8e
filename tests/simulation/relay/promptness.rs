//! An event is published without delay: it waits for no timer in an idle relay, and for no settlement of another partition.
use std::time::Duration;

use kit::faults::{Call, InjectedFault};

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::{Process, TIMEOUT, TOPIC};

/// Below the granularity of every timer of the relay.
const MILLISECOND: Duration = Duration::from_millis(1);

async fn published(process: &Process) -> usize {
    process.records(TOPIC).await.len()
}

/// Without a poll only the wake-up in process leads to a claim. Virtual time passes only where every task waits for a timer.
#[tokio::test(start_paused = true)]
async fn a_commit_wakes_an_idle_relay_without_a_timer() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.poll_interval = Duration::from_secs(3_600);
    let process = environment.start().await;
    process.advance(TIMEOUT).await;

    for events in 1..=20 {
        ledger.create_order(&process).await;
        process.advance(MILLISECOND).await;
        assert_eq!(published(&process).await, events, "the event is published within a millisecond of virtual time");
        process.advance(Duration::from_secs(1)).await;
    }

    process.wait_until_drained(TIMEOUT).await;
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_hangs_delays_no_other_partition() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.partitions = 8;
    let process = environment.start().await;
    process.advance(TIMEOUT).await;
    environment.script.once(Call::Settle, InjectedFault::Hang);
    ledger.create_order(&process).await;
    process.wait_until("the settlement hangs", TIMEOUT, async || environment.script.injected().len() == 1).await;

    ledger.create_orders(&process, 64).await;
    let others = async || process.depth().await.sent >= 40;
    process.wait_until("the events of the other partitions are sent", Duration::from_secs(2), others).await;

    environment.script.release();
    process.wait_until_drained(TIMEOUT).await;
    ledger.assert_guarantees(&process).await;
}
