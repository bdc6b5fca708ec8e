//! `posthaste bench held` on PostgreSQL and Kafka: a transaction that stays open delays no event of others.
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::process::{command, finish};

#[test]
fn no_event_is_lost_while_another_transaction_stays_open() {
    let backend = Backend::new();
    let arguments = ["bench", "held", "--rate", "40", "--clients", "4", "--time", "1s", "--rounds", "1", "--json"];
    let (code, stdout, stderr) = finish(&mut command(&backend, &arguments));

    assert_eq!(code, 0, "{stderr}");
    let records: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    let runs: Vec<&Value> =
        records.iter().filter(|record| record["bench"] == "held").map(|record| &record["figures"]).collect();
    assert_eq!(runs.len(), 4, "one without and three with a transaction: {stdout}");
    for run in runs {
        assert!(run["claim_mean_ms"].as_f64().is_some_and(|mean| mean > 0.0), "{run}");
        let checked = &run["checked"][0];
        let faults = ["missing", "duplicates", "order_violations"].map(|fault| checked[fault].as_u64());
        assert_eq!(faults, [Some(0); 3], "{run}");
        assert!(checked["events"].as_u64().is_some_and(|events| events > 50), "{run}");
    }
}
