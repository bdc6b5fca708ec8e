//! docs/configure.md is generated from config/default.toml. `POSTHASTE_WRITE_DOCS=1 cargo test --test tidy` rewrites it.
use std::fmt::Write as _;

use crate::source::{read, root};

/// Text before the tables.
const INTRODUCTION: &str = r#"<!-- Generated from config/default.toml. Rewrite it with: POSTHASTE_WRITE_DOCS=1 cargo test --test tidy -->
# Configuration

Without any configuration posthaste runs embedded in `./data`. Three layers set the keys; a later layer overrides an earlier one:

1. the defaults below, compiled in from `config/default.toml`;
2. the file given with `--config FILE` (TOML, with the sections below);
3. the environment: the key in capitals, `POSTHASTE__` in front, two underscores between the parts. `outbox.publisher.max_in_flight` is
   `POSTHASTE__OUTBOX__PUBLISHER__MAX_IN_FLIGHT`.

Before anything starts, the service reports all mistakes together and exits with code 78. A value that a later layer replaces is not checked. An
unknown key is a mistake in every layer; the report names the most similar known key. `posthaste config print` checks in the same way, except that it
needs no key to verify tokens with, prints every key with its value and origin, and masks secrets. `posthaste config schema` prints a JSON Schema of
the file for editors.

```sh
posthaste config print | grep '^outbox\.'
posthaste config schema > posthaste.schema.json
POSTHASTE__OUTBOX__PUBLISHER__MAX_IN_FLIGHT=8 posthaste config print | grep max_in_flight
```

A mistake, as the service reports it:

```console
$ POSTHASTE__OUTBOX__PUBLISHER__MAX_INFLIGHT=8 posthaste config print; echo "exit $?"
posthaste: the configuration has 1 mistake(s):
outbox.publisher.max_inflight: unknown key (from POSTHASTE__OUTBOX__PUBLISHER__MAX_INFLIGHT); did you mean outbox.publisher.max_in_flight?
exit 78
```

A **duration** is written `250ms`, `5s`, `10m`, `1h`, `7d` or a bare `0`. A **size** is written `64KiB`, `1MiB` or as a number of bytes.
A **secret** can be read from a file instead: `auth.hs256_secret_file = "/run/secrets/key"`, or `POSTHASTE__AUTH__HS256_SECRET_FILE`. The
service removes one trailing newline. Setting both forms is a mistake, also in different layers.

`rate_limit.policies` sets limits per tier of callers (the claim `tier` of their tokens) and class of requests (`read`, `write`), with and
without Redis. With Redis (`cache.kind = "redis"`) they can also be changed at run time: what is set there replaces the configured limit of that
tier and class, and what is not set, has expired or was deleted stays as configured. The service caches policies for 10 s:

<!-- not executed: needs Redis -->
```sh,norun
redis-cli SET rate_limit:config:gold:write:capacity 500 EX 3600
redis-cli SET rate_limit:config:gold:write:windowMs 60000 EX 3600
```

`redis.legacy_key_prefix` lets the service answer idempotency keys that an earlier service wrote, as `<prefix><key>` without a subject: the id of
the order, `COMPLETED:<id>` or `V2|COMPLETED|<id>|…` return that order if it is in the store and belongs to the caller; `IN_FLIGHT:…`,
`IN_PROGRESS` and `V2|IN_PROGRESS|…` answer 409 until the key expires, which is after 60 s where it has no expiry. Bodies are not compared. New keys
are written under the service's own names only.
"#;

/// A key as the table shows it.
struct Row {
    key: String,
    default: String,
    unit: String,
    meaning: String,
}

/// A section with the sentence above its header.
struct Section {
    name: String,
    meaning: String,
    rows: Vec<Row>,
}

