//! Runs `posthaste doctor` on a backend and reads its findings.
use std::time::{Duration, Instant};

use kit::wait::{until, until_ok};
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::process::{Posthaste, command, finish};

/// Longest wait for any condition of a doctor's test.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// A backend whose schema and topics exist, and whose partitions no process owns any more.
pub fn installed() -> Backend {
    let backend = Backend::new();
    install(&backend, &[]);
    // A service that a busy machine has stalled may end without the release of its leases. They keep their owner until another instance takes them.
    backend.database.rows("UPDATE outbox_lease SET owner = NULL, expires_at = NULL");
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
    let is_it = |finding: &String| finding.starts_with(&format!("{check}: ")) && finding.contains(detail);
    await_findings(backend, environment, |code, bad| code == 1 && bad.len() == 1 && is_it(&bad[0]));
}

/// Asserts that the doctor finds this, perhaps among other problems.
#[track_caller]
pub fn assert_among_found(backend: &Backend, environment: &[(&str, &str)], check: &str, detail: &str) {
    let is_it = |finding: &String| finding.starts_with(&format!("{check}: ")) && finding.contains(detail);
    await_findings(backend, environment, |code, bad| code == 1 && bad.iter().any(is_it));
}

/// Asserts that the doctor finds nothing.
#[track_caller]
pub fn assert_nothing_found(backend: &Backend, environment: &[(&str, &str)]) {
    await_findings(backend, environment, |code, bad| code == 0 && bad.is_empty());
}

/// Runs the doctor until its findings are the wanted ones: a broker that a busy machine slows down exceeds the doctor's limit, which is a finding
/// too.
#[track_caller]
pub fn await_findings(backend: &Backend, environment: &[(&str, &str)], is_wanted: impl Fn(i32, &[String]) -> bool) {
    until_ok(Instant::now(), WAIT_MAX, || {
        let (code, bad) = findings(backend, environment);
        if is_wanted(code, &bad) { Ok(()) } else { Err(format!("other findings than {code} {bad:#?}")) }
    });
}
