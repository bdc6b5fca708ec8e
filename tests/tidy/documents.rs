//! Generated documents equal what their generators render, and the catalogue of log events equals the code.
//!
//! `POSTHASTE_WRITE_DOCS=1` rewrites the documents instead of comparing them.

use std::collections::{BTreeMap, BTreeSet};

use telemetry::{LOG_EVENTS, LogEvent, documents};

use crate::source::{production_code, read, root};

fn assert_generated(path: &str, rendered: &str) {
    let file = root().join(path);
    if std::env::var_os("POSTHASTE_WRITE_DOCS").is_some_and(|value| value == "1") {
        std::fs::write(&file, rendered).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    let update = "update it with POSTHASTE_WRITE_DOCS=1 cargo test --test tidy";
    assert!(committed == rendered, "{path} is not what its generator renders: {update}");
}

#[test]
fn metrics_document_is_generated_from_the_catalogue() {
    assert_generated("docs/metrics.md", &documents::metrics_markdown());
}

#[test]
fn log_events_document_is_generated_from_the_catalogue() {
    assert_generated("docs/log-events.md", &documents::log_events_markdown());
}

/// Production code outside the catalogue itself: path and text.
fn sources() -> Vec<(String, String)> {
    let mut sources = production_code();
    sources.retain(|(path, _)| !path.starts_with("src/telemetry/log_events"));
    sources
}

fn catalogue() -> BTreeMap<&'static str, &'static LogEvent> {
    LOG_EVENTS.iter().flat_map(|group| group.events).map(|event| (event.name, event)).collect()
}

/// Levels and field names of one event.
#[derive(Debug, Default, PartialEq)]
struct Shape {
    levels: BTreeSet<String>,
    fields: BTreeSet<String>,
}

/// The arguments of a macro or function call: the text up to the closing bracket, split at its top-level commas.
fn arguments(text: &str) -> Vec<String> {
    let (mut parts, mut depth, mut in_string, mut escaped) = (vec![String::new()], 0, false, false);
    for character in text.chars() {
        match character {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("never empty").push(character);
    }
    parts.iter().map(|part| part.trim().to_owned()).collect()
}

/// The name of a `tracing` field: `by = %user`, `%error` or `promoted`.
fn field(argument: &str) -> &str {
    let name = argument.split(" = ").next().unwrap_or_default();
    name.trim_start_matches(['%', '?']).trim_start_matches("r#")
}

fn literal(argument: &str) -> Option<&str> {
    argument.strip_prefix('"')?.strip_suffix('"')
}

/// The events that `tracing` macros log, with their levels and fields. Supervision composes its events at run time.
fn logged() -> BTreeMap<String, Shape> {
    let mut shapes: BTreeMap<String, Shape> = BTreeMap::new();
    for (path, code) in sources() {
        for level in ["error", "warn", "info", "debug", "trace"] {
            for call in code.split(&format!("tracing::{level}!(")).skip(1) {
                let arguments = arguments(call);
                let fields: Vec<&String> = arguments.iter().take_while(|part| !part.starts_with('"')).collect();
                let name = fields.iter().find_map(|part| literal(part.strip_prefix("event = ")?));
                let name = name.unwrap_or_else(|| panic!("{path} logs without a literal event name: {arguments:?}"));
                let shape = shapes.entry(name.to_owned()).or_default();
                shape.levels.insert(level.to_owned());
                shape.fields.extend(fields.iter().map(|part| field(part).to_owned()).filter(|name| name != "event"));
            }
        }
    }
    shapes
}

/// The events that the supervision tree emits, and those that other crates put on its stream.
fn emitted() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (path, code) in sources() {
        for call in code.split("publish_note(").skip(1) {
            names.extend(arguments(call).first().and_then(|name| literal(name)).map(str::to_owned));
        }
        if path.starts_with("actors/supervision/") {
            let strings: Vec<&str> = code.split('"').collect();
            for window in strings.windows(3) {
                let (before, name, after) = (window[0], window[1], window[2]);
                let with_level = after.starts_with(", Level::") || after.starts_with(", level)");
                if with_level && !before.ends_with("target: ") {
                    names.insert(name.to_owned());
                }
            }
        }
    }
    names
}

#[test]
fn every_logged_event_is_in_the_catalogue_with_its_levels_and_fields() {
    let catalogue = catalogue();

    for (name, shape) in logged() {
        let event = catalogue.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not in the catalogue"));
        let documented = Shape {
            levels: event.levels.iter().map(|level| level.as_str().to_lowercase()).collect(),
            fields: event.fields.iter().map(|field| (*field).to_owned()).collect(),
        };
        assert_eq!(shape, documented, "{name}: code and catalogue differ");
    }
    let emitted = emitted();
    assert!(emitted.len() >= 15, "{emitted:?}");
    for name in emitted {
        assert!(catalogue.contains_key(name.as_str()), "{name} is not in the catalogue");
    }
}

#[test]
fn every_event_of_the_catalogue_is_in_the_code() {
    let sources = sources();

    for name in catalogue().into_keys() {
        let quoted = format!("\"{name}\"");
        assert!(sources.iter().any(|(_, code)| code.contains(&quoted)), "no code logs {name}");
    }
}

#[test]
fn log_filter_names_every_crate_of_the_service() {
    let manifest = read(&root().join("Cargo.toml"));
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let members = manifest["workspace"]["members"].as_array().expect("members").iter().filter_map(toml::Value::as_str);
    let libraries = members.filter(|member| !member.starts_with("tests/")).map(|member| {
        let manifest = read(&root().join(member).join("Cargo.toml"));
        let manifest: toml::Table = manifest.parse().expect("TOML");
        manifest["lib"]["name"].as_str().expect("a library name").to_owned()
    });
    let expected: BTreeSet<String> = libraries.chain(["posthaste".to_owned()]).collect();
    let named: BTreeSet<String> = telemetry::logging::SERVICE_CRATES.iter().map(|name| (*name).to_owned()).collect();

    assert_eq!(named, expected, "src/telemetry/logging/filter.rs lists other crates than Cargo.toml");
}
