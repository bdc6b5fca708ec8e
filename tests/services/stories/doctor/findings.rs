//! What `posthaste doctor` finds on a backend.
use std::time::Duration;

use kit::wait::until;
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::process::{Posthaste, command, finish};

/// Longest wait for any condition of a doctor's test.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// A backend whose schema is there, and whose partitions no process owns any more.
/// Creates the schema and the topics.
pub fn installed() -> Backend {
    let backend = Backend::new();
    install(&backend, &[]);
    backend
}

/// Creates the schema and the topics.
pub fn install(backend: &Backend, environment: &[(&str, &str)]) {
    let service = Posthaste::start(backend, environment);
    until("the topics exist", WAIT_MAX, || (findings(backend, environment).0 == 0).then_some(()));
    assert!(service.stop().success());
}

/// The exit code, and each finding that is not ok as `check: detail`.
pub fn findings(backend: &Backend, environment: &[(&str, &str)]) -> (i32, Vec<String>) {
    let (code, stdout, _) = finish(command(backend, &["doctor", "--json"]).envs(environment.iter().copied()));
    let lines = stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object a line"));
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let bad = lines.filter(|finding| finding["ok"] == false);
    (code, bad.map(|finding| format!("{}: {}", text(&finding["check"]), text(&finding["detail"]))).collect())
}

/// Asserts that the doctor finds this, and nothing else.
#[track_caller]
pub fn assert_found(backend: &Backend, environment: &[(&str, &str)], check: &str, detail: &str) {
    let (code, bad) = findings(backend, environment);
    let is_it = |finding: &String| finding.starts_with(&format!("{check}: ")) && finding.contains(detail);
    assert!(code == 1 && bad.len() == 1 && is_it(&bad[0]), "{code} {bad:#?}");
}
