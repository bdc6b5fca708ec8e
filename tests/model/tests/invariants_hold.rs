//! The invariants hold in every state of each configuration.
//!
//! `POSTHASTE_MODEL_LARGER=n` permits n more crashes and n more expiries in each configuration; `POSTHASTE_MODEL_STATES=n` limits the states
//! of each search, which then need not be exhaustive. Needs some 300 bytes for each state.
use model::configuration::{Configuration, Faults};
use model::configurations::*;
use model::search::search;

/// The default limit of each search, several times above what the configurations have.
const STATES_MAX: usize = 5_000_000;

fn number(variable: &str) -> Option<usize> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

fn assert_invariants_hold(configurations: impl IntoIterator<Item = Configuration>) {
    let more = number("POSTHASTE_MODEL_LARGER").unwrap_or(0) as u8;
    let limit = number("POSTHASTE_MODEL_STATES");
    for mut config in configurations {
        config.faults.crashes += more;
        config.faults.expiries += more;
        let outcome = search(&config, limit.unwrap_or(STATES_MAX));
        let (name, faults) = (config.name, faults(&config));
        let (states, steps, depth) = (outcome.states, outcome.steps, outcome.depth);
        eprintln!("{name} ({faults}): {states} states, {steps} steps, depth {depth}, {:?}", outcome.elapsed);
        if let Some(example) = outcome.counterexample {
            panic!("{name} ({faults}): {example}");
        }
        assert!(outcome.is_exhaustive || limit.is_some(), "{name} ({faults}) has more than {STATES_MAX} states");
    }
}

/// The permitted faults, without those that do not happen.
fn faults(config: &Configuration) -> String {
    let text = format!("{:?}", config.faults);
    let inner = text.trim_start_matches("Faults { ").trim_end_matches(" }");
    inner.split(", ").filter(|fault| !fault.ends_with(": 0")).collect::<Vec<_>>().join(", ")
}

#[test]
fn invariants_hold_in_one_partition_with_two_owners() {
    assert_invariants_hold([
        one_partition(Faults { crashes: 1, expiries: 1, refusals: 1, lost_replies: 1, ..NO_FAULTS }),
        one_partition(Faults { expiries: 1, panics: 1, handovers: 1, refusals: 1, ..NO_FAULTS }),
        one_partition(Faults { expiries: 1, timeouts: 1, lost_replies: 1, panics: 1, ..NO_FAULTS }),
        one_partition(Faults { expiries: 1, refusals: 1, slow_claims: 1, operator_calls: 2, ..NO_FAULTS }),
    ]);
}

#[test]
fn invariants_hold_while_statements_execute_late() {
    assert_invariants_hold([
        one_partition(Faults { late_statements: 2, refusals: 1, ..NO_FAULTS }),
        one_partition(Faults { late_statements: 1, crashes: 1, expiries: 1, ..NO_FAULTS }),
        one_partition(Faults { late_statements: 1, expiries: 1, refusals: 1, ..NO_FAULTS }),
        skipped_head(Faults { late_statements: 1, expiries: 1, ..NO_FAULTS }),
        parked_head(Faults { late_statements: 1, crashes: 1, ..NO_FAULTS }),
    ]);
}

/// The other searches leave out statements that can change nothing any more. Here they stay, and execute.
#[test]
fn stale_statements_that_execute_late_change_nothing() {
    let expiry = Faults { late_statements: 1, expiries: 1, ..NO_FAULTS };
    let all = [
        one_partition(expiry),
        one_partition(Faults { refusals: 1, ..expiry }),
        one_partition(Faults { handovers: 1, ..expiry }),
        one_partition(Faults { late_statements: 1, rewinds: 1, ..NO_FAULTS }),
    ];
    assert_invariants_hold(all.map(|config| Configuration { drops_stale_statements: false, ..config }));
}

#[test]
fn invariants_hold_for_late_committers_and_remembered_scan_starts() {
    assert_invariants_hold([
        late_committers(Faults { crashes: 1, expiries: 1, ..NO_FAULTS }),
        late_committers(Faults { refusals: 2, handovers: 1, ..NO_FAULTS }),
        late_committers(Faults { slow_claims: 1, operator_calls: 1, expiries: 1, ..NO_FAULTS }),
    ]);
}

#[test]
fn invariants_hold_for_cycles_of_two_partitions_and_two_producers() {
    assert_invariants_hold([
        two_partitions(Faults { crashes: 1, ..NO_FAULTS }),
        two_partitions(Faults { expiries: 1, refusals: 1, ..NO_FAULTS }),
        two_partitions(Faults { lost_replies: 1, panics: 1, ..NO_FAULTS }),
        two_partitions(Faults { late_statements: 1, ..NO_FAULTS }),
        two_producers(Faults { crashes: 1, expiries: 1, ..NO_FAULTS }),
        shared_producer(Faults { crashes: 1, expiries: 1, ..NO_FAULTS }),
    ]);
}

#[test]
fn invariants_hold_when_the_store_is_rewound() {
    assert_invariants_hold([
        one_partition(Faults { rewinds: 1, crashes: 1, ..NO_FAULTS }),
        one_partition(Faults { rewinds: 1, refusals: 1, ..NO_FAULTS }),
        one_partition(Faults { rewinds: 1, expiries: 1, ..NO_FAULTS }),
        two_producers(Faults { rewinds: 1, ..NO_FAULTS }),
    ]);
}

#[test]
fn invariants_hold_in_at_least_once_mode() {
    assert_invariants_hold([
        at_least_once(Faults { crashes: 1, refusals: 1, expiries: 1, ..NO_FAULTS }),
        at_least_once(Faults { lost_replies: 1, late_statements: 1, expiries: 1, ..NO_FAULTS }),
    ]);
}

#[test]
fn poison_is_parked_and_healthy_events_are_not() {
    assert_invariants_hold([
        poison(Faults { crashes: 1, expiries: 1, ..NO_FAULTS }),
        poison_elsewhere(Faults { crashes: 1, ..NO_FAULTS }),
        one_event(Faults { crashes: 1, expiries: 4, ..NO_FAULTS }),
    ]);
}
