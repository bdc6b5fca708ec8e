//! Rules of the documents: links lead somewhere, each failure names its test, and each command block is executed or says why not.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::source::{read, root};

/// Command blocks that `tests/service/embedded/documents.rs` does not execute, per document. Each has its reason in the line above it.
const NOT_EXECUTED: [(&str, usize); 7] = [
    ("CONTRIBUTING.md", 3),
    ("README.md", 2),
    ("docs/configure.md", 1),
    ("docs/deploy.md", 15),
    ("docs/failures.md", 2),
    ("docs/operate.md", 3),
    ("docs/read.md", 1),
];

/// Languages a fenced block may have. `sh` is executed, `sh,service` runs in the background, `sh,norun` is neither.
const LANGUAGES: [&str; 10] =
    ["sh", "sh,service", "sh,norun", "console", "text", "mermaid", "toml", "json", "sql", "rust"];

/// A fenced block with the line above it.
struct Block {
    language: String,
    above: String,
    text: String,
}

/// Every document by its path: those in the root folder and those below docs.
pub(crate) fn documents() -> BTreeMap<String, String> {
    let mut paths = Vec::new();
    collect(&root(), false, &mut paths);
    collect(&root().join("docs"), true, &mut paths);
    let named = |path: PathBuf| {
        let name = path.strip_prefix(root()).expect("below the root").display().to_string();
        (name, read(&path))
    };
    paths.into_iter().map(named).collect()
}

fn collect(folder: &Path, deep: bool, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && deep {
            collect(&path, deep, found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
}

fn blocks(document: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut inside, mut above) = (false, "");
    for line in document.lines() {
        match line.strip_prefix("```") {
            Some(_) if inside => inside = false,
            Some(language) => {
                inside = true;
                blocks.push(Block { language: language.to_owned(), above: above.to_owned(), text: String::new() });
            }
            None if inside => {
                let block = blocks.last_mut().expect("a block is open");
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => above = line,
        }
    }
    assert!(!inside, "a fenced block has no end");
    blocks
}

#[test]
fn every_fenced_block_states_a_known_language() {
    for (name, text) in documents() {
        for block in blocks(&text) {
            assert!(LANGUAGES.contains(&block.language.as_str()), "{name}: a block of {:?}", block.language);
        }
    }
}

#[test]
fn command_blocks_that_are_not_executed_are_counted_and_state_a_reason() {
    let mut counted = BTreeMap::new();
    for (name, text) in documents() {
        for block in blocks(&text).iter().filter(|block| block.language == "sh,norun") {
            let stated = block.above.starts_with("<!-- not executed: ") && block.above.ends_with(" -->");
            assert!(stated, "{name}: no reason above:\n{}", block.text);
            *counted.entry(name.clone()).or_insert(0) += 1;
        }
    }
    let expected: BTreeMap<String, usize> = NOT_EXECUTED.map(|(name, count)| (name.to_owned(), count)).into();
    assert_eq!(counted, expected, "change the table when you add or remove such a block");
}

#[test]
fn every_make_target_in_a_document_exists() {
    let makefile = read(&root().join("Makefile"));
    let mut seen = 0;
    for (name, text) in documents() {
        for block in blocks(&text).iter().filter(|block| block.language.starts_with("sh")) {
            let targets = block.text.lines().filter_map(|line| line.strip_prefix("make ")?.split_whitespace().next());
            for target in targets {
                assert!(makefile.contains(&format!("\n{target}:")), "{name}: make has no target {target}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 4, "only {seen} targets");
}

#[test]
fn every_relative_link_leads_to_a_file() {
    for (name, text) in documents() {
        let folder = root().join(&name).parent().expect("a folder").to_owned();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            assert!(folder.join(file).exists(), "{name} links to {file}, which does not exist");
        }
    }
}

#[test]
fn every_decision_is_in_the_index_of_the_decisions() {
    let index = read(&root().join("docs/decisions/README.md"));
    let prefix = "docs/decisions/";
    let documents = documents();
    let pages = documents.iter().filter_map(|(name, text)| Some((name.strip_prefix(prefix)?, text)));
    for (page, text) in pages.filter(|(page, _)| *page != "README.md") {
        assert!(index.contains(&format!("]({page})")), "the index lacks {page}");
        for part in ["## Context", "## Decision", "## Measurement", "## Consequences"] {
            assert!(text.contains(&format!("\n{part}\n")), "{page} has no part {part:?}");
        }
    }
}

#[test]
fn readme_has_at_most_120_lines() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= 120, "README.md has {lines} lines");
}

/// Rows of one of the two tables in docs/failures.md.
pub(crate) fn matrix(title: &str) -> Vec<String> {
    let document = read(&root().join("docs/failures.md"));
    let section = document.split("\n## ").find(|section| section.starts_with(title)).expect("the section");
    let rows: Vec<String> = section.lines().filter(|line| line.starts_with("| ")).skip(1).map(str::to_owned).collect();
    assert!(rows.len() >= 10, "{rows:?}");
    rows
}

/// Fails when the row names no test, or one that does not exist.
pub(crate) fn assert_that_tests_exist(row: &str) {
    let links: Vec<(&str, &str)> = row.split("[`").skip(1).filter_map(|link| link.split_once("`](")).collect();
    assert!(!links.is_empty(), "no test shows it: {row}");
    for (test, rest) in links {
        let file = rest.split(')').next().unwrap_or_default();
        let text = read(&root().join("docs").join(file));
        assert!(text.contains(&format!("fn {test}(")), "{file} has no test {test}");
    }
}

#[test]
fn each_row_of_the_protection_table_names_a_test_that_exists() {
    matrix("What protects against what").iter().for_each(|row| assert_that_tests_exist(row));
}

#[test]
fn every_alert_has_a_row_in_the_table_of_alerts() {
    let (rules, document) = (read(&root().join("docker/rules.yml")), read(&root().join("docs/operate.md")));
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        assert!(document.contains(&format!("\n| `{alert}` |")), "docs/operate.md lacks the alert {alert}");
    }
}

#[test]
fn every_path_that_a_document_names_exists() {
    for (name, text) in documents() {
        let outside = text.split("\n```").step_by(2);
        let named = outside.flat_map(|part| part.split('`').skip(1).step_by(2));
        let folders = ["src/", "actors/", "tests/", "config/", "docker/", "migrations/"];
        let in_repository = |path: &&str| folders.iter().any(|folder| path.starts_with(folder)) && !path.contains('{');
        for path in named.filter(in_repository).filter(|path| !path.starts_with("docker/secrets/")) {
            assert!(root().join(path).exists(), "{name} names {path}, which does not exist");
        }
    }
}
