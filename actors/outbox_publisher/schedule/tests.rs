//! The schedule's rules, one by one.
use ports::outbox::ClaimKind;
use ports::partitions::PartitionNo;

use crate::outbox_publisher::schedule::partition_schedule::{Schedule, Selection};
use crate::partition_worker::report::RunEnd;

const A: PartitionNo = PartitionNo(1);
const B: PartitionNo = PartitionNo(2);
const C: PartitionNo = PartitionNo(3);

#[test]
fn every_partition_runs_once_before_any_runs_twice() {
    let mut schedule = Schedule::default();
    for partition in [A, B, C, A] {
        schedule.wake(partition);
    }
    assert_eq!(schedule.next(1, Selection::All), Some((A, ClaimKind::Ordinary)));
    schedule.wake(A);
    assert_eq!(schedule.next(1, Selection::All), None, "no more than asked");
    assert!(schedule.record_end(A, RunEnd::Resolved), "it was woken while it ran");
    schedule.wake(A);

    let turns: Vec<_> = (0..3)
        .filter_map(|_| {
            let (partition, _) = schedule.next(1, Selection::All)?;
            schedule.record_end(partition, RunEnd::Resolved);
            Some(partition)
        })
        .collect();
    assert_eq!(turns, [B, C, A]);
    assert!(!schedule.is_waiting());
}

#[test]
fn between_cycles_only_partitions_with_full_batches_run() {
    let mut schedule = Schedule::default();
    schedule.wake(A);
    schedule.wake_full(B);
    schedule.wake(C);

    assert_eq!(schedule.next(16, Selection::Full), Some((B, ClaimKind::Ordinary)));
    assert_eq!(schedule.next(16, Selection::Full), None);
    schedule.wake_full(B);
    assert!(schedule.record_end(B, RunEnd::Resolved), "it was woken while it ran");
    schedule.wake_full(B);

    let order: Vec<_> = (0..3).filter_map(|_| Some(schedule.next(16, Selection::All)?.0)).collect();
    assert_eq!(order, [A, C, B], "a cycle takes them in the order in which they wait");
    schedule.record_end(B, RunEnd::Resolved);
    schedule.wake(B);
    assert_eq!(schedule.next(16, Selection::Full), None, "its last batch was not full");
}

#[test]
fn nothing_else_runs_during_a_trial() {
    let mut schedule = Schedule::default();
    schedule.wake(A);
    schedule.next(16, Selection::All);
    schedule.request_trial(B);
    schedule.wake(C);

    assert_eq!(schedule.next(16, Selection::All), None, "others still run");
    schedule.record_end(A, RunEnd::Resolved);
    assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Trial)));
    assert_eq!(schedule.next(16, Selection::All), None, "nothing runs during it");
    schedule.record_end(B, RunEnd::Resolved);
    assert_eq!(schedule.next(16, Selection::All), Some((C, ClaimKind::Ordinary)));
    assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Ordinary)));
}

#[test]
fn acknowledged_batch_is_settled_by_the_next_claim_or_without_one() {
    let mut schedule = Schedule::default();
    for partition in [A, B] {
        schedule.wake(partition);
        schedule.next(16, Selection::All);
        schedule.record_end(partition, RunEnd::Unsettled);
    }
    assert!(!schedule.is_waiting());
    schedule.wake(A);
    assert_eq!(schedule.next(16, Selection::All), Some((A, ClaimKind::Ordinary)));
    assert_eq!(schedule.next(16, Selection::All), None, "B has no rows that are due");

    assert_eq!(schedule.next_unsettled(1), None, "no more than asked");
    assert_eq!(schedule.next_unsettled(16), Some(B));
    assert_eq!(schedule.next_unsettled(16), None, "the run of A settles it");
    assert!(!schedule.record_end(B, RunEnd::Resolved));
    schedule.record_end(A, RunEnd::Resolved);
    assert_eq!(schedule.next_unsettled(16), None);
}

#[test]
fn partition_that_only_settles_keeps_its_turn() {
    let mut schedule = Schedule::default();
    schedule.wake(A);
    schedule.next(16, Selection::All);
    schedule.record_end(A, RunEnd::Unsettled);
    schedule.wake(A);

    assert_eq!(schedule.next_unsettled(16), Some(A));
    assert_eq!(schedule.next(16, Selection::All), None, "it runs");
    assert!(schedule.record_end(A, RunEnd::Resolved), "it runs again");
}

#[test]
fn trial_waits_until_acknowledged_batches_are_settled() {
    let mut schedule = Schedule::default();
    schedule.wake(A);
    schedule.next(16, Selection::All);
    schedule.request_trial(B);
    schedule.record_end(A, RunEnd::Unsettled);
    schedule.wake(A);

    assert_eq!(schedule.next(16, Selection::All), None, "a batch of A is open");
    assert_eq!(schedule.next_unsettled(16), Some(A));
    assert_eq!(schedule.next(16, Selection::All), None, "A runs");
    schedule.record_end(A, RunEnd::Resolved);
    assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Trial)));
}

