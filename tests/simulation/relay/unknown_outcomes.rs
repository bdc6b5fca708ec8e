//! Lost replies: for every call, whether it was done or not, the relay resolves the outcome.
use actors::ProducerSlots;
use domain::Status;
use kit::faults::{Call, InjectedFault};

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::TIMEOUT;
use crate::support::record_faults::RecordFault;

/// Loses two replies of this call, in a scenario with refusals and a lost producer session, so that each kind of call is made.
async fn lose_two_replies(call: Call, injected_fault: InjectedFault) {
    lose_two_replies_in(Environment::new(), call, injected_fault).await;
}

async fn lose_two_replies_in(environment: Environment, call: Call, injected_fault: InjectedFault) {
    let mut ledger = Ledger::default();
    environment.script.times(2, call, injected_fault);
    // More than one cycle can take: the exclusions of one batch are one call.
    environment.record_faults.add(16, RecordFault::RefuseTransient, |_| true);
    if call == Call::Resolve || call == Call::Fence {
        environment.script.times(2, Call::Publish, InjectedFault::SessionLost);
    }
    let process = environment.start().await;

    let ids = ledger.create_orders(&process, 12).await;
    for to in [Status::Processing, Status::Shipped] {
        for id in &ids {
            ledger.change_status(&process, *id, to).await;
        }
    }
    process.wait_until_drained(TIMEOUT * 2).await;

    assert_eq!(
        environment.script.injected().iter().filter(|met| **met == (call, injected_fault)).count(),
        2,
        "{call:?} {injected_fault:?}"
    );
    ledger.assert_guarantees(&process).await;
}

async fn lose_replies(call: Call) {
    for injected_fault in [InjectedFault::UnknownDone, InjectedFault::UnknownNotDone, InjectedFault::Unreachable] {
        lose_two_replies(call, injected_fault).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_publish_with_a_lost_reply_appears_once_whether_it_was_done_or_not() {
    lose_replies(Call::Publish).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_producer_session_is_reopened_and_its_claims_are_resolved() {
    lose_two_replies(Call::Publish, InjectedFault::SessionLost).await;
}

/// Two producer sessions alternate: one of them is lost, twice, while the other continues.
#[tokio::test(start_paused = true)]
async fn a_lost_session_of_two_alternating_ones_is_replaced_and_its_claims_resolved() {
    for slots in [1, 2, 3] {
        for injected_fault in [InjectedFault::SessionLost, InjectedFault::UnknownDone, InjectedFault::UnknownNotDone] {
            let mut environment = Environment::new();
            environment.options.producers = ProducerSlots::Shared(slots);
            lose_two_replies_in(environment, Call::Publish, injected_fault).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_with_a_lost_reply_is_resolved() {
    lose_replies(Call::Claim).await;
}

#[tokio::test(start_paused = true)]
async fn an_exclusion_with_a_lost_reply_aborts_the_batch() {
    lose_replies(Call::Exclude).await;
}

#[tokio::test(start_paused = true)]
async fn a_settlement_with_a_lost_reply_is_repeated() {
    lose_replies(Call::Settle).await;
}

#[tokio::test(start_paused = true)]
async fn a_resolution_with_a_lost_reply_is_repeated() {
    lose_replies(Call::Resolve).await;
}

#[tokio::test(start_paused = true)]
async fn a_fence_with_a_lost_reply_is_repeated_until_it_succeeds() {
    lose_replies(Call::Fence).await;
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_with_a_lost_reply_is_repeated() {
    lose_replies(Call::Acquire).await;
}

#[tokio::test(start_paused = true)]
async fn a_watermark_read_and_a_session_open_with_a_lost_reply_are_repeated() {
    for call in [Call::Watermark, Call::OpenSession] {
        lose_replies(call).await;
    }
}

/// At least once, a batch that stays open is published again: a settlement is repeated before its session ends.
#[tokio::test(start_paused = true)]
async fn settlement_that_fails_is_repeated_and_leaves_no_batch_open() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    (environment.options.partitions, environment.options.relay.defers_settlement) = (1, false);
    environment.script.times(4, Call::Settle, InjectedFault::Unreachable);
    let process = environment.start().await;

    ledger.create_order(&process).await;
    process.wait_until_drained(TIMEOUT).await;

    assert_eq!(environment.script.injected().len(), 4);
    assert_eq!(process.metrics.outbox_lease_reclaimed_total.get(), 0, "no batch had to be resolved");
    ledger.assert_guarantees(&process).await;
}
