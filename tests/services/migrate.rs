//! `posthaste migrate up` on an empty database reports what it has applied.
use std::time::Duration;

use kit::wait::until;
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::process::{is_unanswered, run};

/// The warning about a broker that did not respond to the first request in time.
const BROKER_AWAY: &str = "no broker can be reached";

/// Applies the migrations to an empty database; returns it with the exit code, stdout and stderr. A broker that a busy machine slows down is reported
/// after the migrations: they are applied to another database then.
fn migrated(arguments: &[&str]) -> (Backend, (i32, String, String)) {
    until("the broker responds in time", Duration::from_secs(60), || {
        let backend = Backend::new();
        let result = run(&backend, &[&["migrate", "up"], arguments].concat());
        let is_late = is_unanswered(&result.2) || result.2.contains(BROKER_AWAY);
        (!is_late).then_some((backend, result))
    })
}

#[test]
fn migrate_up_reports_each_migration_that_it_applies() {
    let (backend, (code, lines, messages)) = migrated(&["--json"]);

    let applied: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert!(code == 0 && !applied.is_empty(), "{messages}");
    assert!(applied.iter().all(|migration| migration["appliedAt"].is_string()), "{lines}");
    let (code, lines, messages) = run(&backend, &["migrate", "status", "--json"]);
    let status: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!((code, status), (0, applied), "{messages}");

    let (_, (code, lines, messages)) = migrated(&[]);
    assert!(code == 0 && lines.lines().count() > 1, "{messages}");
    assert!(lines.lines().all(|line| line.starts_with('V') && line.ends_with("  applied")), "{lines}");
    assert!(messages.contains("order.events was created") && messages.contains("every topic exists"), "{messages}");
    assert!(!messages.contains("ERROR") && !messages.contains("WARN"), "{messages}");
}