#[test]
fn batch_of_a_partition_that_is_handed_over_is_open_until_the_end_of_the_handover() {
    let mut schedule = Schedule::default();
    schedule.wake(A);
    schedule.next(16, Selection::All);
    schedule.record_end(A, RunEnd::Unsettled);
    schedule.request_trial(B);
    schedule.remove(A);

    assert_eq!(schedule.next_unsettled(16), None, "its handover settles it");
    assert_eq!(schedule.next(16, Selection::All), None);
    schedule.mark_resolved(A);
    assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Trial)));
}

/// The run that the handover waits for ends after the partition was forgotten.
#[test]
fn batch_that_ends_during_its_handover_blocks_no_trial_afterwards() {
    let mut schedule = Schedule::default();
    schedule.wake(A);
    schedule.next(16, Selection::All);
    schedule.request_trial(B);
    schedule.remove(A);
    schedule.record_end(A, RunEnd::Unsettled);
    assert_eq!(schedule.next(16, Selection::All), None, "the handover settles it");

    schedule.mark_resolved(A);
    schedule.wake(A);
    assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Trial)));
    schedule.record_end(B, RunEnd::Resolved);
    schedule.next(16, Selection::All);
    schedule.remove_foreign(A);
    schedule.next(16, Selection::All);
    schedule.record_end(B, RunEnd::Resolved);
    schedule.request_trial(C);
    assert_eq!(schedule.next(16, Selection::All), Some((C, ClaimKind::Trial)));
}

#[test]
fn batch_that_is_reported_after_its_handover_blocks_no_trial() {
    let mut schedule = Schedule::default();
    schedule.wake(A);
    schedule.next(16, Selection::All);
    schedule.request_trial(B);
    schedule.remove(A);
    schedule.mark_resolved(A);
    schedule.record_end(A, RunEnd::Unsettled);

    assert_eq!(schedule.next_unsettled(16), Some(A));
    schedule.remove_foreign(A);
    assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Trial)));
}

#[test]
fn a_forgotten_partition_does_not_run() {
    let mut schedule = Schedule::default();
    schedule.wake(A);
    schedule.request_trial(A);
    schedule.remove(A);
    assert_eq!(schedule.next(16, Selection::All), None);
}

/// Starts a trial of B with nothing else waiting.
fn schedule_with_trial() -> Schedule {
    let mut schedule = Schedule::default();
    schedule.request_trial(B);
    assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Trial)));
    schedule
}

#[test]
fn trial_waits_until_every_unknown_outcome_is_resolved_and_others_go_on() {
    let mut schedule = Schedule::default();
    schedule.wake(A);
    schedule.next(16, Selection::All);
    schedule.request_trial(B);
    schedule.record_end(A, RunEnd::Unresolved);

    assert_eq!(schedule.next(16, Selection::All), None, "a batch of A may be open");
    schedule.wake(C);
    assert_eq!(
        schedule.next(16, Selection::All),
        Some((C, ClaimKind::Ordinary)),
        "it does not wait for the broker of A"
    );
    schedule.wake(A);
    assert_eq!(schedule.next(16, Selection::All), Some((A, ClaimKind::Ordinary)));
    schedule.record_end(A, RunEnd::Resolved);
    assert_eq!(schedule.next(16, Selection::All), None, "C still runs");
    schedule.record_end(C, RunEnd::Resolved);
    assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Trial)));
}

#[test]
fn nothing_else_runs_until_a_trial_with_an_unknown_outcome_is_resolved() {
    let mut schedule = schedule_with_trial();
    schedule.wake(A);
    schedule.record_end(B, RunEnd::Unresolved);

    assert_eq!(schedule.next(16, Selection::All), None, "B pauses after its failure");
    schedule.wake(B);
    assert_eq!(schedule.next(16, Selection::All), Some((B, ClaimKind::Ordinary)), "the run that resolves");
    assert_eq!(schedule.next(16, Selection::All), None);
    schedule.record_end(B, RunEnd::Unresolved);
    assert_eq!(schedule.next(16, Selection::All), None, "the broker is still away");
    schedule.wake(B);
    schedule.next(16, Selection::All);
    schedule.record_end(B, RunEnd::Resolved);
    assert_eq!(schedule.next(16, Selection::All), Some((A, ClaimKind::Ordinary)));
}

#[test]
fn trial_blocks_nothing_after_its_partition_moved_to_another_instance() {
    let mut schedule = schedule_with_trial();
    schedule.wake(A);
    schedule.record_end(B, RunEnd::Unresolved);
    schedule.remove(B);
    assert_eq!(schedule.next(16, Selection::All), None, "the handover has begun, and not ended");

    schedule.mark_resolved(B);

    assert_eq!(schedule.next(16, Selection::All), Some((A, ClaimKind::Ordinary)));
}

#[test]
fn run_that_did_not_begin_changes_nothing_that_is_unresolved() {
    let mut schedule = schedule_with_trial();
    schedule.cancel_run(B);
    schedule.wake(A);
    assert_eq!(schedule.next(16, Selection::All), Some((A, ClaimKind::Ordinary)), "the trial did not begin");

    schedule.record_end(A, RunEnd::Unresolved);
    schedule.wake(A);
    schedule.next(16, Selection::All);
    schedule.cancel_run(A);
    schedule.remove(B);
    schedule.request_trial(C);
    assert_eq!(schedule.next(16, Selection::All), None, "a batch of A may be open");
}
