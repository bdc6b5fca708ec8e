//! `posthaste chaos` as an operator runs it: the program's own processes and actors, killed and restarted under load.
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::process::run;

/// With this seed the first seconds bring kills, panics, a stop and a restart, and no process is frozen for long, with one instance and with two.
const SEED: &str = "387";

/// Shortest duration of the load, and the longest after which no run is repeated.
const SECONDS: (u64, u64) = (16, 128);

/// The figures of a run of so many seconds; `None` where a store that a busy machine slows down ended it.
fn chaos(backend: &Backend, instances: &str, seconds: u64) -> Option<Value> {
    let time = format!("{seconds}s");
    let arguments = ["chaos", "--time", &time, "--seed", SEED, "--instances", instances, "--json"];
    let (code, stdout, stderr) = run(backend, &arguments);
    if stdout.is_empty() && ["not reachable", "not available"].iter().any(|text| stderr.contains(text)) {
        return None;
    }
    let mut result: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
    let figures = result["figures"].take();
    assert_eq!((code, &figures["violations"]), (0, &json!([])), "{figures} {stderr}");
    Some(figures)
}

#[test]
fn chaos_injects_faults_under_load_and_finds_that_every_guarantee_held() {
    let backend = Backend::new();
    let settings = backend.settings();
    let store = settings.iter().find(|(name, _)| *name == "POSTHASTE__STORE__KIND").map(|(_, kind)| kind.as_str());
    let instances = if store.is_some() { "2" } else { "1" };
    let has_faults = |figures: &Value| ["panic", "kill"].iter().all(|kind| figures["faults"][kind].as_u64() > Some(0));

    // The starts of killed processes take most of the time on a busy machine: then a longer run has both faults.
    let runs = std::iter::successors(Some(SECONDS.0), |seconds| Some(2 * seconds).filter(|next| *next <= SECONDS.1));
    let figures = runs.filter_map(|seconds| chaos(&backend, instances, seconds)).find(has_faults);

    let figures = figures.expect("a run with a panic and a kill");
    let [orders, events] =
        [&figures["orders"], &figures["checked"]["events"]].map(|count| count.as_u64().expect("a count"));
    assert!(orders > 0 && events == 4 * orders, "a create and three changes of each order: {figures}");
    let [http, sql, rolled_back] =
        ["http", "sql", "rolledBack"].map(|kind| figures["foreign"][kind].as_u64().expect("a count"));
    assert!(http > 0 && figures["checked"]["externalEvents"] == http + sql, "{figures}");
    assert_eq!((sql > 0, rolled_back > 0), (store == Some("postgres"), store == Some("postgres")), "{figures}");
}
