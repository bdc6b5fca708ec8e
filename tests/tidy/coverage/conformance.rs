//! The conformance suites that each backend passes, and the cases that it skips: all of them are listed here, so that no check disappears
//! unnoticed.
use std::collections::BTreeMap;

use crate::source::sources;

/// File of the backend, and the case that does not apply to it.
const SKIPPED: &[(&str, &str)] = &[];

/// The suites that each backend passes. `$backend` stands for each backend of a macro.
const SUITES: &[(&str, &str, &[&str])] = &[
    ("src/adapters/kafka/tests/conformance.rs", "ExactlyOnce", &["broker", "consumer_groups", "topics"]),
    ("src/adapters/kafka/tests/conformance.rs", "Proxied", &["probe"]),
    (
        "src/adapters/postgres/tests/conformance.rs",
        "$backend",
        &[
            "orders",
            "outbox",
            "events",
            "operators",
            "redrives",
            "webhooks",
            "partitions",
            "inbox",
            "idempotency",
            "probe",
        ],
    ),
    (
        "src/adapters/redis/tests/shared_conformance.rs",
        "SharedBackend",
        &["idempotency", "cache", "rate_limit", "probe"],
    ),
    (
        "src/adapters/redis/tests/store_conformance.rs",
        "StoreBackend",
        &[
            "orders",
            "outbox",
            "events",
            "operators",
            "redrives",
            "webhooks",
            "partitions",
            "inbox",
            "idempotency",
            "probe",
        ],
    ),
    (
        "tests/kit/tests/embedded.rs",
        "$backend",
        &[
            "orders",
            "outbox",
            "events",
            "operators",
            "redrives",
            "webhooks",
            "partitions",
            "inbox",
            "broker",
            "consumer_groups",
            "topics",
            "idempotency",
            "cache",
            "rate_limit",
            "probe",
        ],
    ),
    (
        "tests/kit/tests/reference.rs",
        "Reference",
        &[
            "orders",
            "outbox",
            "events",
            "operators",
            "redrives",
            "webhooks",
            "partitions",
            "inbox",
            "broker",
            "consumer_groups",
            "topics",
            "idempotency",
            "cache",
            "rate_limit",
            "probe",
        ],
    ),
];

/// The case names in the `SKIPPED` lists of a file: the first text of each pair.
fn skipped_in(text: &str) -> Vec<String> {
    let lists = text.split("const SKIPPED: &'static [(&'static str, &'static str)] = &[").skip(1);
    let pairs = lists.filter_map(|list| list.split("];").next()).flat_map(|list| list.split('(').skip(1));
    pairs.filter_map(|pair| pair.split('"').nth(1)).map(str::to_owned).collect()
}

/// The suites that a file runs, by backend.
fn suites_in(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut suites = BTreeMap::<&str, Vec<&str>>::new();
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("conformance_suite!(")?.strip_suffix(");"));
    for (suite, backend) in lines.filter_map(|arguments| arguments.split_once(", ")) {
        suites.entry(backend).or_default().push(suite);
    }
    suites
}

#[test]
fn every_backend_passes_the_conformance_suites_that_are_listed() {
    let sources = sources();
    let found: Vec<_> = sources
        .iter()
        .flat_map(|(path, text)| suites_in(text).into_iter().map(move |(backend, suites)| (&**path, backend, suites)))
        .collect();

    let listed: Vec<_> = SUITES.iter().map(|(path, backend, suites)| (*path, *backend, suites.to_vec())).collect();
    assert_eq!(found, listed);
}

#[test]
fn every_skipped_conformance_case_is_listed_and_exists() {
    let sources = sources();
    let mut found = Vec::new();
    for (path, text) in sources.iter().filter(|(path, _)| path != "tests/tidy/coverage/conformance.rs") {
        found.extend(skipped_in(text).into_iter().map(|case| (path.as_str(), case)));
    }

    let listed: Vec<(&str, String)> = SKIPPED.iter().map(|(path, case)| (*path, (*case).to_owned())).collect();
    assert_eq!(found, listed);
    for (_, case) in SKIPPED {
        let defines = |text: &str| text.contains(&format!("async fn {case}<B: Backend>"));
        let exists = sources.iter().any(|(path, text)| path.starts_with("tests/kit/conformance/") && defines(text));
        assert!(exists, "no suite has the case {case}");
    }
}
