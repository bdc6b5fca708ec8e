//! `posthaste chaos` as an operator runs it: the program's own processes and actors, killed and restarted under load.
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::process::run;

/// With this seed the first seconds bring kills, panics, a stop and a restart, and no process is frozen for long.
const SEED: &str = "6";

#[test]
fn chaos_injects_faults_under_load_and_finds_that_every_guarantee_held() {
    let backend = Backend::new();
    let settings = backend.settings();
    let store = settings.iter().find(|(name, _)| *name == "POSTHASTE__STORE__KIND").map(|(_, kind)| kind.as_str());
    let instances = if store.is_some() { "2" } else { "1" };
    let arguments = ["chaos", "--time", "16s", "--seed", SEED, "--instances", instances, "--json"];

    let (code, stdout, stderr) = run(&backend, &arguments);

    let result: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
    let figures = &result["figures"];
    assert_eq!((code, &figures["violations"]), (0, &json!([])), "{figures} {stderr}");
    let [panics, kills] = ["panic", "kill"].map(|kind| figures["faults"][kind].as_u64().expect("a count"));
    assert!(panics > 0 && kills > 0, "{figures}");
    let [orders, events] =
        [&figures["orders"], &figures["checked"]["events"]].map(|count| count.as_u64().expect("a count"));
    assert!(orders > 0 && events == 4 * orders, "a create and three changes of each order: {figures}");
    let [http, sql, rolled_back] =
        ["http", "sql", "rolledBack"].map(|kind| figures["foreign"][kind].as_u64().expect("a count"));
    assert!(http > 0 && figures["checked"]["externalEvents"] == http + sql, "{figures}");
    assert_eq!((sql > 0, rolled_back > 0), (store == Some("postgres"), store == Some("postgres")), "{figures}");
}
