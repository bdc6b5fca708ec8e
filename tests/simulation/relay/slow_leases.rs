//! Slow replies about leases: a lease lasts from before its request, and a batch with too little time left is not given to the broker.
use std::time::Duration;

use kit::faults::{Call, InjectedFault};

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::TIMEOUT;

const LEASE: Duration = Duration::from_secs(10);
/// So late that less of the lease is left than the margin of one second.
const LATE: InjectedFault = InjectedFault::SlowReply(Duration::from_millis(9_500));
/// Time after the late reply that is still within the lease.
const SHORTLY: Duration = Duration::from_millis(50);
const ORDERS: u64 = 8;

fn environment() -> Environment {
    let mut environment = Environment::new();
    (environment.options.partitions, environment.options.relay.lease) = (1, LEASE);
    environment
}

/// The batch was not given to the broker: the next session returned its rows before it published them.
macro_rules! assert_returned_unsent {
    ($environment:ident, $ledger:ident, $process:ident, $rows:expr) => {
        $environment.script.clear();
        $process.wait_until_drained(TIMEOUT).await;
        assert_eq!($process.metrics.outbox_lease_reclaimed_total.get(), $rows);
        assert_eq!($environment.record_faults.attempts().len() as u64, $rows, "each record was sent once");
        $ledger.assert_guarantees(&$process).await;
    };
}

#[tokio::test(start_paused = true)]
async fn batch_of_a_slow_claim_is_not_published_within_the_margin_of_its_lease() {
    let (environment, mut ledger) = (environment(), Ledger::default());
    let process = environment.start().await;
    process.wait_until("the lease is acquired", TIMEOUT, async || process.depth().await.in_flight == 0).await;
    environment.script.always(Call::Renew, InjectedFault::Unreachable);
    environment.script.once(Call::Claim, LATE);

    ledger.create_orders(&process, ORDERS as usize).await;
    process.wait_until("the batch is claimed", TIMEOUT, async || process.depth().await.in_flight == ORDERS).await;
    process.advance(LEASE - SHORTLY * 4).await;

    assert_returned_unsent!(environment, ledger, process, ORDERS);
}

#[tokio::test(start_paused = true)]
async fn acquired_lease_lasts_from_before_its_request() {
    let (environment, mut ledger) = (environment(), Ledger::default());
    environment.script.always(Call::Acquire, InjectedFault::Unreachable);
    let process = environment.start().await;
    ledger.create_orders(&process, ORDERS as usize).await;
    environment.script.clear();
    environment.script.always(Call::Renew, InjectedFault::Unreachable);
    environment.script.once(Call::Acquire, LATE);

    process.wait_until("the batch is claimed", TIMEOUT, async || process.depth().await.pending == 0).await;

    assert_returned_unsent!(environment, ledger, process, ORDERS);
}

#[tokio::test(start_paused = true)]
async fn renewed_lease_lasts_from_before_its_request() {
    let (environment, mut ledger) = (environment(), Ledger::default());
    let process = environment.start().await;
    process.advance(Duration::from_secs(1)).await;
    environment.script.once(Call::Renew, LATE);
    environment.script.always(Call::Renew, InjectedFault::Unreachable);
    let is_renewing = async || !environment.script.injected().is_empty();
    process.wait_until("the renewal is sent", TIMEOUT, is_renewing).await;
    process.advance(Duration::from_millis(9_500) + SHORTLY).await;

    ledger.create_order(&process).await;
    process.wait_until("the batch is claimed", TIMEOUT, async || process.depth().await.pending == 0).await;

    assert_returned_unsent!(environment, ledger, process, 1);
}
