//! Answers that are lost: whatever the call was and whether it was done or not, the relay finds out and does not guess.
use domain::Status;
use kit::faults::{Call, InjectedFault};

use crate::house::House;
use crate::ledger::Ledger;
use crate::life::SOON;
use crate::moody::Mood;

/// Two answers of this kind are lost, in a life with refusals and a lost lane, so that each kind of call is made.
async fn two_answers_are_lost(call: Call, mishap: InjectedFault) {
    let (house, mut ledger) = (House::new(), Ledger::default());
    house.script.times(2, call, mishap);
    house.moods.add(4, Mood::RefuseForNow, |_| true);
    if call == Call::Resolve || call == Call::Fence {
        house.script.times(2, Call::Publish, InjectedFault::SessionLost);
    }
    let life = house.start().await;

    let ids = ledger.place_many(&life, 12).await;
    for to in [Status::Processing, Status::Shipped] {
        for id in &ids {
            ledger.step(&life, *id, to).await;
        }
    }
    life.drained(SOON * 2).await;

    assert_eq!(house.script.injected().iter().filter(|met| **met == (call, mishap)).count(), 2, "{call:?} {mishap:?}");
    ledger.laws(&life).await;
}

async fn lost_either_way(call: Call) {
    for mishap in [InjectedFault::UnknownDone, InjectedFault::UnknownNotDone, InjectedFault::Unreachable] {
        two_answers_are_lost(call, mishap).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_publish_whose_answer_is_lost_stands_once_whether_it_was_done_or_not() {
    lost_either_way(Call::Publish).await;
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_is_lost_is_opened_anew_and_its_claims_are_resolved() {
    two_answers_are_lost(Call::Publish, InjectedFault::SessionLost).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_is_lost_is_resolved() {
    lost_either_way(Call::Claim).await;
}

#[tokio::test(start_paused = true)]
async fn an_exclusion_whose_answer_is_lost_aborts_the_batch() {
    lost_either_way(Call::Exclude).await;
}

#[tokio::test(start_paused = true)]
async fn a_settlement_whose_answer_is_lost_is_repeated() {
    lost_either_way(Call::Settle).await;
}

#[tokio::test(start_paused = true)]
async fn a_resolution_whose_answer_is_lost_is_repeated() {
    lost_either_way(Call::Resolve).await;
}

#[tokio::test(start_paused = true)]
async fn a_fence_whose_answer_is_lost_is_repeated_until_it_succeeds() {
    lost_either_way(Call::Fence).await;
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_whose_answer_is_lost_is_asked_for_again() {
    lost_either_way(Call::Acquire).await;
}

#[tokio::test(start_paused = true)]
async fn a_watermark_and_a_lane_that_do_not_answer_are_asked_for_again() {
    for call in [Call::Watermark, Call::OpenSession] {
        lost_either_way(call).await;
    }
}
