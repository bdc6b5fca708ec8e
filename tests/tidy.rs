//! The rules of the house that no compiler knows: arrows between rooms, sizes, names, and that documents and code agree.
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[path = "tidy/configure.rs"]
mod configure;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/markdown.rs"]
mod markdown;

/// Which rooms each room may import. An arrow that is not here is a decision somebody has to write down.
const ARROWS: [(&str, &[&str]); 15] = [
    ("src/domain", &[]),
    ("src/outbox", &[]),
    ("src/ports", &["domain", "outbox"]),
    ("src/app", &["domain", "outbox", "ports"]),
    ("src/telemetry", &[]),
    ("src/api", &["app", "domain", "telemetry"]),
    ("src/adapters/embedded", &["domain", "outbox", "ports", "telemetry"]),
    ("src/adapters/kafka", &["domain", "outbox", "ports", "telemetry"]),
    ("src/adapters/postgres", &["domain", "outbox", "ports", "telemetry"]),
    ("src/adapters/redis", &["domain", "outbox", "ports", "telemetry"]),
    ("src/adapters/memory", &["domain", "ports"]),
    ("src/bench", &["app", "domain", "ports"]),
    ("actors", &["app", "domain", "outbox", "ports", "supervision", "telemetry"]),
    ("actors/supervision", &[]),
    ("tests/kit", &["domain", "ports"]),
];

/// Rooms of the workspace, by the name under which they are imported.
const ROOMS: [&str; 15] = [
    "bench",
    "domain",
    "outbox",
    "memory",
    "ports",
    "app",
    "telemetry",
    "api",
    "embedded",
    "kafka",
    "postgres",
    "redis",
    "actors",
    "supervision",
    "kit",
];

/// Clients and runtimes that a room must never see.
const FORBIDDEN: [(&str, &[&str]); 5] = [
    ("src/domain", &["serde", "tokio", "actix", "jiff", "rand"]),
    ("src/ports", &["tokio", "actix", "rusqlite", "serde"]),
    ("src/app", &["tokio", "actix", "rusqlite", "tracing", "rand"]),
    ("src/api", &["rusqlite", "actix"]),
    ("actors", &["actix-web", "rusqlite"]),
];

/// Longest file. 120 lines are normal, 250 long.
const LINES_MAX: usize = 400;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files below a folder that end so, without what cargo makes.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8").to_owned();
        if path.is_dir() {
            if !name.starts_with('.') && !name.starts_with("target") && name != "data" {
                files(&path, ending, found);
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(&root(), ".rs", &mut found);
    let relative = |path: &PathBuf| path.strip_prefix(root()).expect("below the root").display().to_string();
    found.iter().map(|path| (relative(path), read(path))).collect()
}

fn dependencies(manifest: &toml::Table, section: &str) -> BTreeSet<String> {
    manifest
        .get(section)
        .and_then(toml::Value::as_table)
        .map(|table| table.keys().cloned().collect())
        .unwrap_or_default()
}

#[test]
fn arrows_between_rooms_are_the_ones_that_architecture_draws() {
    for (room, allowed) in ARROWS {
        let manifest: toml::Table = read(&root().join(room).join("Cargo.toml")).parse().expect("TOML");
        let imported = dependencies(&manifest, "dependencies");
        let rooms: Vec<&str> = ROOMS.into_iter().filter(|name| imported.contains(*name)).collect();
        for name in rooms {
            assert!(allowed.contains(&name), "{room} must not import {name}");
        }
    }
    for (room, forbidden) in FORBIDDEN {
        let manifest: toml::Table = read(&root().join(room).join("Cargo.toml")).parse().expect("TOML");
        let imported = dependencies(&manifest, "dependencies");
        for name in forbidden {
            assert!(!imported.contains(*name), "{room} must not depend on {name}");
        }
    }
}

#[test]
fn only_wiring_names_an_adapter_and_only_the_tree_starts_actors() {
    for (path, text) in sources() {
        let in_wiring = path == "src/wiring.rs" || path.starts_with("src/wiring/");
        let may_name = in_wiring || path.starts_with("src/adapters/") || path.starts_with("tests/");
        for adapter in ["embedded", "kafka", "postgres", "redis"] {
            let named = text.contains(&format!("use {adapter}::")) || text.contains(&format!(" {adapter}::Options"));
            assert!(may_name || !named, "{path} names the adapter {adapter}");
        }
        let may_start =
            path == "actors/tree.rs" || path.starts_with("actors/supervision") || path.starts_with("tests/");
        assert!(may_start || !text.contains("supervision::actor("), "{path} starts an actor");
    }
}

#[test]
fn files_are_short_and_say_what_they_are() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{path} has {lines} lines: is there a second idea in it?");
        assert!(text.starts_with("//!"), "{path} does not say what lives in it");
        assert!(!path.ends_with("/mod.rs"), "{path}: name the file after the module");
    }
}

