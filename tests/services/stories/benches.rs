//! Benches that need PostgreSQL: they end, print their figures, and lose no event.
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::endpoint::{Endpoint, EndpointResponse};
use crate::harness::process::{command, finish};

/// The figures of a part of a bench.
fn figures(backend: &Backend, arguments: &[&str], part: &str) -> Vec<Value> {
    let arguments = [&["bench"], arguments, &["--time", "1s", "--rounds", "1", "--json"]].concat();
    let (code, stdout, stderr) = finish(&mut command(backend, &arguments));
    assert_eq!(code, 0, "{stderr}");
    let records = stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object a line"));
    records.filter(|record| record["bench"] == part).map(|mut record| record["figures"].take()).collect()
}

#[test]
fn events_published_from_sql_are_compared_with_plain_inserts() {
    let backend = Backend::new();

    let rates = figures(&backend, &["publish"], "publish");

    let connections: Vec<u64> = rates.iter().filter_map(|one| one["connections"].as_u64()).collect();
    assert_eq!(connections, [4, 64]);
    for one in rates {
        assert!(one["publishedToInserted"].as_f64().is_some_and(|share| share > 0.0), "{one}");
    }
}

#[test]
fn no_event_is_lost_while_another_transaction_stays_open() {
    let backend = Backend::new();
    let runs = figures(&backend, &["held", "--rate", "40", "--clients", "4"], "held");

    assert_eq!(runs.len(), 4, "one without and three with a transaction");
    for run in runs {
        assert!(run["claimMeanMs"].as_f64().is_some_and(|mean| mean > 0.0), "{run}");
        assert!(run["answeredPerS"].as_f64().is_some_and(|rate| rate > 0.0 && rate <= 41.0), "{run}");
        let checked = &run["checked"][0];
        let faults = ["missing", "duplicates", "orderViolations"].map(|fault| checked[fault].as_u64());
        assert_eq!(faults, [Some(0); 3], "{run}");
        assert!(checked["events"].as_u64().is_some_and(|events| events > 0), "{run}");
    }
}

#[test]
fn bench_keeps_the_topics_of_other_programs_and_calls_none_of_their_endpoints() {
    let backend = Backend::new();
    let endpoint = Endpoint::start(EndpointResponse::Status(200));
    let (topic, folder) = (backend.topic("invoices"), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("posthaste.toml");
    let rules = format!("[topics.{topic:?}]\nconsumers = 1\nconsumer_url = {:?}\n", endpoint.url());
    std::fs::write(&file, rules).expect("written");
    let run = |arguments: &[&str]| {
        let mut configured = command(&backend, arguments);
        configured.arg("--config").arg(&file).env("POSTHASTE__BROKER__TOPICS", backend.topic("customers"));
        configured.env("POSTHASTE__CONSUMER__HANDLER__ORDER_CREATED", "post");
        configured.env("POSTHASTE__CONSUMER__URL__ORDER_CREATED", endpoint.url());
        let (code, _, stderr) = finish(&mut configured);
        assert_eq!(code, 0, "{stderr}");
    };
    run(&["migrate", "up"]);
    for topic in ["customers", "invoices"] {
        backend.append_record(topic, "key", "kept");
    }

    run(&["bench", "create", "--time", "1s", "--rounds", "1", "--clients", "2"]);

    assert_eq!(endpoint.received().len(), 0, "no order of the bench and no invoice");
    for topic in ["customers", "invoices"] {
        assert_eq!(backend.read(topic).len(), 1, "{topic}");
    }
}
