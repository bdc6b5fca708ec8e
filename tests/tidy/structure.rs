//! Folders hold few entries, and the imports between a crate's files point in one direction.
use std::collections::{BTreeMap, BTreeSet};

use crate::imports::{Edges, imports};
use crate::source::{SourceFile, parsed, paths};

/// Most entries of a folder. A folder and the file of the same name that declares it count as one.
const ENTRIES_MAX: usize = 15;

/// The name under which an entry is counted. The migrations of a store count as one: a released file keeps its path, and the names order them.
fn entry(name: &str) -> &str {
    let is_migration = name.starts_with('V') && name.ends_with(".sql");
    if is_migration { "migrations" } else { name.strip_suffix(".rs").unwrap_or(name) }
}

/// Folders with too many entries, with their number.
fn wide_folders(paths: &[String]) -> Vec<(String, usize)> {
    let mut entries: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in paths {
        let parts: Vec<&str> = path.split('/').collect();
        for depth in 1..parts.len() {
            entries.entry(parts[..depth].join("/")).or_default().insert(entry(parts[depth]).to_owned());
        }
    }
    let counted = entries.into_iter().map(|(folder, names)| (folder, names.len()));
    counted.filter(|(_, count)| *count > ENTRIES_MAX).collect()
}

fn reachable<'a>(start: &'a str, edges: &'a Edges) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
    while let Some(file) = open.pop() {
        let targets = edges.get(file).into_iter().flatten().map(String::as_str);
        open.extend(targets.filter(|target| seen.insert(*target)));
    }
    seen
}

/// Groups of files that import each other in a cycle.
fn cycles(edges: &Edges) -> BTreeSet<Vec<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|file| (file.as_str(), reachable(file, edges))).collect();
    let group = |file: &str| -> Vec<&str> {
        let back = |other: &&&str| reached.get(**other).is_some_and(|targets| targets.contains(file));
        reached[file].iter().filter(back).copied().collect()
    };
    reached.keys().map(|file| group(file)).filter(|group| group.len() > 1).collect()
}

/// Files that import the file that declares them, or their crate's root.
fn upward(edges: &Edges) -> Vec<(&str, &str)> {
    let all = edges.iter().flat_map(|(from, targets)| targets.iter().map(move |to| (from.as_str(), to.as_str())));
    let is_upward = |(from, to): &(&str, &str)| {
        let folder = to.trim_end_matches(".rs");
        let is_root = to.ends_with("/lib.rs") || to.ends_with("/main.rs");
        is_root || from.starts_with(&format!("{folder}/"))
    };
    all.filter(is_upward).collect()
}

/// Test binaries share fixtures that their main file declares; the rule is for crates.
fn crates() -> BTreeMap<String, Edges> {
    let mut crates = imports(&parsed());
    crates.retain(|root, _| root.ends_with("/lib.rs") && !root.contains("/tests/"));
    assert!(crates.len() >= 15, "{:?}", crates.keys());
    crates
}

#[test]
fn every_folder_has_at_most_fifteen_entries() {
    let wide = wide_folders(&paths());

    assert!(wide.is_empty(), "group their files into folders: {wide:?}");
}

#[test]
fn files_of_a_crate_import_each_other_without_cycles() {
    for (root, edges) in crates() {
        let cycles = cycles(&edges);
        assert!(cycles.is_empty(), "{root}: {cycles:?}");
    }
}

#[test]
fn no_file_imports_the_file_that_contains_it() {
    for (root, edges) in crates() {
        let upward = upward(&edges);
        assert!(upward.is_empty(), "{root}: {upward:?}");
    }
}

#[test]
fn checker_finds_cycles_upward_imports_and_wide_folders() {
    let sources = [
        ("src/x/lib.rs", "mod a; mod b; pub struct Shared; pub use a::one::First;"),
        ("src/x/a.rs", "mod one; use crate::b::Second; pub struct Parent;"),
        ("src/x/a/one.rs", "use super::Parent; pub struct First;"),
        ("src/x/b.rs", "use crate::a; pub struct Second; #[cfg(test)] mod tests { use crate::Shared; }"),
    ];
    let files: Vec<SourceFile> = sources.iter().map(|(path, code)| SourceFile::parse(path, code)).collect();
    let crates = imports(&files);
    let edges = &crates["src/x/lib.rs"];

    let many: Vec<String> = (0..=ENTRIES_MAX).flat_map(|n| [format!("src/{n}.rs"), format!("src/{n}/x.rs")]).collect();

    assert_eq!(cycles(edges).into_iter().collect::<Vec<_>>(), [["src/x/a.rs", "src/x/b.rs"]]);
    assert_eq!(upward(edges), [("src/x/a/one.rs", "src/x/a.rs")]);
    assert_eq!(wide_folders(&many), [("src".to_owned(), ENTRIES_MAX + 1)]);
    assert!(wide_folders(&many[..ENTRIES_MAX * 2]).is_empty());
    let migrations: Vec<String> = (0..=ENTRIES_MAX).map(|n| format!("migrations/V{n}__x.sql")).collect();
    assert!(wide_folders(&migrations).is_empty());
}
