//! Dependencies between the crates, and what only one kind of crate may contain.
mod packages;

use std::collections::BTreeSet;

use crate::source::{read, root, sources};

/// Which crates each crate may import. A new dependency is a decision: record it in ARCHITECTURE.md.
const PERMITTED_IMPORTS: [(&str, &[&str]); 17] = [
    ("src/domain", &[]),
    ("src/outbox", &[]),
    ("src/ports", &["domain", "outbox"]),
    ("src/app", &["domain", "outbox", "ports"]),
    ("src/telemetry", &[]),
    ("src/api", &["app", "domain", "telemetry"]),
    ("src/adapters/embedded", &["domain", "outbox", "ports", "telemetry"]),
    ("src/adapters/endpoints", &["outbox", "ports"]),
    ("src/adapters/kafka", &["domain", "outbox", "ports", "telemetry"]),
    ("src/adapters/postgres", &["domain", "outbox", "ports", "telemetry"]),
    ("src/adapters/redis", &["domain", "outbox", "ports", "telemetry"]),
    ("src/adapters/memory", &["domain", "ports"]),
    ("src/bench", &["app", "domain", "ports"]),
    ("actors", &["app", "domain", "outbox", "ports", "supervision", "telemetry"]),
    ("actors/supervision", &[]),
    ("tests/kit", &["domain", "ports"]),
    ("tests/model", &[]),
];

/// Crates of the workspace, by the name under which they are imported.
const CRATES: [&str; 17] = [
    "bench",
    "domain",
    "outbox",
    "memory",
    "ports",
    "app",
    "telemetry",
    "api",
    "embedded",
    "endpoints",
    "kafka",
    "postgres",
    "redis",
    "actors",
    "supervision",
    "kit",
    "model",
];

/// Clients and runtimes that a crate must not depend on.
const FORBIDDEN: [(&str, &[&str]); 5] = [
    ("src/domain", &["serde", "tokio", "actix", "jiff", "rand"]),
    ("src/ports", &["tokio", "actix", "rusqlite", "serde"]),
    ("src/app", &["tokio", "actix", "rusqlite", "tracing", "rand"]),
    ("src/api", &["rusqlite", "actix"]),
    ("actors", &["actix-web", "rusqlite"]),
];

fn dependencies(manifest: &toml::Table, section: &str) -> BTreeSet<String> {
    manifest
        .get(section)
        .and_then(toml::Value::as_table)
        .map(|table| table.keys().cloned().collect())
        .unwrap_or_default()
}

#[test]
fn crates_import_only_what_the_architecture_allows() {
    for (folder, allowed) in PERMITTED_IMPORTS {
        let manifest: toml::Table = read(&root().join(folder).join("Cargo.toml")).parse().expect("TOML");
        let imported = dependencies(&manifest, "dependencies");
        let imported_crates: Vec<&str> = CRATES.into_iter().filter(|name| imported.contains(*name)).collect();
        for name in imported_crates {
            assert!(allowed.contains(&name), "{folder} must not import {name}");
        }
    }
    for (folder, forbidden) in FORBIDDEN {
        let manifest: toml::Table = read(&root().join(folder).join("Cargo.toml")).parse().expect("TOML");
        let imported = dependencies(&manifest, "dependencies");
        for name in forbidden {
            assert!(!imported.contains(*name), "{folder} must not depend on {name}");
        }
    }
}

#[test]
fn only_wiring_names_an_adapter_and_only_the_tree_starts_actors() {
    for (path, text) in sources() {
        let in_wiring = path == "src/wiring.rs" || path.starts_with("src/wiring/");
        // An example is a program of another service, which uses an adapter's crate as its library.
        let is_example = path.starts_with("examples/");
        let may_name = in_wiring || is_example || path.starts_with("src/adapters/") || path.starts_with("tests/");
        for adapter in ["embedded", "endpoints", "kafka", "postgres", "redis"] {
            let named = text.contains(&format!("use {adapter}::")) || text.contains(&format!(" {adapter}::Options"));
            assert!(may_name || !named, "{path} names the adapter {adapter}");
        }
        let may_start = path == "actors/system/tree.rs"
            || path.starts_with("actors/system/tree/")
            || path.starts_with("actors/supervision")
            || path.starts_with("tests/");
        assert!(may_start || !text.contains("supervision::actor("), "{path} starts an actor");
    }
}

#[test]
fn only_adapters_contain_sql() {
    for (path, text) in sources() {
        // The writers of chaos are what another service's program would be.
        let of_another_service = path.starts_with("examples/") || path == "src/bench/chaos/sql_writers.rs";
        let in_adapter = of_another_service || path.starts_with("src/adapters/") || path.starts_with("tests/");
        for statement in [concat!("SELECT", " "), concat!("INSERT", " INTO"), concat!("UPDATE", " outbox")] {
            assert!(in_adapter || !text.contains(statement), "{path} contains SQL");
        }
    }
}