#[test]
fn nothing_is_left_for_later() {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[ig", "nore"),
    ];
    for (path, text) in sources() {
        for mark in marks {
            assert!(!text.contains(mark), "{path} has {mark}: write an issue, or do it");
        }
    }
}

#[test]
fn tests_wait_for_conditions_and_never_sleep() {
    let (real, tokio) = (concat!("thread::", "sleep("), concat!("time::", "sleep("));
    let sources = sources();
    let folder = |path: &str| path.rsplit_once('/').map_or(String::new(), |(folder, _)| folder.to_owned());
    // A suite that pauses tokio's clock sleeps in no time at all; its folders belong to it.
    let virtual_time: BTreeSet<String> =
        sources.iter().filter(|(_, text)| text.contains("start_paused")).map(|(path, _)| folder(path)).collect();
    let is_virtual = |path: &str| {
        std::path::Path::new(path)
            .ancestors()
            .skip(1)
            .any(|above| above.to_str().is_some_and(|above| virtual_time.contains(above)))
    };
    for (path, text) in &sources {
        let is_test = path.starts_with("tests/") || path.contains("/tests/");
        if !is_test || path == "tests/kit/wait.rs" || path.starts_with("tests/kit/faults") || path == "tests/tidy.rs" {
            continue;
        }
        assert!(!text.contains(real), "{path} sleeps");
        assert!(!text.contains(tokio) || is_virtual(path), "{path} sleeps in real time");
    }
}

#[test]
fn sql_stands_in_its_adapter_and_statuses_in_one_file() {
    for (path, text) in sources() {
        let in_adapter = path.starts_with("src/adapters/") || path.starts_with("tests/");
        for statement in [concat!("SELECT", " "), concat!("INSERT", " INTO"), concat!("UPDATE", " outbox")] {
            assert!(in_adapter || !text.contains(statement), "{path} speaks SQL");
        }
    }
}

#[test]
fn every_section_of_the_configuration_is_in_the_document_of_the_configuration() {
    let defaults: toml::Table = read(&root().join("config/default.toml")).parse().expect("TOML");
    let document = read(&root().join("docs/configure.md"));
    for section in defaults.keys() {
        assert!(document.contains(&format!("`{section}.")), "docs/configure.md does not mention a key of [{section}]");
    }
}

#[test]
fn every_metric_is_in_the_catalogue_and_named_there_once() {
    let mut seen = BTreeMap::new();
    for entry in telemetry::CATALOGUE {
        let before = seen.insert(entry.prometheus(), entry.name);
        assert_eq!(before, None, "{} stands twice", entry.name);
        assert!(!entry.help.is_empty(), "{} has no help", entry.name);
    }
    assert!(seen.len() >= 60, "the contract names more than {}", seen.len());
}

#[test]
fn documents_and_scripts_that_a_newcomer_needs_are_there() {
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
    assert!(std::os::unix::fs::PermissionsExt::mode(&ci) & 0o111 != 0, ".ci/run cannot be run");
    assert!(read(&root().join(".ci/run")).contains("make check"));
}

/// Every word that looks like a metric of ours.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
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
    ];
    words.filter(|word| known.iter().any(|start| word.starts_with(start))).map(str::to_owned).collect()
}

/// Every name that a scrape may hold.
fn series() -> BTreeSet<String> {
    let of =
        |entry: &telemetry::MetricDefinition| ["", "_bucket", "_sum", "_count"].map(|end| entry.prometheus() + end);
    telemetry::CATALOGUE.iter().flat_map(of).collect()
}

#[test]
fn each_row_of_the_failure_matrix_names_a_test_and_a_metric_that_there_are() {
    let names = series();
    for row in markdown::matrix("Failure matrix") {
        markdown::assert_that_tests_exist(&row);
        let metrics = metrics_in(&row);
        let unknown: Vec<&String> = metrics.iter().filter(|name| !names.contains(*name)).collect();
        assert!(!metrics.is_empty() && unknown.is_empty(), "{unknown:?} in {row}");
    }
}

#[test]
fn what_watches_the_service_names_metrics_that_there_are() {
    let names = series();
    let rules = read(&root().join("docker/rules.yml"));
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
    assert!(unknown.is_empty(), "docker/ watches metrics that nobody writes: {unknown:?}");
}

#[test]
fn what_starts_the_service_gives_it_time_to_stop_and_the_right_compiler() {
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
    assert!(read(&root().join("docker/Dockerfile")).contains(&format!("FROM rust:{channel}-")), "another compiler");
    for script in ["with.sh", "up.sh", "down.sh", "show.sh", "install.sh", "service.sh"] {
        let permissions = std::fs::metadata(root().join("tests/services").join(script)).expect(script).permissions();
        assert!(std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o111 != 0, "{script} cannot be run");
    }
}
