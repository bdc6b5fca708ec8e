//! The laws hold in every state of each configuration.
use model::configuration::{Configuration, Delivery, Event, Faults, Nature};
use model::search::search;

const NO_FAULT: Faults = Faults {
    crashes: 0,
    expiries: 0,
    timeouts: 0,
    lost_replies: 0,
    late_statements: 0,
    slow_claims: 0,
    refusals: 0,
    hand_overs: 0,
    panics: 0,
    operator_calls: 0,
    rewinds: 0,
};

fn event(partition: usize, key: usize, nature: Nature, is_committed: bool) -> Event {
    Event { partition, key, nature, is_committed }
}

fn one(faults: Faults) -> Configuration {
    let events = [event(0, 0, Nature::MayFail, true), event(0, 1, Nature::Healthy, false), event(0, 0, Nature::Healthy, true)];
    Configuration::new("one", 1, &events, faults)
}

fn check(config: Configuration) {
    let outcome = search(&config, 20_000_000);
    println!(
        "{}: {} states, {} steps, depth {}, {:?} exhaustive {}",
        config.name, outcome.states, outcome.steps, outcome.depth, outcome.elapsed, outcome.is_exhaustive
    );
    if let Some(example) = outcome.counterexample {
        panic!("{example}");
    }
}

#[test]
fn tries() {
    check(one(Faults { ..NO_FAULT }));
    check(one(Faults { crashes: 1, ..NO_FAULT }));
    check(one(Faults { expiries: 1, ..NO_FAULT }));
    check(one(Faults { refusals: 1, ..NO_FAULT }));
    check(one(Faults { late_statements: 1, ..NO_FAULT }));
    check(one(Faults { lost_replies: 1, timeouts: 1, ..NO_FAULT }));
    check(one(Faults { hand_overs: 1, panics: 1, ..NO_FAULT }));
    check(one(Faults { operator_calls: 1, slow_claims: 1, ..NO_FAULT }));
    check(one(Faults { crashes: 1, expiries: 1, ..NO_FAULT }));
    check(one(Faults { rewinds: 1, ..NO_FAULT }));
    check(Configuration { delivery: Delivery::AtLeastOnce, ..one(Faults { crashes: 1, refusals: 1, expiries: 1, ..NO_FAULT }) });
    check(Configuration { producers: 2, ..one(Faults { crashes: 1, ..NO_FAULT }) });
}
