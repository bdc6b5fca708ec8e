//! Each rule is needed: with it switched off, the search finds the damage. `POSTHASTE_MODEL_TRACE=1` prints the shortest way to it.
use model::configuration::{Configuration, Faults};
use model::configurations::*;
use model::invariants::BrokenRule::{self, *};
use model::invariants::Violation;
use model::search::search;

/// More than any of these searches needs.
const STATES_MAX: usize = 1_500_000;

/// Searches each configuration with its rule switched off, and expects damage.
fn assert_found(cases: impl IntoIterator<Item = (BrokenRule, Configuration)>) {
    let prints = std::env::var_os("POSTHASTE_MODEL_TRACE").is_some();
    let mut unnoticed = Vec::new();
    for (rule, config) in cases {
        let outcome = search(&config.breaking(rule), STATES_MAX);
        match outcome.counterexample {
            Some(example) => {
                let (steps, violation) = (example.steps.len(), example.violation);
                eprintln!(
                    "{rule:?}: {violation} after {steps} steps, {} states, {:?}",
                    outcome.states, outcome.elapsed
                );
                if prints {
                    eprintln!("{example}");
                }
            }
            None => unnoticed.push((rule, outcome.states, outcome.is_exhaustive)),
        }
    }
    assert!(unnoticed.is_empty(), "rules without which nothing breaks: {unnoticed:?}");
}

#[test]
fn each_rule_of_the_resolution_is_needed() {
    let expiry = Faults { expiries: 1, ..NO_FAULTS };
    assert_found([
        (NoFence, one_partition(expiry)),
        (WatermarkBeforeFence, one_partition(expiry)),
        (WatermarkBeforeLastStableOffset, one_partition(expiry)),
        (WatermarkOfAnotherId, one_partition(expiry)),
        (FormerIdReplacedAtAcquisition, one_partition(Faults { expiries: 2, crashes: 1, ..NO_FAULTS })),
        (ClaimRecordsNoId, one_partition(expiry)),
        (SecondProducerNotFenced, two_producers(expiry)),
        (ResolutionWithoutFence, one_partition(Faults { expiries: 1, late_statements: 1, panics: 1, ..NO_FAULTS })),
        (UnknownCommitMeansAborted, one_partition(Faults { lost_replies: 1, ..NO_FAULTS })),
        (ClaimSurvivesSession, one_partition(expiry)),
        (RestartWithoutFence, one_partition(Faults { panics: 1, ..NO_FAULTS })),
    ]);
}

#[test]
fn each_rule_of_settlement_and_exclusion_is_needed() {
    let (late, refusal) = (Faults { late_statements: 1, ..NO_FAULTS }, Faults { refusals: 1, ..NO_FAULTS });
    let handover = Faults { handovers: 1, ..NO_FAULTS };
    assert_found([
        (SettlementWithoutToken, one_partition(late)),
        (SettlementWithoutEpochAndToken, one_partition(Faults { expiries: 1, ..late })),
        (SettlementBeforeCommit, one_partition(NO_FAULTS)),
        (ExclusionAfterCommit, one_partition(Faults { crashes: 1, ..refusal })),
        (ExclusionKeepsToken, one_partition(Faults { rewinds: 1, ..refusal })),
        (UnansweredExclusionIgnored, one_partition(Faults { late_statements: 1, ..refusal })),
        (RowsReturnedInOpenTransaction, one_partition(handover)),
        (ReleaseWithOpenBatch, one_partition(handover)),
        (RowBecomesDueByTime, one_partition(Faults { expiries: 1, ..NO_FAULTS })),
    ]);
}

#[test]
fn each_rule_of_the_claim_is_needed() {
    let (refusal, expiry) = (Faults { refusals: 1, ..NO_FAULTS }, Faults { expiries: 1, ..NO_FAULTS });
    let operator = Faults { operator_calls: 1, slow_claims: 1, ..NO_FAULTS };
    assert_found([
        (ClaimDespiteOpenBatch, two_producers(NO_FAULTS)),
        (ClaimWithoutFence, one_partition(Faults { late_statements: 1, ..expiry })),
        (ClaimWithoutCounter, one_partition(operator)),
        (OperatorKeepsCounter, one_partition(operator)),
        (OperatorChangesRowInFlight, one_partition(Faults { operator_calls: 1, ..NO_FAULTS })),
        (BlockedKeyOvertaken, one_partition(refusal)),
        (ScanStartForgetsLateCommitters, one_partition(NO_FAULTS)),
        (ScanStartFromSequence, one_partition(NO_FAULTS)),
        (ScanStartKeptAfterUnblock, late_committers(refusal)),
        (ScanStartKeptAfterReturn, one_partition(Faults { handovers: 1, ..refusal })),
        (RefusedClaimKeepsItsRead, one_partition(expiry)),
    ]);
}