/// Reads sections, keys and the comments above them. The first comment of the file belongs to none.
fn sections(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in text.lines() {
        if let Some(part) = line.strip_prefix("# ") {
            comment.push(part);
            continue;
        }
        let meaning = std::mem::take(&mut comment).join(" ");
        if let Some(header) = line.strip_prefix('[') {
            sections.push(Section { name: header.trim_end_matches(']').to_owned(), meaning, rows: Vec::new() });
        } else if let Some((name, default)) = line.split_once(" = ") {
            let section = sections.last_mut().expect("a key belongs to a section");
            let key = format!("{}.{name}", section.name);
            section.rows.push(row(key, default, &meaning));
        }
    }
    sections
}

fn row(key: String, default: &str, meaning: &str) -> Row {
    assert!(meaning.split_whitespace().count() >= 2, "config/default.toml: {key} has no comment of its own");
    let (meaning, stated) = match meaning.split_once(" Unit: ") {
        Some((meaning, unit)) => (meaning, Some(unit.trim_end_matches('.'))),
        None => (meaning, None),
    };
    let (meaning, secret) = match meaning.strip_prefix("Secret: ") {
        Some(rest) => (capitalized(rest), true),
        None => (meaning.to_owned(), false),
    };
    let unit = match (stated, secret) {
        (Some(unit), _) => unit,
        (None, true) => "secret text",
        (None, false) => unit_of(default).unwrap_or_else(|| panic!("config/default.toml: {key} states no unit")),
    };
    Row { default: default.trim_matches('"').to_owned(), unit: unit.to_owned(), meaning, key }
}

/// The unit that the form of a default shows; a bare number shows none.
fn unit_of(default: &str) -> Option<&'static str> {
    let Some(text) = default.strip_prefix('"') else {
        return matches!(default, "true" | "false").then_some("true or false");
    };
    let text = text.trim_end_matches('"');
    let number = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    Some(match text.strip_prefix(number) {
        Some("KiB" | "MiB") if is_number => "size",
        Some("" | "ms" | "s" | "m" | "h" | "d") if is_number => "duration",
        _ if text.split_once(',').is_some_and(|(first, _)| unit_of(&format!("\"{first}\"")) == Some("duration")) => {
            "durations"
        }
        _ => "text",
    })
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// Escapes the bar, which would end the cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn document(text: &str) -> String {
    let mut document = INTRODUCTION.to_owned();
    for Section { name, meaning, rows } in sections(text) {
        assert!(!meaning.is_empty(), "config/default.toml: [{name}] has no sentence above its header");
        writeln!(document, "\n## {name}\n\n{meaning}\n\n| key | default | unit | meaning |\n|---|---|---|---|")
            .expect("memory");
        for Row { key, default, unit, meaning } in rows {
            let default = if default.is_empty() { "(empty)".to_owned() } else { format!("`{default}`") };
            writeln!(document, "| `{key}` | {} | {unit} | {} |", cell(&default), cell(&meaning)).expect("memory");
        }
    }
    document
}

#[test]
fn configure_md_is_generated_from_default_toml() {
    let generated = document(&read(&root().join("config/default.toml")));
    if std::env::var_os("POSTHASTE_WRITE_DOCS").is_some_and(|value| value == "1") {
        std::fs::write(root().join("docs/configure.md"), &generated).expect("docs/configure.md is writable");
    }
    let message = "docs/configure.md is outdated: run POSTHASTE_WRITE_DOCS=1 cargo test --test tidy";
    assert!(read(&root().join("docs/configure.md")) == generated, "{message}");
}

#[test]
fn every_key_of_default_toml_has_a_row_in_configure_md() {
    let defaults: toml::Table = read(&root().join("config/default.toml")).parse().expect("TOML");
    let mut keys = Vec::new();
    flatten("", &toml::Value::Table(defaults), &mut keys);
    let document = read(&root().join("docs/configure.md"));

    let missing: Vec<&String> = keys.iter().filter(|key| !document.contains(&format!("\n| `{key}` |"))).collect();

    assert!(keys.len() > 60 && missing.is_empty(), "docs/configure.md lacks {missing:?}");
}

fn flatten(prefix: &str, value: &toml::Value, keys: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => table.iter().for_each(|(name, value)| {
            let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            flatten(&key, value, keys);
        }),
        _ => keys.push(prefix.to_owned()),
    }
}
