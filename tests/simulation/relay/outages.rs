//! The broker is down for an hour while orders continue: no attempt is lost, no row is parked, and the backlog drains soon after.
use std::time::Duration;

use domain::Status;
use kit::faults::{Call, InjectedFault};
use ports::outbox::RowStatus;

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::{Process, TIMEOUT};
use crate::support::record_faults::RecordFault;

const HOUR: u64 = 3_600;

/// Creates one order a minute for an hour, and changes its status once.
async fn create_orders_for_an_hour(process: &Process, ledger: &mut Ledger) {
    for _ in 0..HOUR / 60 {
        let id = ledger.create_order(process).await;
        process.advance(Duration::from_secs(30)).await;
        ledger.change_status(process, id, Status::Processing).await;
        process.advance(Duration::from_secs(30)).await;
    }
}

async fn assert_attempts_at_most(process: &Process, attempts_most: u32) {
    assert_eq!(process.health().breaker, "open");
    assert_eq!(process.depth().await.parked, 0);
    for status in [RowStatus::Pending, RowStatus::Failed, RowStatus::InFlight] {
        for row in process.rows(status).await {
            assert!(row.retry_count <= attempts_most, "{row:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_hour_without_a_broker_costs_no_attempt_and_the_backlog_drains_in_30_s() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    environment.script.always(Call::Publish, InjectedFault::Unreachable);

    create_orders_for_an_hour(&process, &mut ledger).await;
    assert_attempts_at_most(&process, 0).await;
    environment.script.clear();
    process.wait_until_drained(TIMEOUT).await;

    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_aborts_costs_no_more_attempts_than_it_takes_to_open_the_breaker() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    environment.record_faults.add(usize::MAX, RecordFault::AbortBatch, |_| true);

    create_orders_for_an_hour(&process, &mut ledger).await;
    assert_attempts_at_most(&process, environment.options.breaker.failures).await;
    environment.record_faults.clear();
    process.wait_until_drained(TIMEOUT).await;

    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_lost_publish_replies_loses_and_duplicates_no_event() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    environment.script.always(Call::Publish, InjectedFault::UnknownNotDone);

    create_orders_for_an_hour(&process, &mut ledger).await;
    assert_attempts_at_most(&process, environment.options.breaker.failures).await;
    environment.script.clear();
    process.wait_until_drained(TIMEOUT).await;

    ledger.assert_guarantees(&process).await;
}

/// The breaker's pause is 20 s, and a heartbeat takes 3 s.
#[tokio::test(start_paused = true)]
async fn a_broker_that_shows_its_return_is_tried_at_once() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    environment.script.always(Call::Publish, InjectedFault::UnknownNotDone);
    ledger.create_orders(&process, 12).await;
    process.wait_until("the breaker opens", TIMEOUT, async || process.health().breaker == "open").await;

    // Still away: the probe fails, and the pause begins again.
    environment.script.signal_broker_recovery();
    process.advance(Duration::from_secs(1)).await;
    assert_eq!(process.health().breaker, "open");
    environment.script.clear();
    process.advance(Duration::from_secs(1)).await;
    assert_eq!(process.health().breaker, "open", "nothing shows that it is back");
    environment.script.signal_broker_recovery();
    process.wait_until_drained(Duration::from_millis(1_500)).await;

    assert_eq!(process.health().breaker, "closed");
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_starts_without_a_broker_sends_once_the_broker_is_up() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    for call in [Call::Watermark, Call::OpenSession, Call::Fence, Call::Publish, Call::Append] {
        environment.script.always(call, InjectedFault::Unreachable);
    }
    let process = environment.start().await;
    ledger.create_orders(&process, 20).await;
    process.advance(Duration::from_secs(600)).await;
    assert_eq!(process.depth().await.pending, 20);

    environment.script.clear();
    process.wait_until_drained(TIMEOUT).await;

    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn an_hour_without_the_relays_store_calls_loses_no_event() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    for call in [Call::Claim, Call::Settle, Call::Resolve, Call::Acquire, Call::Heartbeat, Call::Renew] {
        environment.script.always(call, InjectedFault::Unreachable);
    }

    create_orders_for_an_hour(&process, &mut ledger).await;
    environment.script.clear();
    process.wait_until_drained(TIMEOUT).await;

    ledger.assert_guarantees(&process).await;
}