/// Epoch and counter protect each statement twice, so that some of these do no damage at once: the first wrong change is a violation.
#[test]
fn a_statement_of_a_former_owner_that_takes_effect_is_found() {
    let late = Faults { late_statements: 1, expiries: 1, ..NO_FAULTS };
    let refusal = Faults { refusals: 1, ..late };
    let handover = Faults { handovers: 1, ..late };
    let rewind = Faults { rewinds: 1, ..late };
    for (rule, config) in [
        (ClaimWithoutFence, one_partition(late)),
        (SettlementWithoutEpochAndToken, one_partition(late)),
        (StaleLeasePassesInCycle, two_partitions(late)),
        (ResolutionWithoutFence, one_partition(Faults { panics: 1, ..late })),
        (ExclusionWithoutFence, one_partition(refusal)),
        (ReleaseWithoutFence, one_partition(handover)),
        (CounterRaisedWithoutFence, one_partition(rewind)),
    ] {
        let config = Configuration { counts_prevention: true, ..config.breaking(rule) };
        let found = search(&config, STATES_MAX).counterexample.map(|example| example.violation);
        assert_eq!(found, Some(Violation::StaleStatementTookEffect), "{rule:?}");
    }
}

#[test]
fn each_rule_of_the_cycle_is_needed() {
    let expiry = Faults { expiries: 1, ..NO_FAULTS };
    assert_found([
        (StaleLeaseFailsCycle, two_partitions(expiry)),
        (StaleLeasePassesInCycle, two_partitions(expiry)),
        (ClaimStoredWithoutSettlement, one_partition(NO_FAULTS)),
        (ClaimReportedWithoutStore, one_partition(NO_FAULTS)),
    ]);
}

#[test]
fn each_rule_of_poison_isolation_is_needed() {
    assert_found([
        (DeathsNotCounted, poison(NO_FAULTS)),
        (TrialDuringOtherWork, poison_elsewhere(NO_FAULTS)),
        (TrialDuringOpenBatch, poison_elsewhere(Faults { crashes: 1, ..NO_FAULTS })),
        (ClaimDuringOpenTrial, poison_elsewhere(Faults { crashes: 1, ..NO_FAULTS })),
        (FencedClaimerCountsAsDead, one_event(Faults { expiries: 4, ..NO_FAULTS })),
    ]);
}

#[test]
fn each_rule_for_a_rewound_store_is_needed() {
    let rewind = Faults { rewinds: 1, ..NO_FAULTS };
    assert_found([
        (HigherWatermarkMeansPublished, one_partition(Faults { refusals: 1, ..rewind })),
        (CounterNotRaisedAfterRewind, one_partition(Faults { crashes: 1, ..rewind })),
        (IdsNotFencedAfterRewind, one_partition(Faults { crashes: 1, ..rewind })),
        (CounterRaisedBeforeFence, one_partition(Faults { crashes: 1, ..rewind })),
        (CounterRaisedBeforeLastStableOffset, one_partition(Faults { crashes: 1, ..rewind })),
        (TimelineRememberedInProcess, one_partition(Faults { crashes: 1, ..rewind })),
        (ScanStartKeptAfterRewind, one_partition(rewind)),
    ]);
}

#[test]
fn each_rule_of_at_least_once_mode_is_needed() {
    assert_found([
        (AtLeastOnceResolvesAsPublished, at_least_once(Faults { crashes: 1, ..NO_FAULTS })),
        (KeyContinuesBehindFailedRecord, at_least_once(Faults { refusals: 1, ..NO_FAULTS })),
        (KeyHasManyRecordsInFlight, at_least_once(NO_FAULTS)),
    ]);
}
