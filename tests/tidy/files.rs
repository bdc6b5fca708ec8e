//! Rules for a single file: its length, its first line, markers of unfinished work, sleeps in tests.
use std::collections::BTreeSet;

use crate::source::sources;

/// Longest file. 120 lines are normal, 250 long.
const LINES_MAX: usize = 400;

#[test]
fn every_file_is_short_and_begins_with_its_purpose() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{path} has {lines} lines: is there a second idea in it?");
        assert!(text.starts_with("//!"), "{path} does not begin with a `//!` line");
        assert!(!path.ends_with("/mod.rs"), "{path}: name the file after the module");
    }
}

#[test]
fn no_file_defers_work_with_a_mark() {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[ig", "nore"),
    ];
    for (path, text) in sources() {
        for mark in marks {
            assert!(!text.contains(mark), "{path} has {mark}: open an issue, or do the work");
        }
    }
}

#[test]
fn tests_wait_for_conditions_and_do_not_sleep() {
    let (real, tokio) = (concat!("thread::", "sleep("), concat!("time::", "sleep("));
    let sources = sources();
    let folder = |path: &str| path.rsplit_once('/').map_or(String::new(), |(folder, _)| folder.to_owned());
    // A suite that pauses tokio's clock sleeps in virtual time; its folders are exempt.
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
        if !is_test
            || path == "tests/kit/wait.rs"
            || path.starts_with("tests/kit/faults")
            || path == "tests/tidy/files.rs"
        {
            continue;
        }
        assert!(!text.contains(real), "{path} sleeps");
        assert!(!text.contains(tokio) || is_virtual(path), "{path} sleeps in real time");
    }
}
