//! Configuration, metrics, alerts, dashboards and deployment files agree with the code.
mod alerts;
mod release;
mod scaling;

use std::collections::{BTreeMap, BTreeSet};

use crate::markdown;
use crate::source::{files, read, root};

#[test]
fn every_configuration_section_is_documented() {
    let defaults: toml::Table = read(&root().join("config/default.toml")).parse().expect("TOML");
    let document = read(&root().join("docs/configure.md"));
    for section in defaults.keys() {
        assert!(document.contains(&format!("`{section}.")), "docs/configure.md does not mention a key of [{section}]");
    }
}

#[test]
fn every_metric_of_the_catalogue_has_one_name_and_a_help() {
    let mut seen = BTreeMap::new();
    for entry in telemetry::CATALOGUE {
        let before = seen.insert(entry.prometheus(), entry.name);
        assert_eq!(before, None, "{} is defined twice", entry.name);
        assert!(!entry.help.is_empty(), "{} has no help", entry.name);
    }
    assert!(seen.len() >= 60, "the contract names more than {}", seen.len());
}

#[test]
fn repository_has_its_documents_licences_and_scripts() {
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "Makefile",
        ".ci/run",
        "Cargo.lock",
        "rust-toolchain.toml",
    ] {
        assert!(root().join(name).is_file(), "{name} is missing");
    }
    let readme = read(&root().join("README.md"));
    assert!(readme.contains("make run") && readme.contains("make test"));
    let ci = std::fs::metadata(root().join(".ci/run")).expect("there").permissions();
    assert!(std::os::unix::fs::PermissionsExt::mode(&ci) & 0o111 != 0, ".ci/run is not executable");
    assert!(read(&root().join(".ci/run")).contains("make check"));
}

/// Words that begin like a metric of this service.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    let known = [
        "outbox_",
        "kafka_",
        "actor_",
        "orders_",
        "http_server_",
        "backpressure_",
        "region_",
        "redis_",
        "cache_",
        "retry_",
        "rate_limit_",
        "failover_",
        "posthaste_",
    ];
    words.filter(|word| known.iter().any(|start| word.starts_with(start))).map(str::to_owned).collect()
}

/// Every series name that a scrape may return.
fn series() -> BTreeSet<String> {
    let of =
        |entry: &telemetry::MetricDefinition| ["", "_bucket", "_sum", "_count"].map(|end| entry.prometheus() + end);
    telemetry::CATALOGUE.iter().flat_map(of).collect()
}

#[test]
fn each_failure_names_an_existing_test_and_metric() {
    let names = series();
    for row in markdown::matrix("Failure matrix") {
        markdown::assert_that_tests_exist(&row);
        let metrics = metrics_in(&row);
        let unknown: Vec<&String> = metrics.iter().filter(|name| !names.contains(*name)).collect();
        assert!(!metrics.is_empty() && unknown.is_empty(), "{unknown:?} in {row}");
    }
}

#[test]
fn alerts_and_dashboards_name_existing_metrics() {
    let names = series();
    let rules = read(&root().join("docker/rules.yml")) + &read(&root().join("docker/slo-rules.yml"));
    let expressions: String = rules.lines().filter(|line| line.trim_start().starts_with("expr:")).collect();
    let mut boards = Vec::new();
    files(&root().join("docker"), ".json", &mut boards);
    let mut watched = metrics_in(&expressions);
    for board in &boards {
        let text = read(board);
        let expressions = text.split("\"expr\":").skip(1).filter_map(|part| part.split('\n').next());
        expressions.for_each(|expression| watched.extend(metrics_in(expression)));
    }
    assert!(!boards.is_empty() && watched.len() > 10, "{watched:?}");
    let unknown: Vec<&String> = watched.iter().filter(|name| !names.contains(*name)).collect();
    assert!(unknown.is_empty(), "docker/ names metrics that the service does not export: {unknown:?}");
}

#[test]
fn deployments_allow_the_shutdown_deadline_and_use_the_pinned_compiler() {
    let seconds = |text: &str, key: &str| -> u64 {
        let line = text.lines().find(|line| line.trim_start().starts_with(key)).unwrap_or_else(|| panic!("no {key}"));
        line.chars().filter(char::is_ascii_digit).collect::<String>().parse().expect("seconds")
    };
    let defaults: toml::Table = read(&root().join("config/default.toml")).parse().expect("TOML");
    let deadline = defaults["shutdown"]["deadline"].as_str().expect("a duration");
    let deadline: u64 = deadline.trim_end_matches('s').parse().expect("seconds");
    assert!(seconds(&read(&root().join("docker/posthaste.service")), "TimeoutStopSec") > deadline);
    assert!(seconds(&read(&root().join("docker/compose.yaml")), "stop_grace_period") > deadline);
    let toolchain: toml::Table = read(&root().join("rust-toolchain.toml")).parse().expect("TOML");
    let channel = toolchain["toolchain"]["channel"].as_str().expect("a release");
    assert!(
        read(&root().join("docker/Dockerfile")).contains(&format!("FROM rust:{channel}-")),
        "docker/Dockerfile uses another compiler than rust-toolchain.toml"
    );
    for script in ["with.sh", "up.sh", "down.sh", "show.sh", "install.sh", "service.sh"] {
        let permissions = std::fs::metadata(root().join("tests/services").join(script)).expect(script).permissions();
        assert!(std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o111 != 0, "{script} is not executable");
    }
}
