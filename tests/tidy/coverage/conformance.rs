//! Conformance cases that a backend skips: all of them are listed here, so that none passes unnoticed without its check.
use crate::source::sources;

/// File of the backend, and the case that does not apply to it.
const SKIPPED: &[(&str, &str)] = &[];

/// The case names in the `SKIPPED` lists of a file: the first text of each pair.
fn skipped_in(text: &str) -> Vec<String> {
    let lists = text.split("const SKIPPED: &'static [(&'static str, &'static str)] = &[").skip(1);
    let pairs = lists.filter_map(|list| list.split("];").next()).flat_map(|list| list.split('(').skip(1));
    pairs.filter_map(|pair| pair.split('"').nth(1)).map(str::to_owned).collect()
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
